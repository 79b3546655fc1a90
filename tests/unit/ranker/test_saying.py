"""When the ranker speaks, and what its facts hold: on a change that matters, once; never of an empty queue."""

import json

import pytest

from services.ranker.decider import role
from services.ranker.queue import LISTED_MAX
from tenure.domain.policy import Policy
from tenure.domain.reasons import EndCause, JobState
from tenure.domain.units import DAY, HOUR, MINUTE, SECOND
from tenure.events.ranking import RankingPublished
from tenure.log.codec import decode, encode
from tests.unit.ranker.scene import Scene

HALVES = {"a": 50, "b": 50}


def test_nothing_is_said_of_an_empty_queue() -> None:
    scene = Scene(HALVES)
    scene.job("j", "a")
    scene.run("j")
    assert scene.act(HOUR) is None
    assert scene.actor.wake_at is None


def test_the_same_thing_is_not_said_twice() -> None:
    scene = Scene(HALVES)
    scene.job("j", "a")
    assert scene.act(0) is not None
    assert scene.act(0) is None
    assert scene.act(1) is None


def test_an_arrival_is_said_with_its_numbers_and_basis() -> None:
    scene = Scene(HALVES)
    scene.job("old", "a")
    scene.run("old")
    scene.now = 2 * HOUR
    scene.job("j", "a")
    said = scene.act()
    assert said is not None
    assert (said.order, said.at) == (("j",), 2 * HOUR)
    assert said.basis == len(scene.log.recorded) - 1
    assert [(s.path, s.charged_gpu_ms, s.entitlement_gpu_ms) for s in said.standings] == [
        ("a", 20 * HOUR, 100 * HOUR),
        ("b", 0, 100 * HOUR),
    ]


def test_a_start_in_order_is_no_news_when_it_hardly_matters() -> None:
    """The placer knows what it starts; jobs that have left the queue are skipped by the reader."""
    scene = Scene(HALVES)
    scene.now = DAY
    for number in range(3):
        scene.job(f"j{number}", "a", gpus=1, min_runtime_ms=MINUTE)
    assert scene.act() is not None
    scene.run("j0")
    assert scene.act() is None
    assert scene.order() == ["j1", "j2"]


@pytest.mark.parametrize(("gpus", "news"), [(1, False), (60, True)])
def test_a_start_that_moves_a_ratio_is_news(gpus: int, news: bool) -> None:
    """After a day half of the GPUs make 1200 GPU-hours: a quarter of the margin is 6 of them."""
    scene = Scene(HALVES)
    scene.now = DAY
    scene.job("j", "a", gpus=gpus, min_runtime_ms=HOUR)
    scene.job("k", "b")
    scene.act()
    scene.run("j")
    assert (scene.act() is not None) is news


def test_starts_that_matter_together_are_news() -> None:
    scene = Scene(HALVES)
    scene.now = DAY
    scene.job("k", "b")
    for number in range(9):
        scene.job(f"j{number}", "a", gpus=1, min_runtime_ms=HOUR)
    scene.act()
    said = []
    for number in range(9):
        scene.run(f"j{number}")
        said.append(scene.act() is not None)
    assert said.index(True) == 6


def test_an_early_end_is_news() -> None:
    scene = Scene(HALVES)
    scene.job("long", "a", gpus=60, min_runtime_ms=8 * HOUR)
    run = scene.run("long")
    scene.now = HOUR
    scene.job("j", "a")
    scene.act()
    scene.complete(run)
    assert scene.act() is not None


def test_a_jump_that_the_ranking_did_not_know_of_is_not_lost() -> None:
    """The run starts between the decision and its append: the ranking's basis is before it."""
    scene = Scene(HALVES)
    scene.now = DAY
    scene.job("big", "a", gpus=60)
    scene.job("k", "b")
    scene.actor.fold()
    decision = scene.actor.role.decide(scene.actor.state, scene.now)
    scene.run("big")
    scene.say(decision.facts[0])
    said = scene.act()
    assert said is not None
    assert said.standings[0].commitment_gpu_ms == 60 * HOUR


def test_an_arrival_that_the_ranking_did_not_know_of_is_not_lost() -> None:
    scene = Scene(HALVES)
    scene.job("j", "a")
    scene.actor.fold()
    decision = scene.actor.role.decide(scene.actor.state, scene.now)
    scene.job("k", "a")
    scene.say(decision.facts[0])
    said = scene.act()
    assert said is not None
    assert said.order == ("j", "k")


def test_drift_is_looked_at_and_said_when_it_has_added_up() -> None:
    """Two budgets wait; one goes on running. Its ratio grows, the other's stays: nobody has to tell."""
    scene = Scene(HALVES, policy=Policy(lookback_ms=DAY))
    scene.job("long", "a", gpus=100, min_runtime_ms=1)
    scene.run("long")
    scene.now = 2 * DAY
    scene.job("a1", "a")
    scene.job("b1", "b")
    assert scene.act() is not None
    said_at, rankings = scene.now, 0
    while scene.now < said_at + HOUR:
        assert scene.actor.wake_at is not None
        assert scene.now < scene.actor.wake_at <= scene.now + 5 * MINUTE
        rankings += scene.act(scene.actor.wake_at) is not None
    assert rankings == 0, "in a full window of the same nothing moves"
    scene.now = 3 * DAY
    assert scene.act() is None
    scene.capacity(50)
    assert scene.act(3 * DAY + 5 * MINUTE) is None
    assert scene.act(3 * DAY + HOUR) is not None, "the entitlement shrinks"


def test_while_little_time_has_passed_ratios_are_looked_at_often() -> None:
    scene = Scene(HALVES)
    scene.job("j", "a")
    scene.act(0)
    assert scene.actor.wake_at == SECOND


def test_a_tree_edit_is_news_as_soon_as_it_is_made() -> None:
    scene = Scene(HALVES)
    scene.job("j", "a")
    scene.act(HOUR)
    scene.edit({"a": 40, "b": 60})
    assert scene.act() is not None


def test_a_cancelled_job_in_front_is_news() -> None:
    """Its commitment held those behind it back against other budgets."""
    scene = Scene(HALVES)
    scene.job("huge", "a", gpus=90, priority=1)
    scene.job("a1", "a", gpus=1)
    scene.job("b1", "b", gpus=1)
    assert scene.order(0) == ["huge", "b1", "a1"]
    scene.finish("huge", JobState.CANCELLED)
    assert scene.act() is not None
    assert scene.order() == ["a1", "b1"]


def test_the_unallocated_order_turns_when_the_first_budget_has_clearly_had_more() -> None:
    scene = Scene(HALVES, policy=Policy(lookback_ms=DAY))
    scene.now = DAY
    for path in ("a", "b"):
        scene.job(f"{path}0", path, gpus=50, min_runtime_ms=0)
        scene.job(f"{path}1", path, gpus=50, min_runtime_ms=0)
    assert scene.order() == ["a0", "a1", "b0", "b1"]
    scene.run("a0")
    assert scene.order(DAY + 5 * MINUTE) == ["a1", "b0", "b1"], "five minutes of a day do not matter"
    assert scene.order(DAY + HOUR) == ["b0", "b1", "a1"]
    said = scene.actor.state.said
    assert said is not None
    assert [(s.path, s.held_gpu_ms) for s in said.spare] == [("b", 0), ("a", 50 * HOUR)]


def test_users_numbers_are_said_where_they_decide() -> None:
    scene = Scene(HALVES, users_equal=["a"])
    scene.job("old", "a", user="ana")
    scene.run("old")
    scene.now = HOUR // 2
    for user in ("ana", "bob"):
        scene.job(user, "a", user=user)
    said = scene.act()
    assert said is not None
    assert [(u.path, u.user, u.charged_gpu_ms, u.commitment_gpu_ms) for u in said.users] == [
        ("a", "ana", 5 * HOUR, 5 * HOUR),
        ("a", "bob", 0, 0),
    ]


def test_of_many_alike_the_next_are_said_before_the_listed_ones_run_out() -> None:
    """A thousand identical starts are not a thousand rankings."""
    scene = Scene(HALVES, gpus=100)
    for number in range(100):
        scene.job(f"j{number:02}", "a", gpus=10, min_runtime_ms=0)
    first = scene.act(0)
    assert first is not None
    assert len(first.order) == 10
    said = 0
    for number in range(90):
        scene.run(f"j{number:02}")
        said += scene.act() is not None
        assert f"j{number + 1:02}" in scene.order(), "there is always a next one"
    assert said == 90 // 6


def test_an_arrival_behind_a_full_line_of_its_kind_is_no_news() -> None:
    scene = Scene(HALVES, gpus=100)
    for number in range(10):
        scene.job(f"j{number}", "a")
    assert scene.act(0) is not None
    scene.job("k", "a")
    assert scene.act(0) is None
    scene.job("in-front", "a", submitted_at=-HOUR)
    assert scene.act(0) is not None
    assert scene.order()[0] == "in-front"


def test_a_long_order_is_cut_but_every_kind_stays_in_it() -> None:
    """Strictly in order to a point, after that the first of each line: whatever fits somewhere can be found."""
    scene = Scene(HALVES, gpus=1024)
    for number in range(600):
        scene.job(f"j{number:03}", "a", gpus=1 + number % 3)
    for number in range(50):
        scene.job(f"k{number:02}", "a", gpus=4, submitted_at=DAY)
    said = scene.act(DAY)
    assert said is not None
    strict, rest = said.order[:LISTED_MAX], said.order[LISTED_MAX:]
    assert len(set(strict)) == LISTED_MAX
    assert rest == ("k00",)


def test_a_large_tree_is_said_as_far_as_it_is_used() -> None:
    shares = {"a": 50, "b": 50} | {f"a/n{number:04}": 0 for number in range(1200)}
    scene = Scene(shares)
    scene.job("j", "a/n0007")
    said = scene.act(HOUR)
    assert said is not None
    assert [standing.path for standing in said.standings] == ["a", "a/n0007"]


def test_a_ranking_survives_the_log() -> None:
    scene = Scene({**HALVES, "c": 0}, users_equal=["a"])
    scene.job("j", "a")
    scene.job("k", "c", min_runtime_ms=0)
    said = scene.act(HOUR)
    assert said is not None
    again = decode(encode(said))
    assert again == said
    assert isinstance(again, RankingPublished)
    assert again.spare[0].ratio == float("inf")
    old = {"type": "RankingPublished", "at": 1, "id": "x", "order": ["j"], "standings": [], "basis": 3}
    read = decode(json.dumps(old).encode())
    assert isinstance(read, RankingPublished)
    assert (read.order, read.users, read.spare) == (("j",), (), ())


def test_a_damaged_snapshot_or_one_that_remembers_too_little_is_refused() -> None:
    scene = Scene(HALVES)
    scene.job("j", "a")
    scene.act(HOUR)
    payload = scene.actor.role.dump(scene.actor.state)
    for damaged in (b"", payload[:-1], b"\x00" + payload, payload[: len(payload) // 2]):
        with pytest.raises(ValueError, match=r"ranker"):
            scene.actor.role.load(damaged)
    with pytest.raises(ValueError, match="looks back"):
        role(Policy(lookback_ms=8 * DAY)).load(payload)
    assert role(Policy(lookback_ms=DAY)).load(payload).position == scene.actor.state.position


def test_replaying_ended_runs_gives_the_same_books() -> None:
    """S45: a restart re-reads what is over; nothing is counted again."""
    scene = Scene(HALVES)
    for number in range(2):
        scene.job(f"j{number}", "a")
        run = scene.run(f"j{number}")
        scene.now += HOUR
        scene.exit(run)
        scene.end(run, EndCause.COMPLETED)
        scene.charge(run, charged=10 * HOUR)
        scene.finish(f"j{number}")
    scene.job("k", "a")
    before = scene.standing("a", 3 * HOUR)
    scene.actor.restart(with_snapshot=False)
    assert scene.standing("a", 3 * HOUR) == before
    assert before.charged_gpu_ms == 20 * HOUR
    assert scene.order() == ["k"]
