"""`events.jsonl[.gz]`, as `tenure log export` and `tenure simulate --log` write it, as the facts it was made of."""

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from simulator import csv_file
from simulator.past.line_facts import READ, Reader, within
from tenure.domain.ids import JobId, RunId
from tenure.domain.refusal import Refusal
from tenure.domain.units import Millis
from tenure.events.fact import Fact
from tenure.events.plausible import AT_MAX
from tenure.export import lines as line

LINE_BYTES_MAX = 64 << 20


class _Kind(msgspec.Struct):
    """What is looked at first of a line."""

    type: str


class _Entry(NamedTuple):
    """A line that tells something, and where it stands in the file."""

    number: int
    told: line.Line
    read: Callable[[Reader, Any, Millis], None]


def facts_of(path: Path) -> list[Fact]:
    """The facts of a file, in the order of the log. Raises `Refusal` naming the line that cannot be read."""
    number = 0
    try:
        origin_ms: Millis | None = None
        entries: list[_Entry] = []
        kind_of = msgspec.json.Decoder(_Kind).decode
        with csv_file.opened(path) as file:
            for raw in iter(partial(file.readline, LINE_BYTES_MAX), b""):
                number += 1
                kind = kind_of(raw).type
                if origin_ms is None:
                    origin_ms = _origin(raw, kind)
                elif kind in READ:
                    decoder, read = READ[kind]
                    entries.append(_Entry(number, decoder.decode(raw), read))
        reader = Reader(origin_ms or 0)
        for entry in in_order(entries):
            number = entry.number
            entry.read(reader, entry.told, reader.at(entry.told.t))
        return reader.finished()
    except Refusal as refusal:
        raise refusal if str(path) in refusal.field else csv_file.placed(refusal, f"{path}:{number}") from refusal
    except (LookupError, ValueError, OverflowError) as error:
        what = f"{error} is not known" if isinstance(error, LookupError) else str(error)[:80]
        where = f"{path}:{number}" if number else str(path)
        raise Refusal(
            field=where,
            problem=f"no line of an export ({what})",
            fix="name a file of tenure log export, or of tenure simulate --log",
        ) from error


def _origin(raw: bytes, kind: str) -> Millis:
    if kind != "origin":
        raise ValueError("the first line of an export is its origin")
    return within(round(msgspec.json.decode(raw, type=line.Origin).epoch_ms), most=AT_MAX)


def in_order(entries: Sequence[_Entry]) -> list[_Entry]:
    """The lines in the order of the log, which is that of time but for clocks that differ.

    Starts and ends of runs are told by the clocks of hosts, all else by those of roles: no run starts before it was
    assigned, and none ends after its job was requeued or finished.
    """
    assigned: dict[RunId, float] = {}
    first: dict[JobId, float] = {}
    settled: dict[RunId, float] = {}
    latest: dict[JobId, RunId] = {}
    for _, told, _ in entries:
        match told:
            case line.RunAssignment():
                assigned[told.run] = told.t
                first.setdefault(told.job, told.t)
                latest[told.job] = told.run
            case line.Requeue():
                settled[told.run] = told.t
            case line.JobEnd() if told.job in latest:
                settled[latest[told.job]] = told.t

    def place(entry: _Entry) -> tuple[float, int]:
        """Its instant, or the one by which it must have been, before or after all else of that instant."""
        told = entry.told
        match told:
            case line.JobSubmission():
                return _between(told.t, -inf, first.get(told.job, inf))
            case line.RunStart() | line.RunEnd():
                return _between(told.t, assigned.get(told.run, -inf), settled.get(told.run, inf))
        return told.t, 0

    return sorted(entries, key=place)


def _between(t: float, least: float, most: float) -> tuple[float, int]:
    return (most, -1) if t > most else (least, 1) if t < least else (t, 0)
