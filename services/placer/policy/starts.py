"""The plan of one decision: in fair-share order, start what fits whole, preempt for what may, say why the rest waits.

Where one job of a class cannot start, the next cannot either: what is usable only shrinks in a decision (P6).
"""

from dataclasses import dataclass, field
from itertools import islice

from services.placer.alike import Line
from services.placer.core import Job, masks_of
from services.placer.policy import escrow
from services.placer.policy.assign import Ports, assign
from services.placer.policy.defer import tell
from services.placer.policy.drain import fit_before_window, with_windows
from services.placer.policy.hope import hopeful, within_reach
from services.placer.policy.openings import Openings
from services.placer.policy.outside import Outside
from services.placer.policy.pack import pack
from services.placer.policy.reserve import first_due, forbidden, reserve
from services.placer.policy.settle import FACTS_MAX
from services.placer.policy.victims import VictimPlan, find_victims
from services.placer.policy.weigh import promised
from services.placer.room import Room
from services.placer.standings import Standings
from services.placer.state import State
from tenure.domain.ids import HostId
from tenure.domain.job import DEFAULT_GRACE, Placement, only_host
from tenure.domain.policy import Policy
from tenure.domain.reasons import Reason, Why
from tenure.domain.units import Millis
from tenure.events.fact import Fact
from tenure.events.placing import PlacementDeferred, RunAssigned, RunPreemptionRequested

STARTS_MAX = 500
"""Starts in one decision; the next follows at once. Bounds the time between reading the log and writing it."""


@dataclass(slots=True)
class Plan:
    """What one decision starts and stops. `moved`: somebody was promised GPUs in it, and the ratios are not those that
    it began with."""

    openings: Openings
    ports: Ports
    outside: Outside
    facts: list[Fact] = field(default_factory=list)
    started: int = 0
    moved: bool = False

    @property
    def standings(self) -> Standings:
        """The ratios with what was promised in this decision."""
        return self.openings.standings

    def promise(self, state: State, job: Job, placement: Placement) -> None:
        """Count what the job is promised on these GPUs in the ratios."""
        self.standings.add(job.spec.budget, promised(state, job, placement, policy=self.openings.policy))


def plan_starts(state: State, now: Millis, *, openings: Openings, policy: Policy) -> list[Fact]:
    """Starts and preemptions in rank order, whole gangs only (P4, P6). At most one victim set is asked for at a time.

    One victim set a decision, and none after a start, keeps the next one honest: it sees the runs that were told, their
    GPUs in escrow, and whoever has got a right or lost one.
    When nothing starts, a timetable for a gang that has none (P8), else the reasons that were not said yet.
    """
    plan, standings = Plan(openings, Ports(state), Outside(state, now)), openings.standings
    with state.room.trial(), state.windows.trial():
        for freed in islice(escrow.ready(state), STARTS_MAX):
            _start(plan, state, state.core.jobs[freed.job], freed.placement, now, Reason.START_ESCROW_COMPLETE)
        _serve(plan, state, now, policy=policy)
        _serve_before_windows(plan, state, now)
    if not plan.facts:
        state.looks.barren = (state.grown, state.ratios)
    return (
        plan.facts
        or list(reserve(state, now, standings=standings, policy=policy))
        or [*tell(state, now, standings=standings, policy=policy)]
    )


def could_start(state: State, job: Job, now: Millis, *, openings: Openings, policy: Policy) -> Millis | None:
    """When the job would start if it were asked now, whatever its turn. The state is as it was afterwards.

    Now, where it fits; when the last of its victims has had its grace; None if it would have to wait.
    """
    plan = Plan(openings, Ports(state), Outside(state, now))
    if _fit(plan, state, job) is not None:
        return now
    found = _victims(plan, state, job, now, policy=policy) if job.spec.allocated else None
    return None if found is None else now + _longest_grace(found)


def _serve(plan: Plan, state: State, now: Millis, *, policy: Policy) -> None:
    """Go through the order, past everybody whose class cannot have anything.

    Who has a reservation is asked even where another of the class could not start: only to that one its hosts are shut.
    """
    hope = hopeful(state, plan.openings)
    line_of, free, victims = state.waiting.line_of, hope.free, hope.victims
    if not free and not victims:
        return
    promised = {job for job in state.core.reservations if line_of.get(job) in free}
    for rank, job_id in enumerate(state.core.order, start=1):
        line = line_of.get(job_id)
        hopes = line in free or line in victims
        if line is None or not (hopes or job_id in promised):
            continue
        if plan.started >= STARTS_MAX or len(plan.facts) >= FACTS_MAX:
            return
        job = state.core.jobs[job_id]
        promised.discard(job_id)
        placement = None if line in victims else _fit(plan, state, job)  # only such are there that do not fit
        if placement is not None:
            reason = Reason.START_IN_ORDER if job.spec.allocated else Reason.START_UNALLOCATED_FILL
            _start(plan, state, job, placement, now, reason, rank=rank)
            if not state.room.free:
                free.clear()
                promised.clear()
                if not victims:
                    return
            continue
        free.pop(line, None)
        if hopes and job.spec.allocated and not plan.moved and job_id not in state.waited_for:
            found = _victims(plan, state, job, now, policy=policy)
            if found is not None:
                _preempt(plan, state, job, found, now, policy=policy)
                victims.clear()
            else:
                victims.pop(line, None)
                if not plan.facts:  # else others took some of it in this decision
                    line.barren = within_reach(state, plan.openings, line)
        if not free and not victims and not promised:
            return


def _serve_before_windows(plan: Plan, state: State, now: Millis) -> None:
    """Who found nothing elsewhere may go where maintenance comes, if its contract ends before (P9)."""
    if not state.windows.free:
        return
    served = {fact.job for fact in plan.facts if isinstance(fact, RunAssigned | PlacementDeferred)}
    hopeless: dict[Line, None] = {}
    both: Room | None = None
    """For gangs, which may lie on hosts of either kind; made when the first one asks."""
    for rank, job_id in enumerate(state.core.order, start=1):
        line = state.waiting.line_of.get(job_id)
        if line is None or line in hopeless or job_id in served:
            continue
        if plan.started >= STARTS_MAX or len(plan.facts) >= FACTS_MAX:
            return
        job = state.core.jobs[job_id]
        if job.spec.replicas > 1 and both is None:
            both = with_windows(state)
        room = both if job.spec.replicas > 1 and both is not None else state.windows
        placement = fit_before_window(room, state, job.spec, now, kept=plan.outside.blocked(job))
        if placement is None:
            hopeless[line] = None
        else:
            reason = Reason.START_IN_ORDER if job.spec.allocated else Reason.START_UNALLOCATED_FILL
            _start(plan, state, job, placement, now, reason, rank=rank)
            if both is not None:
                both.take(placement)


def _fit(plan: Plan, state: State, job: Job) -> Placement | None:
    """Where the job fits whole, outside the reservations that its contract would be in the way of (P8)."""
    spec = job.spec
    if not state.room.fits(spec.wanted, spec.replicas, spec.gpus_per_replica, spec.topology, spec.choice):
        return None
    if not plan.outside.may_fit(job):
        return None
    kept = plan.outside.blocked(job)
    if not kept:
        return pack(state.room, spec)
    here = {host: kept[host] for pool in state.room.pools.values() for host in pool.not_full if host in kept}
    with state.room.trial():
        state.room.block(here)
        return pack(state.room, spec)


def _start(
    plan: Plan,
    state: State,
    job: Job,
    placement: Placement,
    now: Millis,
    reason: Reason,
    *,
    rank: int | None = None,
) -> None:
    ratio = plan.standings.ratio(job.spec.budget)
    numbers = {
        "rank": rank,
        "ratio": ratio if ratio != float("inf") else None,
        "gpus": job.spec.gpus,
        "hosts": len({place.host for place in placement}),
        "waited_ms": now - job.submitted_at,
    }
    rule = "P7" if reason is Reason.START_ESCROW_COMPLETE else "P4"
    why = Why(rule=rule, reason=reason, numbers=numbers)
    plan.facts.append(assign(state, job, placement, now, port=plan.ports.take(), why=why))
    plan.started += 1
    state.room.take(placement)
    state.windows.take(placement)
    if job.spec.allocated and reason is not Reason.START_ESCROW_COMPLETE:
        plan.promise(state, job, placement)
        plan.moved = True


def _held_of(state: State, placement: Placement) -> dict[HostId, int]:
    """By host how many GPUs of the placement runs hold."""
    return {host: (mask & ~state.free(host)).bit_count() for host, mask in masks_of(placement).items()}


def _victims(plan: Plan, state: State, job: Job, now: Millis, *, policy: Policy) -> VictimPlan | None:
    """Whom to tell, so that what was promised is kept although the asker starts only when the slowest of them is gone.

    One that has a reservation has its victims, or has given them up, before anybody else must be told for it; and where
    the asker uses reserved hosts its contract is over in time, but for the usual grace of its victims (P8).
    """
    given = plan.openings.of(job.spec.budget, job.spec.priority)
    if not given or not plan.outside.may_be_had(job, given):
        return None
    own = state.core.reservations.get(job.job)
    kept, waits = plan.outside.blocked(job), 0
    while True:
        found = find_victims(state, job, now, blocked=kept, openings=plan.openings, policy=policy)
        if found is None or not state.core.reservations:
            return found
        grace_ms = _longest_grace(found)
        if own is not None:
            told = [victim.run.run for victim in found.victims]
            if escrow.deadline(grace_ms, now, policy=policy) > first_due(state, own, but=told):
                return None
        slow = grace_ms - DEFAULT_GRACE
        if slow <= waits:
            return found
        kept = forbidden(state, job=job.job, spec=job.spec, now=now + slow)
        if not any(mask & kept.get(host, 0) for host, mask in masks_of(found.placement).items()):
            return found
        waits = slow


def _longest_grace(found: VictimPlan) -> Millis:
    return max(victim.job.spec.grace_ms for victim in found.victims)


def _preempt(plan: Plan, state: State, job: Job, found: VictimPlan, now: Millis, *, policy: Policy) -> None:
    """Tell every victim, and hold the whole placement for the asker (P7)."""
    until = escrow.deadline(_longest_grace(found), now, policy=policy)
    for victim in found.victims:
        plan.facts.append(
            RunPreemptionRequested(
                at=now,
                run=victim.run.run,
                job=victim.run.job,
                only_on=only_host(victim.run.placement),
                by=job.job,
                why=victim.verdict.why,
                escrow=found.placement,
                deadline=until,
            )
        )
    short = sum(_held_of(state, found.placement).values())
    numbers = {
        "gpus_asked": job.spec.gpus,
        "gpus_short": short,
        "gpus_free": job.spec.gpus - short,
        "victims": len(found.victims),
        "deadline_ms": until,
        **found.looked,
    }
    why = Why(rule="P7", reason=Reason.DEFER_VICTIMS_STOPPING, numbers=numbers)
    plan.facts.append(PlacementDeferred(at=now, job=job.job, why=why))
    plan.moved = True
    state.room.take(found.placement)
    plan.promise(state, job, found.placement)
