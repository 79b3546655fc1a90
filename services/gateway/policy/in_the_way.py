"""P8, what a gang with a reservation still waits for: of the runs that were in its way, those that are not over."""

from services.gateway.entries import JobEntry, ReservedEntry, RunEntry
from services.gateway.state import State
from tenure.domain.ids import job_of


def still_in_the_way(reservation: ReservedEntry, state: State) -> list[tuple[JobEntry, RunEntry]]:
    """Each run that holds its GPUs still, with its job, in order of name. A run that is not known is long over."""
    found: list[tuple[JobEntry, RunEntry]] = []
    for run_id in reservation.waits_for:
        entry = state.jobs.get(job_of(run_id))
        run = entry.runs[-1] if entry is not None and entry.runs else None  # an earlier run than the latest is over
        if entry is not None and run is not None and run.run == run_id and run.ended_at is None:
            found.append((entry, run))
    return found
