"""What is short, exactly, and how much a search for victims looked at (P6): the numbers of the reasons."""

import pytest

from services.placer.decider import current_openings
from services.placer.policy.victims import RUNS_MAX, find_victims
from tenure.domain.ids import JobId
from tenure.domain.reasons import Reason
from tenure.domain.units import MINUTE, SECOND
from tenure.events.placing import PlacementDeferred, RunPreemptionRequested
from tests.unit.placer.scene import Scene


def test_short_is_what_is_asked_less_what_is_free_and_what_is_being_released() -> None:
    scene = Scene(hosts=4)
    for name, gpus in (("going", 8), ("kept", 8), ("half", 4), ("full", 8)):
        scene.running(name, "b", gpus=gpus)
    scene.cancel("going")
    scene.job("gang", "b", gpus=8, replicas=3)
    (told,) = scene.act_for(PlacementDeferred, SECOND)
    numbers = told.why.numbers
    assert (numbers["gpus_asked"], numbers["gpus_free"], numbers["gpus_releasing"]) == (24, 4, 8)
    assert numbers["gpus_short"] == 24 - 4 - 8


def test_what_is_being_released_for_somebody_else_is_short() -> None:
    scene = Scene(hosts=1)
    scene.running("victim", "b", gpus=8, min_runtime_ms=0)
    scene.job("asker", gpus=8)
    scene.job("next", gpus=8)
    told = {fact.job: fact.why for fact in scene.act_for(PlacementDeferred, SECOND)}
    assert told[JobId("asker")].reason is Reason.DEFER_VICTIMS_STOPPING
    numbers = told[JobId("next")].numbers
    assert (numbers["gpus_free"], numbers["gpus_releasing"], numbers["gpus_short"]) == (0, 0, 8)


def test_what_is_on_an_overdue_host_is_not_on_its_way() -> None:
    scene = Scene(hosts=2)
    scene.running("kept", "b", gpus=8)
    scene.running("stuck", "b", gpus=8, min_runtime_ms=0, grace_ms=MINUTE)
    scene.job("asker", gpus=8)
    scene.act(SECOND)
    scene.job("other", "b", gpus=8)
    late = SECOND + MINUTE + scene.policy.escrow_slack_ms
    said = [fact.why for fact in scene.act_for(PlacementDeferred, late) if fact.job == "asker"]
    assert [why.reason for why in said] == [Reason.DEFER_ESCROW_EXPIRED, Reason.DEFER_NO_ROOM]
    assert (said[1].numbers["gpus_releasing"], said[1].numbers["gpus_short"]) == (0, 8)


def test_an_asker_with_victims_says_how_much_was_short() -> None:
    scene = Scene(hosts=3)
    for name, gpus in (("v0", 8), ("v1", 8), ("v2", 2)):
        scene.running(name, "b", gpus=gpus, min_runtime_ms=0)
    scene.job("gang", gpus=2, replicas=12)
    (told,) = [fact for fact in scene.act_for(PlacementDeferred, SECOND) if fact.job == "gang"]
    numbers = told.why.numbers
    assert (numbers["gpus_asked"], numbers["gpus_free"], numbers["gpus_short"]) == (24, 6, 18)
    assert "runs_to_look_at" not in numbers, "all were looked at"


def crowded(hosts: int, *, resumable: bool = False) -> Scene:
    """Hosts full of unallocated runs of one GPU, and a job that needs two hosts."""
    scene = Scene(hosts=hosts)
    for number in range(8 * hosts):
        scene.job(f"v{number:05}", "b", gpus=1, min_runtime_ms=0, resumable=resumable)
    scene.act()
    for run in list(scene.actor.state.core.runs):
        scene.start(run)
    scene.act()
    scene.order.clear()
    scene.job("gang", gpus=8, replicas=2)
    return scene


def test_a_search_among_very_many_runs_stops_early_and_says_so() -> None:
    scene = crowded(RUNS_MAX // 8 + 10)
    facts = scene.act(SECOND)
    (told,) = [fact for fact in facts if isinstance(fact, PlacementDeferred) and fact.job == "gang"]
    assert told.why.numbers["runs_looked_at"] == RUNS_MAX
    assert told.why.numbers["runs_to_look_at"] == RUNS_MAX + 80
    assert len([fact for fact in facts if isinstance(fact, RunPreemptionRequested)]) == 16


@pytest.mark.parametrize(
    ("resumable", "looked"),
    [
        (False, {"hosts_looked_at": 2, "hosts_to_look_at": 3}),
        (True, {}),  # nothing is lost for good or freed in vain: there is no better host
    ],
)
def test_hosts_that_were_not_looked_at_are_said_if_one_could_be_better(resumable: bool, looked: dict[str, int]) -> None:
    scene = crowded(3, resumable=resumable)
    scene.job("small", gpus=8)
    scene.actor.fold()
    state = scene.actor.state
    openings = current_openings(state, scene.policy)
    job = state.core.jobs[JobId("small")]
    plan = find_victims(state, job, SECOND, openings=openings, policy=scene.policy, hosts_max=2)
    assert plan is not None and plan.looked == looked
