"""What a system decides by is in its log: a role that is started with a stale policy folds the same state from it, and
says the same next; and a change in the middle counts from its position on, whoever replays it."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from services.budget.decider import role as budget
from services.health.decider import role as health
from services.placer.decider import role as placer
from services.ranker.decider import role as ranker
from tenure.domain.policy import Policy, changes
from tenure.domain.units import HOUR, MINUTE, SECOND
from tenure.events.fact import Recorded
from tenure.events.policy import PolicyChanged
from tenure.runtime.options import build_policy
from tenure.runtime.role import Role
from tests.property.test_world import POLICIES, QUICK, scripts
from tests.scenario.script import build, instant, script_to_world

ROLES = (budget, health, placer, ranker)
STALE = Policy(
    lookback_ms=10 * MINUTE,
    min_runtime_cap_ms=MINUTE,
    ratio_margin=3.0,
    setback_per_gpu_hour_ms=9 * HOUR,
    grace_max_ms=SECOND,
    escrow_slack_ms=HOUR,
    reservation_depth=0,
    suspect_after_ms=HOUR,
    lost_after_ms=2 * HOUR,
    automation_share=0.0,
)


def folded(role: Role[Any], recorded: list[Recorded]) -> Any:
    state = role.initial()
    for entry in recorded:
        if type(entry.fact) in role.reads:
            role.evolve(state, entry)
    return state


@settings(max_examples=25, deadline=None, phases=QUICK)
@given(scripts(), st.integers(0, 100))
def test_a_stale_policy_of_a_restarted_role_changes_nothing(script: dict[str, Any], cut_percent: int) -> None:
    world = build(script)
    world.change_policy(world.policy)  # as the gateway does at its start
    recorded = script_to_world(script, world=world).recorded
    prefix = recorded[: max(2, len(recorded) * cut_percent // 100)]
    now = max(entry.fact.at for entry in prefix)
    for make in ROLES:
        right, stale = make(world.policy), make(STALE)
        ours, theirs = folded(right, prefix), folded(stale, prefix)
        assert right.dump(ours) == stale.dump(theirs), right.name
        again = stale.load(stale.dump(theirs))
        for role, state in ((right, ours), (stale, theirs), (stale, again)):
            assert role.policy is not None
            assert role.policy(state) == last_policy(prefix)
        said = right.decide(ours, now)
        assert msgspec.to_builtins(said) == msgspec.to_builtins(stale.decide(theirs, now)), right.name


def last_policy(recorded: list[Recorded]) -> Policy:
    return next(entry.fact.policy for entry in reversed(recorded) if isinstance(entry.fact, PolicyChanged))


@settings(max_examples=25, deadline=None, phases=QUICK)
@given(scripts(), st.integers(1, 120), st.sampled_from(POLICIES))
def test_nothing_before_a_change_is_another_for_it(script: dict[str, Any], minute: int, knobs: dict[str, Any]) -> None:
    """And the simulator folds it as the roles do: what comes before is the same, fact by fact."""
    plain = script_to_world(script).recorded
    changed = script_to_world({**script, "when": [*script["when"], {"at": f"{minute}m", "policy": knobs}]}).recorded
    at = instant(f"{minute}m")
    before = [entry for entry in plain if entry.fact.at < at]
    assert changed[: len(before)] == before


def test_a_change_names_what_is_another_value() -> None:
    assert changes(Policy(), build_policy({"lookback": "3d", "job_failures": 3, "ratio_margin": 0.5})) == (
        "lookback_ms",
        "ratio_margin",
    )
