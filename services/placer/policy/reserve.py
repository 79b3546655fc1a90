"""P8 in the placer: gangs that are blocked get a timetable, others keep out of its way, and it is kept.

Reservations are facts (`ReservationMade`): hosts, latest start, the runs in the way. Until then reserved hosts may be
used by unallocated runs and by contracts that end in time. Each run on them is told to end so that its grace period is
over at the latest start; by what right was decided when the reservation was made, and is not asked again.
"""

from collections import Counter
from collections.abc import Collection, Container, Iterator

from services.placer.alike import Line
from services.placer.core import LOOK_AGAIN_AFTER, Job, Reservation, Run
from services.placer.policy import escrow
from services.placer.policy.defer import kept_runs, reason_to_wait
from services.placer.policy.may_disrupt import Promised, may_disrupt
from services.placer.policy.outlook import Outlook
from services.placer.policy.timetable import Timetable, find_timetable
from services.placer.standings import Standings
from services.placer.state import State
from tenure.domain.host import HostState
from tenure.domain.ids import HostId, JobId, RunId
from tenure.domain.job import JobSpec, only_host
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

WORTH_IT: Millis = 5 * MINUTE
"""A gang gets another timetable if it starts by so much earlier."""


def forbidden(state: State, *, job: JobId, spec: JobSpec, now: Millis) -> dict[HostId, int]:
    """By host what the job may not use: reserved GPUs on which its contract would not be over in time.

    An unallocated job has none; but where its run would be told to end at once it is not started. Once the first run
    was told to end for the gang, all its hosts are held for it alone (P7).
    """
    masks: dict[HostId, int] = {}
    ends = now + max(spec.min_runtime_ms, 1) + spec.grace_ms
    for reservation in state.core.reservations.values():
        shut = ends > reservation.latest_start or reservation.job in state.core.escrows
        if reservation.job != job and shut:
            for host, mask in state.reserved[reservation.job].items():
                masks[host] = masks.get(host, 0) | mask
    return masks


def reserve(state: State, now: Millis, *, standings: Standings, policy: Policy) -> Iterator[Fact]:
    """Timetables for the first blocked gangs in the order that have none, as deep in each pool as the policy says. One
    a decision: the next one sees its hosts taken and its commitment counted. Then better ones, if there are."""
    reservations, line_of = state.core.reservations, state.waiting.line_of
    gangs = dict.fromkeys(_gangs(state, among=_not_full(state, depth=policy.reservation_depth)))
    outlook = Outlook(state, now, standings=standings, policy=policy)
    for job_id in state.core.order if gangs else ():
        line = line_of.get(job_id)
        if line is None or line not in gangs or job_id in reservations or now < _look_at(line, job_id):
            continue
        job = state.core.jobs[job_id]
        table = find_timetable(state, job, now, outlook=outlook)
        if table is not None and table.latest_start <= now:
            continue  # it can be had in the ordinary way
        if table is None:
            kept = kept_runs(state, job, standings=standings, policy=policy)
            numbers = reason_to_wait(state, line.alike, kept=kept).numbers
            why = Why(rule="P8", reason=Reason.DEFER_NO_TIMETABLE, numbers=numbers)
            yield PlacementDeferred(at=now, job=job_id, why=why)
            return
        yield _made(job, table, now)
        return
    if state.core.new_round:
        yield from _better(state, now, outlook=outlook)


def _better(state: State, now: Millis, *, outlook: Outlook) -> Iterator[ReservationMade]:
    """The first, in order of the latest starts, that can clearly be had earlier by now: something ended early."""
    for reservation in sorted(state.core.reservations.values(), key=lambda made: (made.latest_start, made.job)):
        before = reservation.latest_start - WORTH_IT
        if before <= now or reservation.job in state.core.escrows:
            continue
        job = state.core.jobs[reservation.job]
        table = find_timetable(state, job, now, outlook=outlook, before=before)
        if table is not None and table.latest_start > now:  # else as above
            yield _made(job, table, now)
            return


def _made(job: Job, table: Timetable, now: Millis) -> ReservationMade:
    numbers = {
        "gpus": job.spec.gpus,
        "hosts": len({place.host for place in table.placement}),
        "runs_in_the_way": len(table.waits_for),
        "waited_ms": now - job.submitted_at,
    }
    return ReservationMade(
        at=now,
        job=job.job,
        placement=table.placement,
        latest_start=table.latest_start,
        waits_for=table.waits_for,
        why=Why(rule="P8", reason=Reason.RESERVE_EARLIEST, numbers=numbers),
    )


def _not_full(state: State, *, depth: int) -> list[tuple[str, str]]:
    """The pools (cluster and type) on which fewer gangs have a reservation than may."""
    hosts = (state.core.hosts[made.placement[0].host].spec for made in state.core.reservations.values())
    held = Counter((spec.cluster, spec.gpu_type) for spec in hosts)
    return [pool for pool in state.layouts.largest_hosts if held[pool] < depth]


def _gangs(state: State, *, among: Collection[tuple[str, str]] | None = None) -> Iterator[Line]:
    """The classes of waiting allocated jobs that need several hosts, of those that may lie in one of these pools."""
    if among is not None and not among:
        return
    for (wanted, replicas, gpus, *_), lines in state.waiting.of_shape.items():
        lies = among is None or any(wanted.accepts(pool) for pool in among)
        if lies and replicas * gpus > state.layouts.largest_host(wanted):
            yield from (line for line in lines if line.alike.min_runtime_ms)


def _look_at(line: Line, job: JobId) -> Millis:
    """When to look for a timetable for the job (again).

    Who was never told that there is none is looked at when it comes. After that a class is looked at by one of it:
    where there is none for one there is none for the others.
    """
    return max(line.told.values()) + LOOK_AGAIN_AFTER if job in line.told else 0


def drop_broken(state: State, now: Millis) -> Iterator[ReservationDropped]:
    """Reservations of which a host cannot be had any more."""
    for job_id in sorted(state.core.reservations):
        gone = [host for host in state.reserved[job_id] if state.core.hosts[host].state is not HostState.HEALTHY]
        if gone:
            why = Why(rule="P8", reason=Reason.RESERVE_HOST_GONE, numbers={"host": min(gone), "hosts_gone": len(gone)})
            yield ReservationDropped(at=now, job=job_id, why=why)


def honour(state: State, now: Millis, *, standings: Standings, policy: Policy) -> Iterator[RunPreemptionRequested]:
    """Tell the runs on reserved hosts to end, each its grace period before the latest start, and once."""
    told: dict[RunId, None] = {}
    for job_id in sorted(state.core.reservations):
        reservation = state.core.reservations[job_id]
        if now < nothing_due_before(state, reservation, policy) or escrow.keeps_others(state, job_id):
            continue
        for run in _on(state, reservation):
            victim = state.core.jobs[run.job]
            if run.run in told or now < due(reservation, run, victim):
                continue
            by = Promised(job=job_id, latest_start=reservation.latest_start)
            verdict = may_disrupt(run, victim, by, now, standings=standings, policy=policy)
            if verdict.allowed:
                told[run.run] = None
                yield RunPreemptionRequested(
                    at=now,
                    run=run.run,
                    job=run.job,
                    only_on=only_host(run.placement),
                    by=job_id,
                    why=verdict.why,
                    escrow=reservation.placement,
                    deadline=escrow.deadline(longest_grace(state, policy), reservation.latest_start, policy=policy),
                )


def next_due(state: State, now: Millis, *, policy: Policy) -> Iterator[Millis]:
    """When runs on reserved hosts are to be told, the latest starts, and when to look again for a timetable."""
    for line in _gangs(state):
        told = next((job for job in line.told if job not in state.core.reservations), None)
        if told is not None:
            yield _look_at(line, told)
    for reservation in state.core.reservations.values():
        first = nothing_due_before(state, reservation, policy)
        if now < first:
            yield first
            continue
        yield reservation.latest_start
        for run in _on(state, reservation):
            yield due(reservation, run, state.core.jobs[run.job])


def nothing_due_before(state: State, reservation: Reservation, policy: Policy) -> Millis:
    """Whatever runs on its hosts, none has to be told earlier: nobody has a longer grace period."""
    return reservation.latest_start - longest_grace(state, policy)


def longest_grace(state: State, policy: Policy) -> Millis:
    """The longest grace that a contract can have: it may be older than the policy."""
    return max(policy.longest_grace_ms, state.core.grace_most_ms)


def due(reservation: Reservation, run: Run, victim: Job) -> Millis:
    """When the run must be told so that it is gone at the latest start; never inside its protection (I3)."""
    when = reservation.latest_start - victim.spec.grace_ms
    return max(when, run.protected_until or 0) if victim.spec.allocated else when


def first_due(state: State, reservation: Reservation, *, but: Container[RunId]) -> Millis:
    """When the first run on its hosts, but for these, must be told; the latest start if there is none."""
    others = [run for run in _on(state, reservation) if run.run not in but]
    return min([due(reservation, run, state.core.jobs[run.job]) for run in others], default=reservation.latest_start)


def _on(state: State, reservation: Reservation) -> list[Run]:
    """Runs that hold GPUs of the reservation and were not told to end, in order of name."""
    found: dict[RunId, None] = {}
    for host, mask in state.reserved[reservation.job].items():
        for run in state.runs_on.get(host, ()):
            if state.masks[run][host] & mask and state.core.runs[run].stop is None:
                found[run] = None
    return [state.core.runs[run] for run in sorted(found)]
