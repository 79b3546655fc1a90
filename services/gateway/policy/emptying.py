"""P9, when a draining host will be empty: its protected runs reach their minimum first, the others stop at once."""

from services.gateway.entries import HostEntry, RunEntry
from services.gateway.state import State
from tenure.domain.host import HostState
from tenure.domain.ids import RunId, job_of
from tenure.domain.units import Millis


def emptied_at(state: State, host: HostEntry, *, now: Millis) -> tuple[Millis, RunId] | None:
    """When the host is empty at the latest by its runs' contracts, and the run it waits for longest.

    None when it does not drain, or is empty. Before a maintenance window it works
    until that begins. A run that has not started yet counts from its assignment.
    """
    if host.state is not HostState.DRAINING and not host.drain_asked:
        return None
    window = host.drain_deadline if host.drain_accepts and not host.drain_fatal else None
    runs = [run for run_id in host.runs if (run := _run(state, run_id)) is not None]
    if not runs:
        return None if window is None or window <= now else (window, RunId(""))
    earliest = now if window is None else max(now, window)
    ends = {
        run.run: earliest if host.drain_fatal or not run.allocated else max(earliest, run.contract_ends_at)
        for run in runs
    }
    longest = max(ends, key=lambda run_id: (ends[run_id], run_id))
    return ends[longest], longest


def _run(state: State, run_id: RunId) -> RunEntry | None:
    entry = state.jobs.get(job_of(run_id))
    return None if entry is None else next((run for run in reversed(entry.runs) if run.run == run_id), None)
