"""SWF, in which the archive of parallel machines' logs keeps them: 18 numbers a line, comments begin with `;`.

One processor is taken as one GPU. What a job asked for counts (field 8), what it was given (field 5) only where nothing
is known of that. Lines with status 2, 3 and 4 are parts of a job that has a line of its own. Jobs of one group are one
budget; without a group, those of one user.
"""

from collections.abc import Iterator
from pathlib import Path

from simulator.traces.notes import Action, Notes
from simulator.traces.record import Record
from simulator.traces.source import Unreadable, at_least_a_second, lines_of, whole, within_limit
from tenure.domain.refusal import Refusal

FIELDS = 18
_USED = (0, 1, 3, 4, 7, 8, 10, 11, 12)
"""Job, submit, run, given, requested processors and time, status, user, group."""
_PARTS_OF_A_JOB = (2, 3, 4)
_CANCELLED = 5
_NAMES = (
    "job number", "submit time", "wait time", "run time", "number of processors", "processor time", "memory",
    "requested processors", "requested time", "requested memory", "status", "user", "group", "executable", "queue",
    "partition", "preceding job", "think time",
)  # fmt: skip


def read(path: Path, *, notes: Notes, timezone: str = "") -> Iterator[Record]:
    """The jobs of the file in its own order; its times are seconds already. Raises `Refusal`."""
    assert not timezone, "seconds have no zone"
    before: list[str] = []
    for line, text in lines_of(path):
        if text.lstrip().startswith(";"):
            continue
        notes.rows_read += 1
        cells = text.split()
        if len(cells) != FIELDS:
            if notes.rows_read == 1:
                fix = "name a file in SWF, compressed or not"
                raise Refusal(
                    field=f"{path.name}:{line}", problem=f"{len(cells)} fields, {FIELDS} are expected", fix=fix
                )
            notes.add(Action.DROPPED, f"not {FIELDS} fields", line=line)
            continue
        record = _record(cells, line, notes)
        if record is None:
            continue
        if before and before[1] == cells[1] and before[7:9] == cells[7:9] and before[11:13] == cells[11:13]:
            why = "the user, size, limit and second of the row before: taken as a bulk submission"
            notes.add(Action.KEPT, why, line=line)
        before = cells
        yield record


def _record(cells: list[str], line: int, notes: Notes) -> Record | None:
    """The job of a line; None, with a note, if it is none."""
    try:
        values = [
            int(cells[index]) if cells[index].isdecimal() and len(cells[index]) < 12 else _number(cells, index)
            for index in _USED  # as `_number` does it, without a call for nearly every cell
        ]
    except Unreadable as trouble:
        notes.add(Action.DROPPED, str(trouble), line=line)
        return None
    job, submit_s, runtime_s, given, asked, limit_s, status, user, group = values
    gpus = asked or given
    why = _unusable(submit_s, runtime_s, gpus, status)
    if why:
        notes.add(Action.DROPPED, why, line=line)
        return None
    assert submit_s is not None and runtime_s is not None and gpus
    if not asked:
        notes.add(Action.CHANGED, "no requested processors: those it was given", line=line)
    elif given is not None and given != asked:
        notes.add(Action.KEPT, "was given other than the requested processors: the requested ones", line=line)
    if limit_s is None:
        notes.add(Action.KEPT, "no requested time: no limit is known", line=line)
        limit_s = 0
    runtime_s = within_limit(runtime_s, limit_s=limit_s, notes=notes, line=line)
    return Record(
        job="" if job is None else f"{job:06d}",
        line=line,
        submit_s=submit_s,
        runtime_s=at_least_a_second(runtime_s, notes=notes, line=line),
        gpus=gpus,
        group=f"g{group}" if group is not None else "" if user is None else f"u{user}",
        user="unknown" if user is None else f"u{user}",
        limit_s=limit_s,
        partition=cells[14],
    )


def _number(cells: list[str], index: int) -> int | None:
    return whole(cells[index], what=_NAMES[index])


def _unusable(submit_s: int | None, runtime_s: int | None, gpus: int | None, status: int | None) -> str:
    """Why a line is no job of the trace, empty if it is one."""
    if status in _PARTS_OF_A_JOB:
        return "a part of a job that has a line of its own (status 2, 3 or 4)"
    if submit_s is None:
        return "no submit time"
    if runtime_s is None:
        return "never started: no run time"
    if runtime_s == 0 and status == _CANCELLED:
        return "never started: cancelled with no run time"
    return "" if gpus else "asks for no processor"
