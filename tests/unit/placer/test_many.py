"""What many jobs cost a decision, in calls and memory instead of seconds: it goes by classes and runs, not by pairs."""

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType

import pytest

from tenure.domain.ids import BudgetPath, JobId, UserName
from tenure.domain.job import JobSpec, Launch
from tenure.domain.units import HOUR, MINUTE, SECOND
from tenure.events.budgets import JobAdmitted
from tenure.events.placing import PlacementDeferred, RunAssigned, RunPreemptionRequested
from tests.unit.placer.scene import Scene


def calls_of(act: Callable[[], object]) -> int:
    """How many Python functions are called meanwhile."""
    count = 0

    def note(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(before)
    return count


def queue(scene: Scene, count: int, *, gpus: int, budget: str = "a", name: str = "q", priorities: int = 1) -> None:
    """Many jobs enter the queue at once."""
    for number in range(count):
        job = JobId(f"{name}{number:05}")
        wanted = JobSpec(
            budget=BudgetPath(budget),
            user=UserName("u"),
            gpus_per_replica=gpus,
            min_runtime_ms=HOUR,
            priority=number % priorities,
            launch=Launch(command=("true",)),
        )
        scene.say(JobAdmitted(at=scene.now, job=job, spec=wanted, submitted_at=scene.now))
        scene.order.append(job)
    scene.rank()


def calls_for_one_behind(count: int) -> int:
    """What it costs to start a job of one GPU that came after so many which need eight and wait."""
    scene = Scene(hosts=5)
    for number in range(5):
        scene.running(f"r{number}", "b", gpus=8 if number < 4 else 4, min_runtime_ms=8 * HOUR)
    queue(scene, count, gpus=8)
    assert len(scene.act_for(PlacementDeferred, SECOND)) == count
    scene.job("last", gpus=1)
    started: list[RunAssigned] = []
    calls = calls_of(lambda: started.extend(scene.act_for(RunAssigned, 2 * SECOND)))
    assert [run.job for run in started] == ["last"]
    return calls


def test_ten_thousand_that_wait_alike_cost_what_a_hundred_do() -> None:
    """S10: the one that fits stands behind them all, and is found without a look at each."""
    assert calls_for_one_behind(10_000) <= calls_for_one_behind(100) + 100


def full(waiting: int) -> Scene:
    """500 hosts x 8, each GPU with a run of its own, and so many of two GPUs that wait, in five classes."""
    scene = Scene(hosts=500)
    queue(scene, 4_000, gpus=1, budget="b", name="r")
    assert len(scene.act_for(RunAssigned, SECOND)) == 4_000
    for run in list(scene.actor.state.core.runs):
        scene.start(run)
    scene.order = []
    scene.rank(a=0.1, b=1.0)
    scene.act(2 * SECOND)
    queue(scene, waiting, gpus=2, priorities=5)
    return scene


@pytest.mark.timeout(300)
def test_protections_cost_by_the_run_and_not_by_the_pair() -> None:
    """S34: 4,000 runs and 4,000 jobs that wait for them are 16,000,000 pairs; nothing is done or kept for each."""
    few, many = full(400), full(4_000)
    tracemalloc.start()
    cost = calls_of(lambda: few.act(MINUTE)) + calls_of(lambda: many.act(MINUTE))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 16 * 2**20, "16 M entries were 940 MB"
    told = 400 + 4_000  # each job's first reason is said once, and folded
    assert cost < 200 * told
    ended: list[RunPreemptionRequested] = []
    expiry = calls_of(lambda: ended.extend(many.act_for(RunPreemptionRequested, 2 * HOUR)))
    assert len(ended) >= 2, "all protections end at once, and now somebody has to go"
    assert expiry < 4_000 * 200
