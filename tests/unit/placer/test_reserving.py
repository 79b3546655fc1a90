"""P8: what a reservation promises, and what it forbids meanwhile."""

from services.placer.policy.reserve import forbidden
from tenure.domain.ids import JobId
from tenure.domain.policy import Policy
from tenure.domain.units import HOUR, MINUTE
from tenure.events.placing import ReservationMade, RunAssigned, RunPreemptionRequested
from tests.unit.placer.scene import Scene


def reserved_scene() -> tuple[Scene, ReservationMade]:
    """Two hosts held by `b` for two hours; a gang of both for the poorer `a`."""
    scene = Scene(hosts=2)
    for name in ("r0", "r1"):
        scene.running(name, "b", gpus=8, min_runtime_ms=2 * HOUR, resumable=True, grace_ms=MINUTE)
    scene.rank(a=0.1, b=1.0)
    scene.job("gang", "a", gpus=8, replicas=2)
    (made,) = scene.act_for(ReservationMade, 10 * MINUTE)
    return scene, made


def test_the_latest_start_is_the_last_protection_and_its_grace() -> None:
    _, made = reserved_scene()
    assert (made.job, made.latest_start, made.waits_for) == ("gang", 2 * HOUR + MINUTE, ("r0.1", "r1.1"))


def test_a_right_that_was_promised_is_not_asked_again() -> None:
    scene, made = reserved_scene()
    scene.rank(a=2.0, b=0.1)  # now `a` is the richer one
    told = scene.act_for(RunPreemptionRequested, made.latest_start - MINUTE)
    assert {fact.run for fact in told} == {"r0.1", "r1.1"}
    assert {fact.why.reason.value for fact in told} == {"disrupt_promised"}


def test_a_gap_is_for_contracts_that_end_in_time_and_not_filled_at_its_end() -> None:
    scene, made = reserved_scene()
    state = scene.actor.state
    scene.job("short", "b", gpus=1, min_runtime_ms=HOUR, grace_ms=MINUTE)
    scene.job("free", "b", gpus=1, min_runtime_ms=0, grace_ms=MINUTE)
    scene.actor.fold()
    short, fill = (state.core.jobs[JobId(name)].spec for name in ("short", "free"))
    until = made.latest_start - MINUTE
    assert not forbidden(state, job=JobId("short"), spec=short, now=until - HOUR)
    assert set(forbidden(state, job=JobId("short"), spec=short, now=until - HOUR + 1)) == {"h0", "h1"}
    assert not forbidden(state, job=JobId("free"), spec=fill, now=until - 1)
    assert set(forbidden(state, job=JobId("free"), spec=fill, now=until)) == {"h0", "h1"}, "it would be told at once"
    assert not forbidden(state, job=JobId("gang"), spec=short, now=until)


def test_the_gang_starts_when_the_last_run_is_gone() -> None:
    scene, made = reserved_scene()
    scene.act(made.latest_start - MINUTE)
    scene.exit("r0.1", code=None, signal=15)
    assert not scene.act_for(RunAssigned, made.latest_start - 1_000)
    scene.exit("r1.1", code=None, signal=15)
    (start,) = scene.act_for(RunAssigned, made.latest_start)
    assert start.job == "gang" and not scene.actor.state.core.reservations


def test_no_more_reservations_than_the_policy_says() -> None:
    scene, _ = reserved_scene()
    depth = scene.policy.reservation_depth
    for number in range(depth + 3):
        scene.job(f"g{number}", "a", gpus=8, replicas=2)
    scene.act()
    assert len(scene.actor.state.core.reservations) <= depth


def test_a_right_to_come_is_promised_for_the_hour_from_which_it_holds() -> None:
    """Equal now; but `b` goes on using 16 GPUs and `a` none, so in an hour `a` is poorer by more than the margin."""
    scene = Scene(hosts=2)
    for name in ("r0", "r1"):
        scene.running(name, "b", gpus=8, min_runtime_ms=MINUTE, resumable=True, grace_ms=MINUTE)
    scene.rank(a=0.5, b=0.5)
    scene.job("gang", "a", gpus=8, replicas=2)
    assert not scene.act_for(RunPreemptionRequested, 10 * MINUTE), "a tie justifies nothing"
    (reservation,) = scene.actor.state.core.reservations.values()
    assert reservation.latest_start == 10 * MINUTE + HOUR + MINUTE
    told = scene.act_for(RunPreemptionRequested, 10 * MINUTE + HOUR)
    assert {fact.run for fact in told} == {"r0.1", "r1.1"}


def test_nothing_is_promised_beyond_the_horizon() -> None:
    scene = Scene(hosts=2, policy=Policy(promise_horizon_ms=HOUR))
    for name in ("r0", "r1"):
        scene.running(name, "b", gpus=8, min_runtime_ms=MINUTE, resumable=True)
    scene.rank(a=0.9, b=0.5)
    scene.job("gang", "a", gpus=8, replicas=2)
    scene.act(10 * MINUTE)
    assert not scene.actor.state.core.reservations


def test_a_timetable_is_made_anew_only_for_the_better() -> None:
    scene = Scene(hosts=3)
    for name, hours in (("r0", 2), ("r1", 3), ("r2", 4)):
        scene.running(name, "b", gpus=8, min_runtime_ms=hours * HOUR, resumable=True, grace_ms=MINUTE)
    scene.rank(a=0.1, b=1.0)
    scene.job("gang", "a", gpus=8, replicas=2)
    (first,) = scene.act_for(ReservationMade, MINUTE)
    assert (first.latest_start, first.waits_for) == (3 * HOUR + MINUTE, ("r0.1", "r1.1"))
    scene.now = 11 * MINUTE
    scene.rank()
    assert not scene.act_for(ReservationMade, 11 * MINUTE), "the same again is no news"
    scene.exit("r2.1")
    scene.now = 21 * MINUTE
    scene.rank()
    (better,) = scene.act_for(ReservationMade, 21 * MINUTE)
    assert (better.latest_start, better.waits_for) == (2 * HOUR + MINUTE, ("r0.1",))
    assert len(scene.actor.state.core.reservations) == 1
    assert sum(made.gpu_ms for made in scene.actor.state.core.commitments) <= 16 * HOUR, "it commits once"
