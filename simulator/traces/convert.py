"""From a source's records to the rows of a trace: window, size, budget, shape, contract, id, order.

importer -> Records -> convert -> TraceRows -> trace.csv, budgets.yaml; what was done to them -> Notes
"""

import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path

import msgspec

from simulator.csv_file import SECONDS_MAX
from simulator.traces import contract
from simulator.traces.importers import openb, philly, sacct, swf
from simulator.traces.notes import Action, Notes
from simulator.traces.record import Record
from simulator.traces.shape import clip, shape
from simulator.traces.shares import BudgetNames
from simulator.traces.source import nothing_left
from simulator.traces.write import TraceRow, in_order
from tenure.domain.admission import REPLICAS_MAX
from tenure.domain.refusal import Refusal

DAY_S = 86_400
AWAY_S = SECONDS_MAX // 2
"""Farther than this from the middle of a trace is no time of it; what is left has no instant that could not be read."""
LABEL_MAX = 64
_SAFE_ID, _UNSAFE = re.compile(f"[A-Za-z0-9_-]{{1,{LABEL_MAX}}}"), re.compile(r"[^A-Za-z0-9_-]+")


class Source(StrEnum):
    """The formats that can be read."""

    PHILLY = "philly"
    OPENB = "openb"
    SWF = "swf"
    SACCT = "sacct"


READERS: dict[Source, Callable[..., Iterator[Record]]] = {
    Source.PHILLY: philly.read,
    Source.OPENB: openb.read,
    Source.SWF: swf.read,
    Source.SACCT: sacct.read,
}
PREFIXES = {Source.PHILLY: "vc-", Source.OPENB: "", Source.SWF: "", Source.SACCT: ""}
"""What a budget's name begins with, before the name of the group."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How records become rows. `most_gpus` 0 is no limit; the window is in seconds from the first submission."""

    rules: tuple[contract.Rule, ...]
    gpus_per_host: int = 8
    most_gpus: int = 0
    budgets: dict[str, str] | None = None
    timezone: str = ""
    since_s: int = 0
    until_s: int = 0


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """A trace and what was done to its source to get it."""

    rows: list[TraceRow]
    notes: Notes
    rules: tuple[contract.Rule, ...]
    signed: tuple[int, ...]
    """How many jobs each rule wrote the contract of."""
    gpu_s: dict[str, int]
    """GPU-seconds of each budget."""


def import_trace(path: Path, *, source: Source, options: Options) -> Imported:
    """The trace in a file of another scheduler. Raises `Refusal` if it is none, or if no job is left."""
    notes = Notes()
    if options.timezone and source not in (Source.PHILLY, Source.SACCT):
        raise Refusal(field="--timezone", problem=f"the times of {source} have no zone", fix="leave it out")
    read = READERS[source](path, notes=notes, timezone=options.timezone)
    records = _in_window(_credible(list(read), notes), options=options, notes=notes)
    if not records:
        raise nothing_left(path, notes)
    records = _named(records, notes)
    names = BudgetNames(prefix=PREFIXES[source], given=options.budgets)
    origin_s = min(record.submit_s for record in records)
    signed = [0] * len(options.rules)
    rows: list[TraceRow] = []
    gpu_s: dict[str, int] = {}
    for record in records:
        record.budget = names.path(record.group)
        replicas, each = _shape(record, options=options, notes=notes)
        index, terms = contract.sign(record, options.rules)
        signed[index] += 1
        gpu_s[record.budget] = gpu_s.get(record.budget, 0) + record.gpus * record.runtime_s
        rows.append(
            TraceRow(
                job_id=record.job,
                submit_s=record.submit_s - origin_s,
                budget=record.budget,
                user=record.user,
                replicas=replicas,
                gpus_per_replica=each,
                min_runtime_s=terms.min_runtime_s,
                runtime_s=record.runtime_s,
                resumable=terms.resumable,
                priority=terms.priority,
                kind=terms.kind,
            )
        )
    assert notes.rows_read == len(rows) + notes.dropped, "every row is a job or was dropped for a reason"
    return Imported(rows=in_order(rows), notes=notes, rules=options.rules, signed=tuple(signed), gpu_s=gpu_s)


def _credible(records: list[Record], notes: Notes) -> list[Record]:
    """The records without those that are years away from most others (a zero that meant nothing) or run for years."""
    if not records:
        return records
    middle_s = sorted(record.submit_s for record in records)[len(records) // 2]
    kept = []
    for record in records:
        if abs(record.submit_s - middle_s) > AWAY_S:
            notes.add(Action.DROPPED, f"submitted more than {AWAY_S // DAY_S} days from the others", line=record.line)
        elif record.runtime_s > AWAY_S:
            notes.add(Action.DROPPED, f"ran for more than {AWAY_S // DAY_S} days", line=record.line)
        else:
            kept.append(record)
    return kept


def _in_window(records: list[Record], *, options: Options, notes: Notes) -> list[Record]:
    """The records that were submitted in the window that was asked for."""
    if not records or not (options.since_s or options.until_s):
        return records
    first_s = min(record.submit_s for record in records)
    kept = []
    for record in records:
        at_s = record.submit_s - first_s
        if at_s < options.since_s:
            notes.add(Action.DROPPED, "submitted before --since", line=record.line)
        elif options.until_s and at_s >= options.until_s:
            notes.add(Action.DROPPED, "submitted after --days", line=record.line)
        else:
            kept.append(record)
    return kept


def _named(records: list[Record], notes: Notes) -> list[Record]:
    """The records with ids that are there, usable and unique. A row that repeats an earlier one, id and all, goes."""
    by_id: dict[str, Record] = {}
    width = max(6, len(str(records[-1].line)))
    anonymous = not any(record.job for record in records)
    for record in records:
        record.user = _label(record.user)
        if not record.job:
            if not anonymous:
                notes.add(Action.CHANGED, "no job id: named after its line", line=record.line)
            record.job = f"line-{record.line:0{width}d}"
        job = record.job
        if not _SAFE_ID.fullmatch(job):
            job = record.job = _UNSAFE.sub("-", job)[:LABEL_MAX]
            notes.add(Action.CHANGED, "the job id holds what no name may: those characters are '-'", line=record.line)
        earlier = by_id.setdefault(job, record)
        if earlier is not record:
            _numbered(record, by_id, notes)
    return list(by_id.values())


def _numbered(record: Record, by_id: dict[str, Record], notes: Notes) -> None:
    """Give a job that has the id of an earlier one a number, unless it is that job again."""
    job, again = record.job, 1
    while (earlier := by_id.get(record.job)) is not None:
        if _alike(earlier, record):
            notes.add(Action.DROPPED, "the same job again: id and all", line=record.line)
            return
        again += 1
        record.job = f"{job}-{again}"
    by_id[record.job] = record
    notes.add(Action.CHANGED, "the id of an earlier job: numbered", line=record.line)


def _alike(one: Record, other: Record) -> bool:
    """Whether two records say the same but for where they stand and what they were named here."""
    return msgspec.structs.replace(one, line=0, job="") == msgspec.structs.replace(other, line=0, job="")


def _label(text: str) -> str:
    """A user's name as it can be shown on a terminal."""
    if text.isprintable() and len(text) <= LABEL_MAX and text.strip():
        return text
    return "".join(character if character.isprintable() else "?" for character in text)[:LABEL_MAX].strip() or "unknown"


def _shape(record: Record, *, options: Options, notes: Notes) -> tuple[int, int]:
    """Replicas and GPUs of each; `record.gpus` is cut to the cluster if it is larger."""
    per_host, most = options.gpus_per_host, options.most_gpus or REPLICAS_MAX * options.gpus_per_host
    gpus = clip(record.gpus, most=most, gpus_per_host=per_host)
    if gpus < record.gpus:
        what = "--max-gpus" if options.most_gpus else f"{REPLICAS_MAX} hosts"
        notes.add(Action.CLIPPED, f"asks for more GPUs than {what}: as many as that", line=record.line)
        record.gpus = gpus
    replicas, each = shape(gpus, gpus_per_host=per_host, most=options.most_gpus, hosts=record.hosts)
    if replicas > REPLICAS_MAX:  # only a number without a fitting divisor comes here
        record.gpus = REPLICAS_MAX
        notes.add(Action.CLIPPED, f"more than {REPLICAS_MAX} replicas of one GPU: as many as that", line=record.line)
        return REPLICAS_MAX, 1
    if gpus > per_host and gpus % per_host and each * replicas == gpus:
        notes.add(Action.CHANGED, "not a multiple of a host: cut into smaller equal replicas", line=record.line)
    return replicas, each
