"""The baseline's placer on one screen: settle what the agents reported, then serve the queue by the rules B1-B7."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import msgspec

from services.placer.policy import escrow
from services.placer.policy.settle import FACTS_MAX, settle
from simulator.baseline.drain import drain
from simulator.baseline.evolve import READS, evolve
from simulator.baseline.starts import plan_starts
from simulator.baseline.state import Planned, State, dump, initial, load
from tenure.domain.ids import FactId
from tenure.domain.policy import Policy
from tenure.domain.units import Millis
from tenure.events.fact import Fact, Lane
from tenure.events.placing import RunStarted
from tenure.runtime.role import Decision, Role

NAME = "placer"


def decide(state: State, now: Millis, *, policy: Policy) -> Decision:
    """Facts that are due now. Only an escrow's or a hold's end changes anything by itself: no protection has an end."""
    placed = state.placed
    state.let_go(now)
    instants = [*state.held.values(), *(kept.deadline for kept in placed.core.escrows.values())]
    wake_at = min(instants, default=None)
    state.look_again()
    if not state.changed and (wake_at is None or now < wake_at):
        return Decision(assumes=state.position, wake_at=wake_at)
    placed.attention = dict.fromkeys(sorted(placed.attention))  # a restart forgets which of them changed first
    due: list[Fact] = [*protect(state, settle(placed, now)), *escrow.expired(placed, now)]  # 1. what was reported
    if due:
        if not state.roomier and not state.queue.fresh and all(isinstance(fact, RunStarted) for fact in due):
            state.looked(planned(state, due))  # nobody waits for that
        return Decision(assumes=state.position, facts=due)  # fold that first: it frees GPUs
    placed.attention.clear()
    stops = list(drain(state, now))  # 2. draining hosts
    if stops:
        return Decision(assumes=state.position, facts=stops)
    facts = plan_starts(state, now, policy=policy)  # 3. in order, whole gangs
    if facts:
        if len(facts) < FACTS_MAX:
            state.looked(planned(state, facts))
        return Decision(assumes=state.position, facts=facts)
    state.looked(None)
    return Decision(assumes=state.position, wake_at=wake_at)


def planned(state: State, facts: Sequence[Fact]) -> Planned:
    """To look again if these facts are not written: the last one's id is as the loop stamps it."""
    return Planned(FactId(f"{NAME}-{state.position}-{len(facts) - 1}"), state.roomier, state.queue.fresh)


def protect(state: State, facts: Iterable[Fact]) -> Iterator[Fact]:
    """The same facts; a run at risk starts with no protection ahead of it, whatever its contract asks for (B4)."""
    for fact in facts:
        if isinstance(fact, RunStarted) and fact.run in state.at_risk:
            yield msgspec.structs.replace(fact, protected_until=fact.at)
        else:
            yield fact


def role(policy: Policy) -> Role[State]:
    """The baseline's placer, in the place of the service's."""
    return Role(
        name=NAME,
        reads=READS,
        guard=Lane.PLACE,
        initial=initial,
        evolve=evolve,
        decide=partial(decide, policy=policy),
        dump=dump,
        load=load,
    )
