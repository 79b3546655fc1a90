"""I6 of the placer, decision by decision, in whole worlds: one that was just restored from a snapshot decides what the
one decides that has run all along, with all that it keeps at hand; and what is held for askers is never lost.

Not compared: when a reason to wait is said again, and when a better timetable is looked for. Both are every so often.
The worlds are the same each time: where only victims with a long grace period stand between a job and reserved hosts,
the search gives up early (see `starts._victims`), and a restored placer may try once more.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from services.placer.core import masks_of
from services.placer.state import State
from tenure.domain.ids import HostId
from tenure.domain.reasons import Reason
from tenure.domain.units import SECOND, Millis
from tenure.events.fact import Fact
from tenure.events.placing import PlacementDeferred, ReservationMade
from tenure.runtime.role import Decision, Role
from tests.property.test_promises import worlds
from tests.property.test_world import QUICK, scripts
from tests.scenario.script import build, script_to_world

LOOKS = st.lists(st.integers(0, 3 * 60 * 60), max_size=40)
"""Seconds at which somebody looks what a restored placer would do."""
SAYS_AGAIN = (
    Reason.DEFER_NO_ROOM,
    Reason.DEFER_FRAGMENTED,
    Reason.DEFER_NO_BLOCK,
    Reason.DEFER_RESERVED,
    Reason.DEFER_NO_SUCH_HOSTS,
)


@settings(max_examples=20, deadline=None, phases=QUICK, derandomize=True)
@given(worlds() | scripts(), LOOKS)
def test_a_restored_placer_decides_the_same(script: dict[str, Any], looks: list[int]) -> None:
    world = build(script)
    placer = world.actor("placer")
    role: Role[State] = placer.role

    def decide(state: State, now: Millis) -> Decision:
        check_held(state)
        restored = role.load(role.dump(state))
        decision = role.decide(state, now)
        assert firm(decision.facts, state) == firm(role.decide(restored, now).facts, state)
        return decision

    def look(now: Millis) -> None:
        """P11: nothing can be done at a moment at which the placer sleeps."""
        if not placer.inbox:
            restored = role.load(role.dump(placer.state))
            assert not firm(role.decide(restored, now).facts, placer.state), f"{placer.wake_at} is too late"

    placer.role = replace(role, decide=decide)
    for second in looks:
        world.at(second * SECOND, partial(look, second * SECOND))
    script_to_world(script, world=world)


def firm(facts: Sequence[Fact], state: State) -> list[Fact]:
    """Without what is only said every so often."""
    again = [fact for fact in facts if isinstance(fact, PlacementDeferred) and fact.why.reason in SAYS_AGAIN]
    better = [fact for fact in facts if isinstance(fact, ReservationMade) and fact.job in state.core.reservations]
    return [fact for fact in facts if fact not in again and fact not in better]


def check_held(state: State) -> None:
    """P7: what is held is what the askers are to get, no more and no less."""
    held: dict[HostId, int] = {}
    for escrow in state.core.escrows.values():
        for host, mask in masks_of(escrow.placement).items():
            held[host] = held.get(host, 0) | mask
    assert {host: mask for host, mask in state.escrowed.items() if mask} == held
