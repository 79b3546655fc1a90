"""Slurm's accounting, as `sacct -P` prints it: `|` between the cells, times without a zone, steps below their jobs.

    sacct -a -P -S 2026-01-01 -E now -o JobID,User,Account,Partition,QOS,State,Submit,Start,End,ElapsedRaw,\
TimelimitRaw,nnodes,AllocTRES

Steps (`12.batch`) are left out. The parts of a heterogeneous job (`12+0`, `12+1`) are one job, and so are the attempts
of a requeued one (`sacct --duplicates`): first submitted as the first, running as long as the last. Slurm's `Priority`
is made of age and share, so it is no wish of the user's and not taken over; a contract rule may set one by QOS.
"""

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import msgspec

from simulator.traces.importers.tres import gpus_of_gres, gpus_of_tres, rounded_up
from simulator.traces.notes import Action, Notes
from simulator.traces.record import Record
from simulator.traces.source import (
    MISSING,
    PART_OF_A_GPU,
    Columns,
    Unreadable,
    WallClock,
    at_least_a_second,
    csv_rows,
    whole,
    within_limit,
)

HINT = (
    "make the file with: sacct -a -P -o "
    "JobID,User,Account,Partition,QOS,State,Submit,Start,End,ElapsedRaw,TimelimitRaw,nnodes,AllocTRES"
)
_ID = re.compile(r"(\d+(?:_\d+|_\[[^\]]*\])?)(?:\+(\d+))?(\..+)?")
_DURATION = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)(?:\.\d+)?")
_NOT_OVER = frozenset({"RUNNING", "SUSPENDED", "PENDING", "CONFIGURING", "COMPLETING", "STOPPED", "SIGNALING"})
_TRES, _GRES = ("AllocTRES", "ReqTRES"), ("AllocGRES", "ReqGRES")
_UNLIMITED = frozenset({"unlimited", "partition_limit", "infinite"})


def read(path: Path, *, notes: Notes, timezone: str = "UTC") -> Iterator[Record]:
    """The jobs of the file in the order of their first rows. Raises `Refusal`."""
    clock = WallClock(timezone or "UTC", notes=notes)
    rows = csv_rows(path, notes=notes, delimiter="|", quoted=False)
    line, header = next(rows)
    columns = Columns(header, name=path.name, line=line)
    columns.need(("JobID", "JobIDRaw"), "User", "Account", "State", "Submit", "Start", hint=HINT)
    columns.need(("ElapsedRaw", "Elapsed", "End"), (*_TRES, *_GRES), hint=HINT)
    reader = _Reader(columns, clock=clock, notes=notes)
    jobs: dict[str, dict[str, list[tuple[int, Record]]]] = {}
    """Of each job the attempts of its parts, each with its start."""
    for line, row in rows:
        try:
            found = reader.attempt(line, row)
        except Unreadable as trouble:
            notes.add(Action.DROPPED, str(trouble), line=line)
            continue
        if found is not None:
            job, part, start_s, record = found
            parts = jobs.setdefault(job, {})
            parts.setdefault(part, []).append((start_s, record))
    for parts in jobs.values():
        yield from _whole_jobs([_last_attempts(attempts, notes) for attempts in parts.values()], notes)


class _Reader:
    """Reads rows by their columns."""

    def __init__(self, columns: Columns, *, clock: WallClock, notes: Notes) -> None:
        self._columns, self._clock, self._notes = columns, clock, notes

    def attempt(self, line: int, row: list[str]) -> tuple[str, str, int, Record] | None:
        """Job, part, start and record of a row; None, with a note, if there is none. Raises `Unreadable`."""
        notes = self._notes
        text = self._cell(row, "JobID") or self._cell(row, "JobIDRaw")
        match = _ID.fullmatch(text)
        if match is None:
            raise Unreadable("no job id" if not text else "the job id is not Slurm's")
        job, part, step = match.groups()
        if step:
            notes.add(Action.DROPPED, "a step of a job", line=line)
            return None
        state = self._cell(row, "State").split(" ")[0].rstrip("+").upper()
        if state == "REVOKED":
            notes.add(Action.DROPPED, "revoked: it ran in another cluster of the federation", line=line)
            return None
        submit_s = self._clock.epoch_s(self._cell(row, "Submit"), what="Submit", line=line)
        start_s = self._clock.epoch_s(self._cell(row, "Start"), what="Start", line=line)
        runtime_s = self._runtime_s(row, start_s, line)
        gpus = self._gpus(row)
        why = _unusable(submit_s, start_s, runtime_s, gpus, state)
        if why:
            notes.add(Action.DROPPED, why, line=line)
            return None
        assert submit_s is not None and start_s is not None and runtime_s is not None
        if gpus.denominator != 1:
            notes.add(Action.CHANGED, PART_OF_A_GPU, line=line)
        if state in _NOT_OVER:
            notes.add(Action.KEPT, "not over yet: runtime as far as it is seen", line=line)
        limit_s = self._limit_s(row)
        runtime_s = within_limit(runtime_s, limit_s=limit_s, notes=notes, line=line)
        record = Record(
            job=job,
            line=line,
            submit_s=submit_s,
            runtime_s=at_least_a_second(runtime_s, notes=notes, line=line),
            gpus=rounded_up(gpus),
            group=self._cell(row, "Account"),
            user=self._cell(row, "User") or "unknown",
            hosts=self._hosts(row),
            limit_s=limit_s,
            qos=self._cell(row, "QOS"),
            partition=self._cell(row, "Partition"),
        )
        return job, part or "", start_s, record

    def _cell(self, row: Sequence[str], name: str) -> str:
        """What stands in a column; empty if there is no such column, or nothing is known."""
        index = self._columns.at(name)
        text = row[index].strip() if index >= 0 else ""
        return "" if text.lower() in MISSING else text

    def _runtime_s(self, row: Sequence[str], start_s: int | None, line: int) -> int | None:
        """How long it ran: time that it was suspended is not in Slurm's own count."""
        raw, elapsed = self._cell(row, "ElapsedRaw"), self._cell(row, "Elapsed")
        if raw:
            return whole(raw, what="ElapsedRaw")
        if elapsed:
            return _seconds(elapsed, what="Elapsed")
        end_s = self._clock.epoch_s(self._cell(row, "End"), what="End", line=line)
        if end_s is None or start_s is None:
            return None
        if end_s < start_s:
            raise Unreadable("ends before it starts")
        return end_s - start_s

    def _limit_s(self, row: Sequence[str]) -> int:
        """The time limit, 0 if there is none. `TimelimitRaw` counts minutes."""
        raw, limit = self._cell(row, "TimelimitRaw"), self._cell(row, "Timelimit")
        text = raw or limit
        if not text or text.lower() in _UNLIMITED:
            return 0
        if raw.isdecimal():
            return 60 * int(raw[:9])
        return _seconds(text, what="Timelimit")

    def _hosts(self, row: Sequence[str]) -> int:
        text = self._cell(row, "nnodes") or self._cell(row, "allocnodes")
        return int(text) if text.isdecimal() and len(text) < 9 else 0

    def _gpus(self, row: Sequence[str]) -> Fraction:
        """The GPUs it was given, else those it asked for."""
        for name in _TRES:
            gpus = gpus_of_tres(self._cell(row, name))
            if gpus:
                return gpus
        for name in _GRES:
            gpus = gpus_of_gres(self._cell(row, name), hosts=self._hosts(row))
            if gpus:
                return gpus
        return Fraction(0)


def _unusable(submit_s: int | None, start_s: int | None, runtime_s: int | None, gpus: Fraction, state: str) -> str:
    """Why a row is no job of the trace, empty if it is one."""
    if submit_s is None:
        return "no submit time"
    if start_s is None or state == "PENDING":
        return "never started: cancelled or still in the queue"
    if not runtime_s and state == "CANCELLED":
        return "never started: cancelled with no run time"
    if runtime_s is None:
        return "no run time"
    return "" if gpus else "asks for no GPU"


def _last_attempts(attempts: list[tuple[int, Record]], notes: Notes) -> list[Record]:
    """One record for each time that the id was used: attempts of one user and account are one job."""
    jobs: dict[tuple[str, str], Record] = {}
    for _, record in sorted(attempts, key=lambda attempt: (attempt[0], attempt[1].line)):
        owner = (record.user, record.group)
        earlier = jobs.get(owner)
        if earlier is not None:
            why = "an earlier attempt of a requeued job: first submitted then, runs as long as the last one"
            if msgspec.structs.replace(earlier, line=record.line) == record:
                why = "the same job again: id and all"
            notes.add(Action.DROPPED, why, line=earlier.line)
            record.submit_s = min(record.submit_s, earlier.submit_s)
        jobs[owner] = record
    return list(jobs.values())


def _whole_jobs(parts: list[list[Record]], notes: Notes) -> Iterator[Record]:
    """The parts of a heterogeneous job as one: it asks for the GPUs of all and runs as long as the longest."""
    if len(parts) == 1:
        yield from parts[0]
        return
    first, *others = [record for part in parts for record in part]
    for record in others:
        notes.add(Action.DROPPED, "a part of a heterogeneous job: its GPUs are the job's", line=record.line)
        first.gpus += record.gpus
        first.runtime_s = max(first.runtime_s, record.runtime_s)
        first.submit_s = min(first.submit_s, record.submit_s)
        first.hosts = 0
    if others:
        notes.add(Action.CHANGED, "a heterogeneous job: one gang of equal replicas", line=first.line)
    yield first


def _seconds(text: str, *, what: str) -> int:
    """Seconds of `[DAYS-[HOURS:]]MINUTES:SECONDS`. Raises `Unreadable`."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise Unreadable(f"{what} is not a length of time")
    days, hours, minutes, seconds = (int(part[:9]) if part else 0 for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
