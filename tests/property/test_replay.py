"""S17: whom a job may end can be worked out again from the log alone: from the numbers of the decision, and by deciding
anew from what had been folded."""

from typing import Any

from hypothesis import given, settings

from services.placer.decider import role
from tenure.domain.ids import Position
from tenure.domain.policy import Policy
from tenure.domain.reasons import Reason, Why
from tenure.events.fact import Recorded
from tenure.events.placing import RunPreemptionRequested
from tenure.runtime.options import build_policy
from tests.property.test_world import QUICK, scripts
from tests.scenario.script import script_to_world


@settings(max_examples=40, deadline=None, phases=QUICK)
@given(scripts())
def test_the_numbers_of_a_preemption_say_that_it_was_right(script: dict[str, Any]) -> None:
    for entry in script_to_world(script).recorded:
        if isinstance(entry.fact, RunPreemptionRequested):
            assert holds(entry.fact.why), entry.fact


def holds(why: Why) -> bool:
    """Whether the rule follows from the numbers, each of which has to be there."""
    numbers: dict[str, Any] = dict(why.numbers)
    if why.reason in (Reason.DISRUPT_UNALLOCATED, Reason.DISRUPT_HOST_FATAL):
        return True
    if numbers["now_ms"] < numbers["protected_until_ms"]:
        return False
    if why.reason is Reason.DISRUPT_LOWER_RATIO:
        return float(numbers["ratio"]) + numbers["margin"] < float(numbers["victim_ratio"])
    if why.reason is Reason.DISRUPT_HIGHER_PRIORITY:
        return bool(numbers["priority"] > numbers["victim_priority"])
    return why.reason in (Reason.DISRUPT_PROMISED, Reason.DISRUPT_HOST_DRAINS)


@settings(max_examples=25, deadline=None, phases=QUICK)
@given(scripts())
def test_each_preemption_is_decided_again_from_the_log(script: dict[str, Any]) -> None:
    recorded = script_to_world(script).recorded
    policy = build_policy(script["given"]["policy"])
    told = [entry for entry in recorded if isinstance(entry.fact, RunPreemptionRequested)]
    for entry in told[:12]:
        again = decided_again(recorded, entry, policy=policy)
        assert (entry.fact.run, entry.fact.by, entry.fact.why) in again  # type: ignore[attr-defined]


def decided_again(recorded: list[Recorded], entry: Recorded, *, policy: Policy) -> list[tuple[str, str, Why]]:
    """What a placer that has folded what that one had says at that instant."""
    assumed = Position(int(entry.fact.id.split("-")[1]))
    placer = role(policy)
    state = placer.initial()
    for earlier in recorded:
        if earlier.position <= assumed and type(earlier.fact) in placer.reads:
            placer.evolve(state, earlier)
    facts = placer.decide(state, entry.fact.at).facts
    return [(fact.run, fact.by, fact.why) for fact in facts if isinstance(fact, RunPreemptionRequested)]
