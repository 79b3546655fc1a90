"""P3 and P4, by hand: who starts first."""

import pytest

from services.ranker.policy.setback import setback
from tenure.domain.job import Topology
from tenure.domain.policy import Policy
from tenure.domain.reasons import JobState
from tenure.domain.units import DAY, HOUR, MINUTE
from tests.unit.ranker.scene import Scene

HALVES = {"a": 50, "b": 50}


def test_of_two_equal_budgets_the_idle_one_is_first() -> None:
    scene = Scene(HALVES)
    scene.job("old", "a")
    scene.run("old")
    scene.now = 2 * HOUR
    scene.job("a1", "a")
    scene.job("b1", "b")
    assert scene.order() == ["b1", "a1"]


def test_running_time_counts_as_it_runs() -> None:
    """S78: a team that holds half of the machine for days is not first in line with its next job."""
    scene = Scene(HALVES)
    scene.job("long", "a", gpus=50, min_runtime_ms=8 * HOUR)
    scene.run("long")
    scene.now = 3 * DAY
    scene.job("a1", "a", submitted_at=0)
    scene.job("b1", "b")
    assert scene.order() == ["b1", "a1"]


def test_a_pick_counts_before_the_next_one() -> None:
    """No cycle over-starts the poorest budget: a is 20 GPU-hours behind b, catches up with two, then they alternate."""
    scene = Scene(HALVES)
    scene.job("old", "b", gpus=20)
    run = scene.run("old")
    scene.now = HOUR
    scene.complete(run)
    for number in range(4):
        scene.job(f"a{number}", "a")
        scene.job(f"b{number}", "b")
    assert scene.order() == ["a0", "a1", "a2", "b0", "a3", "b1", "b2", "b3"]


def test_shares_weigh_what_is_used() -> None:
    """Two thirds and one third, equal jobs: two for one. Ties go by path."""
    scene = Scene({"a": 50, "b": 25})
    for number in range(3):
        scene.job(f"a{number}", "a")
        scene.job(f"b{number}", "b")
    assert scene.order(HOUR) == ["a0", "b0", "a1", "a2", "b1", "b2"]


def test_the_tree_is_walked_from_the_top() -> None:
    """`lab` has had nothing, so its busiest child still comes before `rest`, which has had much."""
    scene = Scene({"lab": 50, "lab/a": 50, "lab/b": 50, "rest": 50})
    scene.job("old1", "rest", gpus=30)
    scene.run("old1")
    scene.job("old2", "lab/a", gpus=20)
    scene.run("old2")
    scene.now = 2 * HOUR
    scene.job("r", "rest")
    scene.job("x", "lab/a", gpus=4)
    scene.job("y", "lab/b", gpus=4)
    assert scene.order() == ["y", "x", "r"]


def test_an_idle_child_s_share_goes_to_its_sibling_before_it_goes_up() -> None:
    """Three levels; `lab/a/x` asks for nothing, so what `lab/a` has left is `lab/a/y`'s."""
    scene = Scene({"lab": 50, "lab/a": 50, "lab/a/x": 90, "lab/a/y": 10, "lab/b": 50, "rest": 50})
    scene.job("old1", "lab/a/y", gpus=8)  # over its own tenth of a quarter of the GPUs, under its parent's quarter
    scene.run("old1")
    scene.job("old2", "lab/b", gpus=9)
    scene.run("old2")
    scene.job("old3", "rest", gpus=40)
    scene.run("old3")
    scene.now = 2 * HOUR
    for job, path in (("y", "lab/a/y"), ("b", "lab/b"), ("r", "rest")):
        scene.job(job, path)
    assert scene.order() == ["y", "b", "r"]
    assert scene.standing("lab/a/y").ratio > scene.standing("lab/b").ratio


def test_without_a_share_last_but_not_never() -> None:
    scene = Scene({"a": 100, "b": 0, "c": 0})
    scene.job("old", "a", gpus=90)
    scene.run("old")
    scene.now = DAY
    for path in ("c", "b", "a"):
        scene.job(path, path)
    assert scene.order() == ["a", "b", "c"]


def test_in_a_budget_priority_comes_first_and_says_nothing_outside() -> None:
    scene = Scene(HALVES)
    scene.job("old", "a")
    scene.run("old")
    scene.job("a-low", "a", priority=0)
    scene.job("a-high", "a", priority=9)
    scene.job("b-low", "b", priority=0)
    assert scene.order(HOUR) == ["b-low", "a-high", "a-low"]


def test_in_a_budget_small_jobs_pass_large_ones_that_came_a_little_earlier() -> None:
    """10 GPU-hours set a job back by ten minutes."""
    scene = Scene(HALVES)
    scene.job("large", "a", gpus=10, submitted_at=0)
    scene.job("small-soon", "a", gpus=1, submitted_at=8 * MINUTE)
    scene.job("small-late", "a", gpus=1, submitted_at=10 * MINUTE)
    assert scene.order(HOUR) == ["small-soon", "large", "small-late"]


def test_every_wait_inside_a_budget_is_bounded() -> None:
    """S02: whatever it asks for, nothing submitted more than the maximum later is in front of it."""
    policy = Policy(setback_max_ms=12 * HOUR)
    scene = Scene(HALVES, gpus=1024, policy=policy)
    scene.job("huge", "a", gpus=1024, min_runtime_ms=8 * HOUR, submitted_at=0)
    for hours in range(1, 20):
        scene.job(f"small{hours:02}", "a", gpus=1, min_runtime_ms=MINUTE, submitted_at=hours * HOUR)
    order = scene.order(DAY)
    assert order.index("huge") == 12 - 1 + 0
    assert setback(10**15, policy=policy) == 12 * HOUR


def test_equal_in_everything_the_id_decides() -> None:
    scene = Scene(HALVES)
    for job in ("j3", "j1", "j2"):
        scene.job(job, "a")
    assert scene.order() == ["j1", "j2", "j3"]


def test_a_preempted_job_keeps_its_place() -> None:
    scene = Scene(HALVES)
    scene.job("first", "a")
    scene.now = MINUTE
    run = scene.run("first")
    scene.job("second", "a")
    assert scene.order() == ["second"]
    scene.now = 2 * HOUR
    scene.requeue(run)
    assert scene.order() == ["first", "second"]


def test_a_job_that_is_over_is_never_ordered_again() -> None:
    """S45: also when it is told twice."""
    scene = Scene(HALVES)
    scene.job("j", "a")
    scene.job("k", "a")
    scene.finish("j", JobState.CANCELLED)
    assert scene.order() == ["k"]
    scene.finish("j", JobState.CANCELLED)
    assert scene.order(HOUR) == ["k"]


def test_users_are_equal_where_the_budget_says_so() -> None:
    """One with many jobs and one with a single job: the single one is second, not last."""
    scene = Scene(HALVES, users_equal=["a"])
    for number in range(3):
        scene.job(f"ana{number}", "a", user="ana")
    scene.now = HOUR
    scene.job("bob0", "a", user="bob")
    assert scene.order() == ["ana0", "bob0", "ana1", "ana2"]


def test_of_equal_users_the_one_with_the_least_use_is_first() -> None:
    scene = Scene(HALVES, users_equal=["a"])
    scene.job("old", "a", user="ana")
    scene.run("old")
    scene.now = HOUR
    scene.job("ana1", "a", user="ana", priority=5)
    scene.job("bob1", "a", user="bob")
    assert scene.order() == ["bob1", "ana1"], "priority sorts inside one child only"
    scene.edit(HALVES)
    assert scene.order() == ["ana1", "bob1"]
    scene.edit(HALVES, users_equal=["a"])
    assert scene.order() == ["bob1", "ana1"], "what users had before the edit is not forgotten"


def test_unallocated_jobs_come_last_and_the_budget_that_had_least_of_that_first() -> None:
    scene = Scene(HALVES)
    scene.job("old", "a", min_runtime_ms=0)
    scene.run("old")
    scene.now = HOUR
    for job, path in (("a-free", "a"), ("b-free1", "b"), ("b-free0", "b")):
        scene.job(job, path, min_runtime_ms=0, priority=3)
    scene.job("a-paid", "a")
    assert scene.order() == ["a-paid", "b-free0", "b-free1", "a-free"]


def test_unallocated_use_is_seen_for_the_share() -> None:
    """Equal use, unequal shares."""
    scene = Scene({"a": 20, "b": 80})
    for path in ("a", "b"):
        scene.job(f"{path}-old", path, min_runtime_ms=0)
        scene.run(f"{path}-old")
    for path in ("a", "b"):
        scene.job(path, path, min_runtime_ms=0)
    assert scene.order(HOUR) == ["b", "a"]


def test_a_reserved_job_is_counted_once() -> None:
    """P8: its commitment is in the ratio already, so picking it adds nothing; its budget is behind b from now on."""
    scene = Scene(HALVES)
    scene.job("gang", "a", gpus=10, replicas=4)
    scene.job("a1", "a")
    scene.job("b1", "b")
    assert scene.order(HOUR) == ["a1", "b1", "gang"]
    scene.reserve("gang")
    assert scene.order() == ["b1", "a1", "gang"]


def test_jobs_of_a_budget_that_got_children_come_after_theirs() -> None:
    scene = Scene(HALVES)
    scene.job("before", "a")
    scene.edit({"a": 50, "a/x": 100, "b": 50})
    scene.job("x", "a/x")
    scene.job("b", "b")
    assert scene.order() == ["x", "b", "before"]


def test_jobs_of_a_budget_that_is_gone_are_last_and_not_lost() -> None:
    """I4. Such an edit is refused while jobs run, but a job may have been admitted a moment before."""
    scene = Scene(HALVES)
    scene.edit({"b": 100})
    scene.job("a1", "a")
    scene.job("b1", "b")
    assert scene.order(DAY * 9) == ["b1", "a1"]


@pytest.mark.parametrize("gpu_type", [None, "H100"])
def test_of_jobs_that_are_alike_as_many_as_could_run_at_once(gpu_type: str | None) -> None:
    """S10: ten thousand alike cost what ten do, and the one that is unlike them is not behind them."""
    scene = Scene(HALVES, gpus=100)
    scene.capacity(1000, host="other", gpu_type="B200")
    for number in range(200):
        scene.job(f"j{number:03}", "a", gpus=10, gpu_type=gpu_type)
    scene.job("unlike", "a", gpus=9, gpu_type=gpu_type, priority=-1)
    listed = 110 if gpu_type is None else 10
    assert scene.order() == [*[f"j{number:03}" for number in range(listed)], "unlike"]


def test_gangs_that_wait_for_a_block_hide_none_that_does_not() -> None:
    scene = Scene(HALVES, gpus=100)
    for number in range(20):
        scene.job(f"j{number:02}", "a", gpus=10, replicas=2, topology=Topology.ONE_BLOCK)
    scene.job("last", "a", gpus=10, replicas=2)
    assert scene.order() == [*[f"j{number:02}" for number in range(5)], "last"]
