"""What a job with a reservation waits for: the end of `tenure why JOB`."""

from typing import TYPE_CHECKING

from tenure.cli import words
from tenure.cli.terminal import Cell, Column, Table, cell, clean, print_table, say

if TYPE_CHECKING:
    from tenure.v1 import jobs_pb2

HOSTS_SHOWN = 8
COLUMNS = (
    Column(title="IN THE WAY"),
    Column(title="BUDGET", least=14),
    Column(title="GPUS", right=True, drop=2),
    Column(title="STATE", drop=1),
    Column(title="PROTECTED UNTIL", right=True),
)


def show(job: "jobs_pb2.Job") -> None:
    """Where and when it starts at the latest, and the runs in the way, the last to be had first."""
    now = words.now_ms()
    hosts = [clean(place.host) for place in job.reservation.hosts]
    more = f" and {len(hosts) - HOSTS_SHOWN} more" if len(hosts) > HOSTS_SHOWN else ""
    gpus = sum(len(place.gpus) for place in job.reservation.hosts)
    when = words.instant(job.latest_start_ms, now=now)
    say(
        Cell("\nIt starts at the latest at "),
        Cell(when, "bold"),
        Cell(f", with {gpus} GPUs on {len(hosts)} hosts: {', '.join(hosts[:HOSTS_SHOWN])}{more}"),
    )
    rows = [_row(run, now=now) for run in sorted(job.reservation.waits_for, key=_last_first)]
    print_table(Table(columns=COLUMNS, rows=rows), empty="No protected run is in its way; the others there give way.")


def _last_first(run: "jobs_pb2.RunInTheWay") -> tuple[bool, int, str]:
    return run.protected_until_ms > 0, -run.protected_until_ms, run.run_id


def _row(run: "jobs_pb2.RunInTheWay", *, now: int) -> list[Cell]:
    until = words.instant(run.protected_until_ms, now=now) if run.protected_until_ms else "not started yet"
    return [cell(run.run_id), cell(run.budget), cell(run.gpus), cell(run.state), cell(until)]
