"""Alibaba cluster-trace-gpu-v2023 ("openb"): one job of one replica a row, times in seconds from an unknown origin.

A job that was never scheduled is left out; one that has no end, or whose end is the end of the trace, is taken to have
run until then. A part of a GPU becomes a whole one, for a GPU is never held by two runs. The class of service (`qos`)
becomes the budget: there are no users, teams or queues.
"""

from collections.abc import Iterator
from pathlib import Path

from simulator.traces.notes import Action, Notes
from simulator.traces.record import Record
from simulator.traces.source import (
    PART_OF_A_GPU,
    Columns,
    Unreadable,
    at_least_a_second,
    csv_rows,
    gpu_count,
    whole,
)

WHOLE_GPU_MILLI = 1_000
HINT = "name a list of jobs that has these columns; not all of openb's have times"
_TIMES = ("creation_time", "scheduled_time", "deletion_time")


def read(path: Path, *, notes: Notes, timezone: str = "") -> Iterator[Record]:
    """The jobs of the file in its own order. Raises `Refusal`."""
    assert not timezone, "seconds have no zone"
    rows = csv_rows(path, notes=notes)
    line, header = next(rows)
    columns = Columns(header, name=path.name, line=line)
    columns.need("name", "num_gpu", "gpu_milli", "qos", *_TIMES, hint=HINT)
    reader = _Reader(columns, notes=notes)
    found = [(line, row, times) for line, row in rows if (times := reader.times(line, row)) is not None]
    trace_end = max((end for _, _, (_, _, end) in found if end is not None), default=0)
    for line, row, times in found:
        record = reader.record(line, row, times, trace_end)
        if record is not None:
            yield record


class _Reader:
    """Reads cells by their columns."""

    def __init__(self, columns: Columns, *, notes: Notes) -> None:
        self._columns, self._notes = columns, notes

    def times(self, line: int, row: list[str]) -> tuple[int | None, int | None, int | None] | None:
        """When the job was submitted, scheduled and ended, each None if it is not said; None if unreadable."""
        try:
            submitted, scheduled, ended = (whole(row[self._columns.at(name)], what=name) for name in _TIMES)
        except Unreadable as trouble:
            self._notes.add(Action.DROPPED, str(trouble), line=line)
            return None
        return submitted, scheduled, ended

    def record(
        self, line: int, row: list[str], times: tuple[int | None, int | None, int | None], trace_end: int
    ) -> Record | None:
        """The job of a row; None, with a note, if it is none."""
        submitted, scheduled, ended = times
        notes = self._notes
        try:
            gpus = gpu_count(row[self._columns.at("num_gpu")], what="num_gpu", notes=notes, line=line)
            milli = whole(row[self._columns.at("gpu_milli")], what="gpu_milli")
        except Unreadable as trouble:
            notes.add(Action.DROPPED, str(trouble), line=line)
            return None
        why = _unusable(gpus, submitted, scheduled, ended)
        if why:
            notes.add(Action.DROPPED, why, line=line)
            return None
        assert gpus and submitted is not None and scheduled is not None
        if milli is not None and milli < WHOLE_GPU_MILLI:
            notes.add(Action.CHANGED, PART_OF_A_GPU, line=line)
        if self._columns.at("gpu_spec") >= 0 and row[self._columns.at("gpu_spec")].strip():
            notes.add(Action.CHANGED, "asks for models of GPU: any model", line=line)
        if ended is None:
            notes.add(Action.CHANGED, "has no end: runs until the trace ends", line=line)
            ended = max(trace_end, scheduled)
        elif ended == trace_end:
            notes.add(Action.KEPT, "ends with the trace, so perhaps later: runtime as far as it is seen", line=line)
        return Record(
            job=row[self._columns.at("name")].strip(),
            line=line,
            submit_s=submitted,
            runtime_s=at_least_a_second(ended - scheduled, notes=notes, line=line),
            gpus=gpus,
            group=row[self._columns.at("qos")].strip(),
            qos=row[self._columns.at("qos")].strip(),
        )


def _unusable(gpus: int | None, submitted: int | None, scheduled: int | None, ended: int | None) -> str:
    """Why a row is no job of the trace, empty if it is one."""
    if gpus is None:
        return "no number of GPUs"
    if gpus == 0:
        return "asks for no GPU"
    if submitted is None:
        return "no creation time"
    if scheduled is None:
        return "never started: given up in the queue" if ended is not None else "never started"
    if ended is not None and ended < scheduled:
        return "ends before it starts"
    return ""
