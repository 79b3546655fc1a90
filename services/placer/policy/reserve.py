"""P8 in the placer: gangs that are blocked get a timetable, others keep out of its way, and it is kept.

Reservations are facts (`ReservationMade`): hosts, latest start, the runs in the way. Until then reserved hosts may be
used by unallocated runs and by contracts that end in time. Each run on them is told to end so that its grace period is
over at the latest start; by what right was decided when the reservation was made, and is not asked again.
"""

from collections.abc import Iterator

from services.placer.core import Job, Reservation, Run
from services.placer.policy import escrow
from services.placer.policy.defer import kept_runs, reason_to_wait
from services.placer.policy.may_disrupt import Promised, may_disrupt
from services.placer.policy.timetable import find_timetable
from services.placer.standings import Standings
from services.placer.state import State
from tenure.domain.host import HostState
from tenure.domain.ids import HostId, JobId, RunId
from tenure.domain.job import JobSpec
from tenure.domain.policy import Policy
from tenure.domain.reasons import Reason, Why
from tenure.domain.units import MINUTE, Millis
from tenure.events.fact import Fact
from tenure.events.placing import (
    PlacementDeferred,
    ReservationDropped,
    ReservationMade,
    RunPreemptionRequested,
)

LOOK_AGAIN_AFTER: Millis = 10 * MINUTE
"""A gang for which there was no timetable is looked at again after so long."""


def forbidden(state: State, *, job: JobId, spec: JobSpec, now: Millis) -> dict[HostId, int]:
    """By host what the job may not use: reserved GPUs on which its contract would not be over in time."""
    if not state.core.reservations or not spec.allocated:
        return {}
    masks: dict[HostId, int] = {}
    ends = now + spec.min_runtime_ms + spec.grace_ms
    for reservation in state.core.reservations.values():
        if reservation.job != job and ends > reservation.latest_start:
            for host, mask in state.reserved[reservation.job].items():
                masks[host] = masks.get(host, 0) | mask
    return masks


def reserve(state: State, now: Millis, *, standings: Standings, policy: Policy) -> Iterator[Fact]:
    """Timetables for the first blocked gangs in the order that have none, as deep as the policy says. One a decision:
    the next one sees its hosts taken and its commitment counted."""
    depth = policy.reservation_depth - len(state.core.reservations)
    if depth <= 0 or not any(replicas * gpus > state.largest_host for _, replicas, gpus in state.waiting.of_shape):
        return
    for job_id in state.core.order:
        line = state.waiting.line_of.get(job_id)
        if line is None or not line.alike.min_runtime_ms or line.alike.gpus <= state.largest_host:
            continue
        if job_id in state.core.reservations:
            continue
        said = state.core.said.get(job_id)
        if said is not None and said.reason is Reason.DEFER_NO_TIMETABLE and now < said.at + LOOK_AGAIN_AFTER:
            continue
        spec = state.core.jobs[job_id].spec
        table = find_timetable(state, spec, now, standings=standings, policy=policy)
        if table is not None and table.latest_start <= now:
            continue  # it can be had in the ordinary way
        if table is None:
            kept = kept_runs(state, state.core.jobs[job_id], standings=standings, policy=policy)
            numbers = reason_to_wait(state, line.alike, kept=kept).numbers
            why = Why(rule="P8", reason=Reason.DEFER_NO_TIMETABLE, numbers=numbers)
            yield PlacementDeferred(at=now, job=job_id, why=why)
            return
        numbers = {
            "gpus": spec.gpus,
            "hosts": len({place.host for place in table.placement}),
            "runs_in_the_way": len(table.waits_for),
            "waited_ms": now - state.core.jobs[job_id].submitted_at,
        }
        why = Why(rule="P8", reason=Reason.RESERVE_EARLIEST, numbers=numbers)
        yield ReservationMade(
            at=now,
            job=job_id,
            placement=table.placement,
            latest_start=table.latest_start,
            waits_for=table.waits_for,
            why=why,
        )
        return


def drop_broken(state: State, now: Millis) -> Iterator[ReservationDropped]:
    """Reservations of which a host cannot be had any more."""
    for job_id in sorted(state.core.reservations):
        gone = [host for host in state.reserved[job_id] if state.core.hosts[host].state is not HostState.HEALTHY]
        if gone:
            why = Why(rule="P8", reason=Reason.RESERVE_HOST_GONE, numbers={"host": min(gone), "hosts_gone": len(gone)})
            yield ReservationDropped(at=now, job=job_id, why=why)


def honour(state: State, now: Millis, *, standings: Standings, policy: Policy) -> Iterator[RunPreemptionRequested]:
    """Tell the runs on reserved hosts to end, each its grace period before the latest start."""
    for job_id in sorted(state.core.reservations):
        reservation = state.core.reservations[job_id]
        for run in _on(state, reservation):
            victim = state.core.jobs[run.job]
            if now < due(reservation, run, victim):
                continue
            by = Promised(job=job_id, latest_start=reservation.latest_start)
            verdict = may_disrupt(run, victim, by, now, standings=standings, policy=policy)
            if verdict.allowed:
                yield RunPreemptionRequested(
                    at=now,
                    run=run.run,
                    job=run.job,
                    by=job_id,
                    why=verdict.why,
                    escrow=reservation.placement,
                    deadline=escrow.deadline(policy.grace_max_ms, reservation.latest_start, policy=policy),
                )


def next_due(state: State) -> Iterator[Millis]:
    """When runs on reserved hosts are to be told, and the latest starts."""
    for reservation in state.core.reservations.values():
        yield reservation.latest_start
        for run in _on(state, reservation):
            yield due(reservation, run, state.core.jobs[run.job])


def due(reservation: Reservation, run: Run, victim: Job) -> Millis:
    """When the run must be told so that it is gone at the latest start; never inside its protection (I3)."""
    when = reservation.latest_start - victim.spec.grace_ms
    return max(when, run.protected_until or 0) if victim.spec.allocated else when


def _on(state: State, reservation: Reservation) -> list[Run]:
    """Runs that hold GPUs of the reservation and were not told to end, in order of name."""
    found: dict[RunId, None] = {}
    for host, mask in state.reserved[reservation.job].items():
        for run in state.runs_on.get(host, ()):
            if state.masks[run][host] & mask and state.core.runs[run].stop is None:
                found[run] = None
    return [state.core.runs[run] for run in sorted(found)]
