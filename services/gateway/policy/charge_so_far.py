"""P2, what a job has been charged by now: its closed books, and its running run to the present.

The open part is what a person wants to see while the job runs; the exact figure, refunds included, comes with
`RunCharged`.
"""

from services.gateway.entries import HostEntry, JobEntry, RunEntry
from services.gateway.state import State
from tenure.domain.host import HostState
from tenure.domain.units import GpuMillis, Millis

_SILENT = (HostState.SUSPECT, HostState.LOST)


def charged_so_far(entry: JobEntry, state: State, *, now: Millis) -> GpuMillis:
    """GPU-time charged to the job's budget until `now`."""
    open_books = sum(_open(run, state, now=now) for run in entry.runs if run.allocated and not run.books_closed)
    return entry.charged_gpu_ms + open_books


def _open(run: RunEntry, state: State, *, now: Millis) -> GpuMillis:
    """Occupancy since the start, on a silent host only to its last sign of life."""
    if run.started_at is None:
        return 0
    until = now if run.ended_at is None else run.ended_at
    total = 0
    for place in run.placement:
        seen = _seen(state.hosts.get(place.host), until=until)
        total += len(place.gpus) * max(0, seen - run.started_at)
    return total


def _seen(host: HostEntry | None, *, until: Millis) -> Millis:
    silent = host is not None and host.state in _SILENT
    return min(until, host.last_seen) if silent and host is not None else until
