"""The plan of one decision: in fair-share order, start what fits whole, preempt for what may, say why the rest waits.

Jobs of one shape that did not fit are not tried again in the same decision: what is usable only shrinks (P6).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.placer.policy import escrow
from services.placer.policy.assign import Ports, assign
from services.placer.policy.defer import Shape, Standing, defer, shape_of, standing_of
from services.placer.policy.pack import pack
from services.placer.policy.reserve import without_reserved
from services.placer.policy.settle import FACTS_MAX
from services.placer.policy.standings import Standings
from services.placer.policy.victims import VictimPlan, find_victims
from services.placer.policy.view import View
from services.placer.state import Job, State
from tenure.domain.job import Placement
from tenure.domain.policy import Policy
from tenure.domain.reasons import Reason, Why
from tenure.domain.units import Millis
from tenure.events.fact import Fact
from tenure.events.placing import PlacementDeferred, RunPreemptionRequested

STARTS_MAX = 500
"""Starts in one decision; the next follows at once. Bounds the time between reading the log and writing it."""


@dataclass(slots=True)
class Plan:
    """What one decision starts and stops. `asked`: a victim set was told to end in it; `say_again_at`:
    when a changed reason may be said that would be too soon now."""

    view: View
    standings: Standings
    facts: list[Fact] = field(default_factory=list)
    started: int = 0
    unfit: set[Shape] = field(default_factory=set)
    no_victims: dict[Standing, Mapping[Reason, int]] = field(default_factory=dict)
    reasons: dict[Standing, Why] = field(default_factory=dict)
    waited_for: set[str] = field(default_factory=set)
    say_again_at: Millis | None = None
    asked: bool = False


def plan_starts(state: State, now: Millis, *, standings: Standings, policy: Policy) -> Plan:
    """Starts and preemptions in rank order, whole gangs only (P4, P6). At most one victim set is asked for at a time.

    One victim set a decision keeps the next one honest: it sees the runs that were told, and their GPUs in escrow.
    """
    plan = Plan(view=View.of(state), standings=standings, waited_for=escrow.askers_waited_for(state))
    ports = Ports(state)
    for freed in escrow.ready(state):
        _start(plan, state, state.core.jobs[freed.job], freed.placement, now, ports, Reason.START_ESCROW_COMPLETE)
    for rank, job_id in enumerate(state.core.order, start=1):
        job = state.core.jobs.get(job_id)
        if job is None or not job.queued or job.cancelled_by is not None or job_id in state.core.escrows:
            continue
        if plan.started >= STARTS_MAX or len(plan.facts) >= FACTS_MAX:
            break
        placement = _fit(plan, state, job, now)
        if placement is not None:
            reason = Reason.START_IN_ORDER if job.spec.allocated else Reason.START_UNALLOCATED_FILL
            _start(plan, state, job, placement, now, ports, reason, rank=rank)
            continue
        victims = _victims(plan, state, job, now, policy=policy)
        if victims is not None:
            _preempt(plan, job, victims, now, policy=policy)
            continue
        kept = plan.no_victims.get(standing_of(job), {})
        waiting = defer(state, plan.view, job, now, kept=kept, reasons=plan.reasons)
        if isinstance(waiting, PlacementDeferred):
            plan.facts.append(waiting)
        elif waiting is not None:
            plan.say_again_at = min(waiting, plan.say_again_at or waiting)
    return plan


def _fit(plan: Plan, state: State, job: Job, now: Millis) -> Placement | None:
    spec = job.spec
    shape = shape_of(spec)
    if shape in plan.unfit:
        return None
    placement = pack(without_reserved(plan.view, state, job=job.job, spec=spec, now=now), spec)
    if placement is None and pack(plan.view, spec) is None:
        plan.unfit.add(shape)
    return placement


def _start(
    plan: Plan,
    state: State,
    job: Job,
    placement: Placement,
    now: Millis,
    ports: Ports,
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
    plan.facts.append(assign(state, job, placement, now, port=ports.take(), why=why))
    plan.started += 1
    plan.view.take(placement)
    if job.spec.allocated and reason is not Reason.START_ESCROW_COMPLETE:
        plan.standings.add(job.spec.budget, job.spec.commitment_gpu_ms)


def _victims(plan: Plan, state: State, job: Job, now: Millis, *, policy: Policy) -> VictimPlan | None:
    if plan.asked or job.job in plan.waited_for or standing_of(job) in plan.no_victims:
        return None
    usable = without_reserved(plan.view, state, job=job.job, spec=job.spec, now=now)
    found = find_victims(state, usable, job, now, standings=plan.standings, policy=policy)
    if found.plan is None:
        plan.no_victims[standing_of(job)] = found.kept
    return found.plan


def _preempt(plan: Plan, job: Job, found: VictimPlan, now: Millis, *, policy: Policy) -> None:
    """Tell every victim, and hold the whole placement for the asker (P7)."""
    grace_ms = max(victim.job.spec.grace_ms for victim in found.victims)
    until = escrow.deadline(grace_ms, now, policy=policy)
    for victim in found.victims:
        plan.facts.append(
            RunPreemptionRequested(
                at=now,
                run=victim.run.run,
                job=victim.run.job,
                by=job.job,
                why=victim.verdict.why,
                escrow=found.placement,
                deadline=until,
            )
        )
    numbers = {"gpus_asked": job.spec.gpus, "victims": len(found.victims), "deadline_ms": until}
    why = Why(rule="P7", reason=Reason.DEFER_VICTIMS_STOPPING, numbers=numbers)
    plan.facts.append(PlacementDeferred(at=now, job=job.job, why=why))
    plan.asked = True
    plan.view.take(found.placement)
    plan.standings.add(job.spec.budget, job.spec.commitment_gpu_ms)
