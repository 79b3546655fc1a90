"""The placer on one screen: settle what the agents reported, then plan starts in fair-share order."""

from functools import partial

from services.placer.evolve import READS, evolve
from services.placer.policy import escrow
from services.placer.policy.drain import drain, next_told
from services.placer.policy.openings import Openings
from services.placer.policy.reserve import drop_broken, honour, next_due
from services.placer.policy.settle import settle
from services.placer.policy.starts import plan_starts
from services.placer.policy.weigh import prefer_cheaper, promised
from services.placer.standings import Standings
from services.placer.state import State, dump, initial, load
from tenure.domain.policy import Policy
from tenure.domain.rates import weighed
from tenure.domain.units import Millis
from tenure.events.fact import Fact, Lane
from tenure.events.leading import PlacerLeadTaken
from tenure.runtime.role import Decision, Role


def decide(state: State, now: Millis, *, policy: Policy) -> Decision:
    """Facts that are due now, and the next instant at which something may change by itself (P11).

    `policy` counts while the log has none.
    """
    policy = state.core.policy or policy
    prefer_cheaper(state, policy=policy)
    reported = list(settle(state, now))  # 1. what was reported of runs
    if reported:
        return Decision(assumes=state.position, facts=reported)  # fold that first: it frees GPUs
    state.attention.clear()
    state.release_held(now)
    if state.idle_until is not None and now < state.idle_until:
        return Decision(assumes=state.position, wake_at=state.idle_until)
    expired = list(escrow.expired(state, now))  # 2. what ran out
    if expired:
        return Decision(assumes=state.position, facts=expired)
    state.expire(now)
    broken = list(drop_broken(state, now))
    if broken:
        return Decision(assumes=state.position, facts=broken)
    openings = current_openings(state, policy)
    stops: list[Fact] = list(drain(state, now, standings=openings.standings, policy=policy))  # 3. draining hosts (P9)
    stops = stops or list(honour(state, now, standings=openings.standings, policy=policy))
    if stops:
        return Decision(assumes=state.position, facts=stops)
    planned = plan_starts(state, now, openings=openings, policy=policy)  # 4. in rank order, whole gangs (P4-P8)
    if planned:
        return Decision(assumes=state.position, facts=planned)
    state.idle_until = next_change(state, now, policy=policy)  # 5. timers, not luck (P11)
    return Decision(assumes=state.position, wake_at=state.idle_until)


def current_openings(state: State, policy: Policy) -> Openings:
    """What P5 gives to whom under the current ratios; kept while nothing moved them, here or in the log."""
    known = state.looks.openings
    if known is None or known[1] != (state.ratios, known[0].standings.version):
        openings = Openings(state.loose, current_standings(state, policy), policy)
        known = state.looks.openings = (openings, (state.ratios, openings.standings.version))
    return known[0]


def current_standings(state: State, policy: Policy) -> Standings:
    """The published ratios, plus starts and askers that the ranking does not know of yet."""
    standings, core = Standings(state.core.standings), state.core
    for made in core.commitments:
        standings.add(made.budget, weighed(made.gpu_ms, milli=policy.rate_milli(made.gpu_type)))
    for asker in sorted(core.escrows.keys() - core.reservations.keys()):
        job = core.jobs[asker]
        standings.add(job.spec.budget, promised(state, job, core.escrows[asker].placement, policy=policy))
    return standings


def next_change(state: State, now: Millis, *, policy: Policy) -> Millis:
    """The next instant at which a protection or an escrow ends or a reason may be said; far away if there is none."""
    instants = [kept.deadline for kept in state.core.escrows.values()]
    if state.waiting.lines or state.draining:
        instants += [state.loose.next_end(state.firm) or 0, state.reasons.again_at or 0]
    instants += next_due(state, now, policy=policy)
    instants += state.held_jobs.values()
    instants += next_told(state)
    return min((instant for instant in instants if instant > now), default=now + FAR_AWAY)


FAR_AWAY: Millis = 3_600_000


def role(policy: Policy) -> Role[State]:
    """The placer as the loop and the simulator run it."""
    return Role(
        name="placer",
        reads=READS,
        guard=Lane.PLACE,
        initial=initial,
        evolve=evolve,
        decide=partial(decide, policy=policy),
        dump=dump,
        load=load,
        lead=PlacerLeadTaken,
        policy=lambda state: state.core.policy,
    )
