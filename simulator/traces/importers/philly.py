"""Microsoft Philly (2017): `timestamp,duration,num_gpus,gpu_time,cluster`, one job a row, no ids and no users.

`timestamp` is the submission in US Pacific wall time; the months cross the end of daylight saving on 2017-11-05. The
rows are not in order, so an instant in the repeated hour cannot be told apart and is read as the first of the two.
`duration` is the sum of all attempts; `cluster` is a virtual cluster, which becomes a budget.
"""

from collections.abc import Iterator
from pathlib import Path

from simulator.traces.notes import Action, Notes
from simulator.traces.record import Record
from simulator.traces.source import Columns, Unreadable, WallClock, at_least_a_second, csv_rows, gpu_count, number

TIMEZONE = "America/Los_Angeles"
HINT = "name the list of jobs, philly_jobs.csv"


def read(path: Path, *, notes: Notes, timezone: str = TIMEZONE) -> Iterator[Record]:
    """The jobs of the file in its own order. Raises `Refusal`."""
    clock = WallClock(timezone or TIMEZONE, notes=notes)
    rows = csv_rows(path, notes=notes)
    line, header = next(rows)
    columns = Columns(header, name=path.name, line=line)
    columns.need("timestamp", "duration", "num_gpus", "cluster", hint=HINT)
    time_at, duration_at, gpus_at, cluster_at = map(columns.at, ("timestamp", "duration", "num_gpus", "cluster"))
    seen: dict[tuple[str, ...], int] = {}
    for line, row in rows:
        try:
            submit_s = clock.epoch_s(row[time_at], what="timestamp", line=line)
            runtime = number(row[duration_at], what="duration")
            gpus = gpu_count(row[gpus_at], what="num_gpus", notes=notes, line=line)
        except Unreadable as trouble:
            notes.add(Action.DROPPED, str(trouble), line=line)
            continue
        if submit_s is None or gpus is None:
            what = "submit time" if submit_s is None else "number of GPUs"
            notes.add(Action.DROPPED, f"no {what}", line=line)
            continue
        if runtime is None:
            notes.add(Action.DROPPED, "never started: no duration", line=line)
            continue
        if gpus == 0:
            notes.add(Action.DROPPED, "asks for no GPU", line=line)
            continue
        key = tuple(row)
        if seen.setdefault(key, line) != line:
            notes.add(Action.KEPT, "the same as an earlier row: taken as a burst, for there are no ids", line=line)
        yield Record(
            job="",
            line=line,
            submit_s=submit_s,
            runtime_s=at_least_a_second(round(runtime), notes=notes, line=line),
            gpus=gpus,
            group=row[cluster_at].strip(),
        )
