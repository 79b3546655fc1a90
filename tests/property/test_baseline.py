"""The baseline on whole worlds: random jobs, cancels, drains, silences and tree edits; restarts that change nothing."""

from functools import partial
from typing import Any

import msgspec
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.checks.baseline import check_baseline
from tests.property.test_world import INSTANTS, scripts
from tests.scenario.script import build, instant, script_to_world

QUICK = (Phase.explicit, Phase.reuse, Phase.generate)


def as_baseline(script: dict[str, Any]) -> dict[str, Any]:
    return {**script, "given": {**script["given"], "roles": "priority"}}


@settings(max_examples=30, deadline=None, phases=QUICK)
@given(scripts().map(as_baseline))
def test_no_rule_is_ever_broken(script: dict[str, Any]) -> None:
    check_baseline(script_to_world(script).recorded)


@settings(max_examples=15, deadline=None, phases=QUICK)
@given(scripts().map(as_baseline), st.lists(st.tuples(INSTANTS, st.booleans()), min_size=1, max_size=6))
def test_restarts_change_nothing(script: dict[str, Any], restarts: list[tuple[str, bool]]) -> None:
    """I6: a snapshot and the rest, or the whole log again, gives the same decisions."""
    undisturbed = script_to_world(script)
    world = build(script)
    for at, with_snapshot in restarts:
        world.at(instant(at), partial(world.actor("placer").restart, with_snapshot=with_snapshot))
    script_to_world(script, world=world)
    before, after = undisturbed.recorded, world.recorded
    assert [msgspec.json.encode(entry) for entry in after] == [msgspec.json.encode(entry) for entry in before]
