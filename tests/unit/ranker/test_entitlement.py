"""P1, by hand: share of what was available, while it was. One hundred GPUs unless said otherwise."""

import pytest

from tenure.domain.policy import Policy
from tenure.domain.units import DAY, HOUR, MINUTE, GpuMillis
from tests.unit.ranker.scene import Scene

WEEK = 7 * DAY
DEEP = {"lab": 50, "lab/a": 40, "lab/a/x": 25, "lab/a/y": 75, "lab/b": 60, "rest": 50}


def entitled(scene: Scene, path: str, now: int) -> GpuMillis:
    """The entitlement of a budget at an instant."""
    return scene.standing(path, now).entitlement_gpu_ms


def test_a_share_of_the_capacity_over_the_time_there_was() -> None:
    scene = Scene({"a": 60, "b": 40})
    assert entitled(scene, "a", HOUR) == 60 * HOUR
    assert entitled(scene, "b", HOUR) == 40 * HOUR


def test_never_more_than_a_window_of_it() -> None:
    scene = Scene({"a": 60, "b": 40})
    assert entitled(scene, "a", 30 * DAY) == 60 * WEEK


def test_shares_multiply_down_the_path() -> None:
    scene = Scene(DEEP)
    assert entitled(scene, "lab", HOUR) == 50 * HOUR
    assert entitled(scene, "lab/a", HOUR) == 20 * HOUR
    assert entitled(scene, "lab/a/x", HOUR) == 5 * HOUR
    assert entitled(scene, "lab/a/y", HOUR) == 15 * HOUR


def test_a_tree_edit_takes_effect_at_its_time_and_never_backwards() -> None:
    scene = Scene({"a": 60, "b": 40})
    scene.now = DAY
    scene.edit({"a": 10, "b": 90})
    assert entitled(scene, "a", DAY) == 60 * DAY
    assert entitled(scene, "a", 3 * DAY) == 60 * DAY + 10 * 2 * DAY
    assert entitled(scene, "b", 3 * DAY) == 40 * DAY + 90 * 2 * DAY


def test_an_edit_leaves_the_window_with_its_time() -> None:
    scene = Scene({"a": 60, "b": 40})
    scene.now = DAY
    scene.edit({"a": 10, "b": 90})
    assert entitled(scene, "a", WEEK + DAY // 2) == 60 * DAY // 2 + 10 * (WEEK - DAY // 2)
    assert entitled(scene, "a", WEEK + DAY) == 10 * WEEK


def test_an_edit_above_changes_the_budgets_below() -> None:
    scene = Scene(DEEP)
    scene.now = HOUR
    scene.edit({**DEEP, "lab": 100, "rest": 0})
    assert entitled(scene, "lab/a/x", 2 * HOUR) == 5 * HOUR + 10 * HOUR


def test_an_edit_dated_before_the_last_one_does_not_rewrite_it() -> None:
    """The gateway's clock was set back: the edit holds from where the last one did."""
    scene = Scene({"a": 60, "b": 40})
    scene.now = 2 * HOUR
    scene.edit({"a": 20, "b": 80})
    scene.now = HOUR
    scene.edit({"a": 30, "b": 70})
    assert entitled(scene, "a", 3 * HOUR) == 60 * 2 * HOUR + 30 * HOUR


def test_a_budget_that_is_taken_out_keeps_what_it_was_entitled_to() -> None:
    scene = Scene({"a": 60, "b": 40})
    scene.job("old", "b")
    scene.run("old")  # so that it is still spoken of
    scene.now = HOUR
    scene.edit({"a": 100})
    assert entitled(scene, "b", 5 * HOUR) == 40 * HOUR


def test_capacity_that_is_halved_counts_half_from_then_on() -> None:
    """S51: GPUs that are not there are owed to nobody."""
    scene = Scene({"a": 60, "b": 40})
    scene.now = HOUR
    scene.capacity(50)
    assert entitled(scene, "a", 3 * HOUR) == 60 * HOUR + 30 * 2 * HOUR


def test_drained_hosts_are_not_in_the_total() -> None:
    """S51 as it was reported: 64 hosts, 8 of them cordoned."""
    scene = Scene({"a": 50, "b": 50}, gpus=8)
    for number in range(1, 64):
        scene.capacity(8, host=f"h{number}")
    assert entitled(scene, "a", HOUR) == 256 * HOUR
    for number in range(8):
        scene.capacity(0, host=f"h{number}")
    assert entitled(scene, "a", 2 * HOUR) == 256 * HOUR + 224 * HOUR


def test_a_share_of_nothing_is_nothing() -> None:
    scene = Scene({"a": 100, "b": 0})
    assert entitled(scene, "b", HOUR) == 0
    assert scene.standing("b").ratio == float("inf")


def test_shares_order_before_any_time_has_passed() -> None:
    """And before any host is there: a second of the present share, of one GPU at least."""
    scene = Scene({"a": 60, "b": 40}, gpus=0)
    assert (entitled(scene, "a", 0), entitled(scene, "b", 0)) == (600, 400)
    scene.capacity(100)
    assert (entitled(scene, "a", 0), entitled(scene, "b", 0)) == (60_000, 40_000)


def test_thirds_are_rounded_once_at_the_end() -> None:
    scene = Scene({"a": 33, "a/x": 33, "a/x/1": 33}, gpus=7)
    assert entitled(scene, "a/x/1", HOUR) == round(7 * HOUR * 0.33**3)


@pytest.mark.parametrize("lookback", [10 * MINUTE, 3 * DAY])
def test_the_window_is_the_policy_s(lookback: int) -> None:
    scene = Scene({"a": 50, "b": 50}, policy=Policy(lookback_ms=lookback))
    assert entitled(scene, "a", WEEK) == 50 * lookback


def test_thousands_of_edits_cost_what_those_in_the_window_do() -> None:
    scene = Scene({"a": 60, "b": 40}, policy=Policy(lookback_ms=DAY))
    for number in range(2000):
        scene.now = number * HOUR
        scene.edit({"a": 60 - number % 2, "b": 40 + number % 2})
    scene.actor.fold()
    assert len(scene.actor.state.shares.eras["a"]) < 40
    assert entitled(scene, "a", 2000 * HOUR) == 1190 * DAY // 20


def test_a_shorter_lookback_counts_at_once() -> None:
    scene = Scene({"a": 50, "b": 50}, policy=Policy(lookback_ms=3 * DAY))
    scene.now = WEEK
    scene.change_policy(Policy(lookback_ms=DAY))
    assert entitled(scene, "a", WEEK) == 50 * DAY


def test_a_longer_lookback_begins_with_what_is_remembered_and_grows_to_its_length() -> None:
    scene = Scene({"a": 50, "b": 50}, policy=Policy(lookback_ms=DAY))
    for hour in range(10 * 24):
        scene.now = hour * HOUR
        scene.edit({"a": 50, "b": 50})
    scene.change_policy(Policy(lookback_ms=5 * DAY))
    scene.actor.fold()
    remembered = scene.now - (scene.actor.state.forgotten_to or 0)
    assert DAY < remembered < 2 * DAY
    assert entitled(scene, "a", scene.now) == 50 * remembered
    for _ in range(6 * 24):
        scene.now += HOUR
        scene.edit({"a": 50, "b": 50})
    assert entitled(scene, "a", scene.now) == 50 * 5 * DAY
