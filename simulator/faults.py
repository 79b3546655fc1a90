"""`faults.csv`: outages of hosts (design, section 6), to be replayed beside a trace.

    host,down_s,up_s,kind
    h017,86400,90000,xid79
    h063,200000,,psu

Seconds count from the start of the trace. A host without `up_s` is never repaired. `kind` is only a label.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from simulator import csv_file
from tenure.domain.host import HostSpec
from tenure.domain.ids import HostId
from tenure.domain.names import check_label
from tenure.domain.nearest import did_you_mean, listed, shown
from tenure.domain.refusal import Refusal
from tenure.domain.units import SECOND, Millis

COLUMNS = ("host", "down_s", "up_s", "kind")


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A host is lost at `down_at` and takes runs again at `up_at` (None: never). Milliseconds from the start."""

    host: HostId
    down_at: Millis
    up_at: Millis | None
    kind: str


def read_faults(path: Path, *, hosts: Sequence[HostSpec]) -> tuple[Fault, ...]:
    """The outages in a file, in order of time, then of host. None below the columns: there were none.

    Raises `Refusal` naming file, line and column: of an unknown host, an end that is not after its beginning, or an
    outage that begins before the last one of its host is over.
    """
    known = {spec.host: None for spec in hosts}
    read: list[tuple[Fault, int]] = []
    with csv_file.opened(path) as file:
        names = csv_file.columns(file.readline(csv_file.LINE_BYTES_MAX), path=path, required=COLUMNS)
        for line, raw in enumerate(file, start=2):
            if not raw.isspace():
                read.append((_fault(raw, names=names, hosts=known, where=f"{path}:{line}"), line))
    read.sort(key=lambda entry: (entry[0].down_at, entry[0].host))
    _check_apart(read, path=path)
    return tuple(fault for fault, _ in read)


def _fault(raw: bytes, *, names: dict[str, int], hosts: dict[HostId, None], where: str) -> Fault:
    try:
        row = csv_file.fields(raw)
        csv_file.check_width(row, names=names)
        host, down, up, kind = (row[names[name]].strip() for name in COLUMNS)
        if host not in hosts:
            near = did_you_mean(host, hosts)
            problem = f"the cluster has no host {shown(host)}" if host else "empty"
            raise Refusal(field="host", problem=problem, fix=f"{near}known: {listed(list(hosts), most=4)}")
        down_at = csv_file.seconds(down, column="down_s")
        up_at = csv_file.seconds(up, column="up_s") if up else None
        if up_at is not None and up_at <= down_at:
            problem = f"{shown(up)} is not after down_s, {shown(down)}"
            raise Refusal(field="up_s", problem=problem, fix="write when it was repaired, or nothing for never")
        return Fault(host=HostId(host), down_at=down_at, up_at=up_at, kind=check_label(kind, field="kind"))
    except Refusal as refusal:
        raise csv_file.placed(refusal, where) from refusal


def _check_apart(read: Iterable[tuple[Fault, int]], *, path: Path) -> None:
    """Raise `Refusal` when a host goes down while it is down. `read` is in order of time."""
    by_host: dict[HostId, list[tuple[Fault, int]]] = {}
    for entry in read:
        by_host.setdefault(entry[0].host, []).append(entry)
    for outages in by_host.values():
        for (first, first_line), (second, line) in pairwise(outages):
            if first.up_at is None or second.down_at < first.up_at:
                over = "never ends" if first.up_at is None else f"ends at {first.up_at / SECOND:g}"
                raise Refusal(
                    field=f"{path}:{line}, column down_s",
                    problem=f"{first.host} is still down: its outage of line {first_line} {over}",
                    fix="join the two rows, or mend their times",
                )
