"""P5, rule by rule: who may be disrupted, by whom, when."""

import pytest

from tenure.domain.host import HostState
from tenure.domain.reasons import Reason
from tenure.domain.units import HOUR
from tenure.events.placing import RunPreemptionRequested
from tests.unit.placer.scene import Scene


def full(**victim: object) -> Scene:
    """One host, all of it held by `v`, which started at 0."""
    scene = Scene(hosts=1)
    scene.running("v", "b", **victim)  # type: ignore[arg-type]
    return scene


def reasons(scene: Scene, now: int) -> list[Reason]:
    return [fact.why.reason for fact in scene.act_for(RunPreemptionRequested, now)]


def test_unallocated_gives_way_at_once_to_an_allocated_job() -> None:
    scene = full(min_runtime_ms=0)
    scene.rank(a=5.0, b=0.0)  # ratios do not matter against unallocated work
    scene.job("j", "a")
    assert reasons(scene, 1) == [Reason.DISRUPT_UNALLOCATED]


def test_unallocated_never_displaces_anything() -> None:
    scene = full(min_runtime_ms=0)
    scene.job("j", "a", min_runtime_ms=0, priority=9)
    assert reasons(scene, HOUR) == []


@pytest.mark.parametrize(("now", "expected"), [(HOUR - 1, []), (HOUR, [Reason.DISRUPT_LOWER_RATIO])])
def test_protected_until_the_millisecond(now: int, expected: list[Reason]) -> None:
    scene = full()
    scene.rank(a=0.1, b=2.0)
    scene.job("j", "a")
    assert reasons(scene, now) == expected


def test_missing_start_facts_mean_protected() -> None:
    scene = Scene(hosts=1)
    scene.job("v", "b")
    scene.act()  # assigned, never reported as started (S33)
    scene.rank(order=[], a=0.1, b=2.0)
    scene.job("j", "a")
    assert reasons(scene, 100 * HOUR) == []


@pytest.mark.parametrize(("ratio", "allowed"), [(0.979, True), (0.98, False), (1.0, False), (1.2, False)])
def test_the_ratio_must_be_lower_by_the_margin(ratio: float, allowed: bool) -> None:
    scene = full()
    scene.rank(a=ratio, b=1.0)
    scene.job("j", "a")
    assert (reasons(scene, 2 * HOUR) == [Reason.DISRUPT_LOWER_RATIO]) is allowed


@pytest.mark.parametrize(("priority", "allowed"), [(1, True), (0, False), (-1, False)])
def test_priority_counts_only_inside_one_leaf(priority: int, allowed: bool) -> None:
    scene = full()
    scene.job("j", "b", priority=priority)
    assert (reasons(scene, 2 * HOUR) == [Reason.DISRUPT_HIGHER_PRIORITY]) is allowed


def test_priority_means_nothing_across_budgets() -> None:
    scene = full()
    scene.rank(a=1.0, b=1.0)
    scene.job("j", "a", priority=1000)
    assert reasons(scene, 2 * HOUR) == []


def test_ratios_are_compared_where_the_paths_part() -> None:
    scene = Scene(hosts=1)
    scene.rank(order=[], **{"x": 0.2, "x/p": 9.0, "y": 1.0, "y/q": 0.1})
    scene.running("v", "y/q")
    scene.job("j", "x/p")
    assert reasons(scene, 2 * HOUR) == [Reason.DISRUPT_LOWER_RATIO]


def test_draining_waits_for_protection_and_says_so() -> None:
    scene = full()
    scene.host("h0", HostState.DRAINING)
    assert reasons(scene, HOUR - 1) == []
    assert reasons(scene, HOUR) == [Reason.DISRUPT_HOST_DRAINS]


def test_draining_stops_unallocated_runs_at_once() -> None:
    scene = full(min_runtime_ms=0)
    scene.host("h0", HostState.DRAINING)
    assert reasons(scene, 1) == [Reason.DISRUPT_UNALLOCATED]


def test_a_fatal_drain_ends_protected_runs() -> None:
    scene = full()
    scene.host("h0", HostState.DRAINING, fatal=True)
    assert reasons(scene, 1) == [Reason.DISRUPT_HOST_FATAL]


def test_a_preemption_carries_the_numbers_of_both_sides() -> None:
    scene = full()
    scene.rank(a=0.25, b=2.0)
    scene.job("j", "a")
    (fact,) = scene.act_for(RunPreemptionRequested, 2 * HOUR)
    numbers = fact.why.numbers
    assert (fact.by, fact.why.rule, numbers["level"], numbers["victim_level"]) == ("j", "P5", "a", "b")
    assert (numbers["ratio"], numbers["victim_ratio"], numbers["protected_until_ms"]) == (0.25, 2.0, HOUR)
