"""Where runs go and what is held for whom: P4 order, P6 packing and victims, P7 escrow, P8 reserved hosts, P11."""

from services.placer.policy.starts import STARTS_MAX
from tenure.domain.host import HostState
from tenure.domain.ids import HostId, JobId
from tenure.domain.job import ReplicaPlace
from tenure.domain.reasons import Reason, Why
from tenure.domain.units import HOUR, MINUTE, SECOND
from tenure.events.placing import PlacementDeferred, ReservationMade, RunAssigned, RunPreemptionRequested
from tests.unit.placer.scene import Scene


def hosts_of(run: RunAssigned) -> list[str]:
    return sorted({place.host for place in run.placement})


def test_small_work_goes_to_the_fullest_host_and_gangs_to_the_other_end() -> None:
    scene = Scene(hosts=4)
    scene.job("one", gpus=1)
    scene.job("two", gpus=2)
    scene.job("gang", gpus=8, replicas=2)
    placed = {run.job: hosts_of(run) for run in scene.act_for(RunAssigned)}
    assert placed == {"one": ["h0"], "two": ["h0"], "gang": ["h2", "h3"]}


def test_a_gang_starts_whole_or_not_at_all_and_holds_nothing_meanwhile() -> None:
    scene = Scene(hosts=3)
    scene.running("busy", "b", gpus=1)  # 7 free on one host, 2 whole hosts: 23 GPUs, but no 3 x 8 (S06)
    scene.job("gang", gpus=8, replicas=3)
    scene.job("small", gpus=8)
    facts = scene.act()
    assert [fact.job for fact in facts if isinstance(fact, RunAssigned)] == ["small"]
    (deferred,) = [fact for fact in facts if isinstance(fact, PlacementDeferred)]
    assert (deferred.job, deferred.why.numbers["gpus_asked"]) == ("gang", 24)


def test_fragments_are_said_with_the_largest_hole() -> None:
    scene = Scene(hosts=4)
    scene.running("full", "b", gpus=8)
    for name in ("x", "y", "z"):
        scene.running(name, "b", gpus=5)
    scene.job("j", "b", gpus=8)
    (deferred,) = scene.act_for(PlacementDeferred)
    assert deferred.why.reason is Reason.DEFER_FRAGMENTED
    numbers = deferred.why.numbers
    assert (numbers["gpus_free"], numbers["hosts_with_gpus_free"], numbers["largest_hole"]) == (9, 3, 3)


def test_nothing_starts_on_a_host_that_is_not_healthy() -> None:
    for state in (HostState.SUSPECT, HostState.DRAINING, HostState.DRAINED, HostState.LOST):
        scene = Scene(hosts=1)
        scene.host("h0", state)
        scene.job("j")
        assert scene.act_for(RunAssigned) == []


def test_an_unknown_gpu_type_disturbs_nobody() -> None:
    scene = Scene(hosts=12)
    for index in range(12):
        scene.running(f"v{index}", "b", min_runtime_ms=0)
    scene.rank(a=0.0, b=9.0)
    scene.job("j1", gpus=1, gpu_type="H10O")
    scene.job("j2", gpus=1, gpu_type="H10O")
    facts = scene.act(HOUR)  # S16: eleven runs were killed for two jobs that could never run
    assert {type(fact) for fact in facts} == {PlacementDeferred}
    assert {fact.why.reason for fact in facts if isinstance(fact, PlacementDeferred)} == {Reason.DEFER_NO_SUCH_HOSTS}


def test_victims_are_minimal_and_the_cheapest() -> None:
    scene = Scene(hosts=3)
    scene.running("old", "b", gpus=8, min_runtime_ms=0)
    scene.now = 30 * MINUTE
    scene.running("young", "b", gpus=8, min_runtime_ms=0)
    scene.running("paid", "b", gpus=8, min_runtime_ms=MINUTE)
    scene.rank(a=0.0, b=9.0)
    scene.job("j", gpus=8)
    victims = [fact.job for fact in scene.act_for(RunPreemptionRequested, 40 * MINUTE)]
    assert victims == ["young"]  # unallocated before allocated, then least work lost


def test_small_work_gathers_on_hosts_that_are_broken_into_already() -> None:
    scene = Scene(hosts=2)
    for number in range(8):
        scene.running(f"whole{number}", "b", gpus=1, min_runtime_ms=0)
    scene.running("contract", "b", gpus=4)
    for number in range(4):
        scene.running(f"broken{number}", "b", gpus=1, min_runtime_ms=0)
    scene.job("j", gpus=2)
    victims = [fact.job for fact in scene.act_for(RunPreemptionRequested, MINUTE)]
    assert len(victims) == 2 and all(victim.startswith("broken") for victim in victims)


def test_few_runs_give_way_and_none_larger_than_needed() -> None:
    scene = Scene(hosts=1)
    for name, gpus in (("two", 2), ("one", 1), ("four", 4), ("last", 1)):
        scene.running(name, "b", gpus=gpus, min_runtime_ms=0)
    scene.job("j", gpus=3)
    assert [fact.job for fact in scene.act_for(RunPreemptionRequested, MINUTE)] == ["four"]


def test_a_gang_is_one_victim_and_is_told_once() -> None:
    scene = Scene(hosts=2)
    scene.running("gang", "b", gpus=4, replicas=4, min_runtime_ms=0)
    scene.job("j", gpus=4)
    assert [fact.run for fact in scene.act_for(RunPreemptionRequested)] == ["gang.1"]  # S28


def test_no_victims_unless_all_of_the_placement_can_be_had() -> None:
    scene = Scene(hosts=2)
    scene.running("free", "b", gpus=8, min_runtime_ms=0)
    scene.running("kept", "b", gpus=8)
    scene.rank(a=0.0, b=9.0)
    scene.job("gang", gpus=8, replicas=2)
    assert scene.act_for(RunPreemptionRequested, MINUTE) == []


def test_escrow_holds_until_the_last_victim_is_gone() -> None:
    scene = Scene(hosts=2)
    scene.running("quick", "b", gpus=8, min_runtime_ms=0)
    scene.running("slow", "b", gpus=8, min_runtime_ms=0, grace_ms=2 * MINUTE)
    scene.job("gang", gpus=8, replicas=2)
    assert len(scene.act_for(RunPreemptionRequested, SECOND)) == 2
    scene.exit("quick.1", code=None, signal=15)
    scene.job("thief", "b", gpus=8, min_runtime_ms=0)
    assert scene.act_for(RunAssigned, 5 * SECOND) == []  # S24: nobody takes the half that is free
    scene.exit("slow.1", code=None, signal=15)
    (started,) = scene.act_for(RunAssigned, 90 * SECOND)
    assert (started.job, started.why.reason) == ("gang", Reason.START_ESCROW_COMPLETE)


def test_escrow_ends_at_the_longest_grace_and_slack_and_says_who_is_still_there() -> None:
    scene = Scene(hosts=2)
    scene.running("stuck", "b", gpus=8, min_runtime_ms=0, grace_ms=MINUTE)
    scene.running("kept", "b", gpus=8)
    scene.job("j", gpus=8)
    scene.act(SECOND)
    until = SECOND + MINUTE + scene.policy.escrow_slack_ms
    assert scene.actor.wake_at == until  # P11
    assert scene.act_for(PlacementDeferred, until - 1) == []
    (expired,) = scene.act_for(PlacementDeferred, until)[:1]
    assert expired.why.reason is Reason.DEFER_ESCROW_EXPIRED
    assert expired.why.numbers["victims_still_there"] == 1


def test_an_asker_has_one_victim_set_at_a_time() -> None:
    scene = Scene(hosts=4)
    for index in range(4):
        scene.running(f"v{index}", "b", gpus=8, min_runtime_ms=0)
    scene.job("j", gpus=8)
    asked = scene.act_for(RunPreemptionRequested, SECOND)
    for minute in range(2, 30):
        asked += scene.act_for(RunPreemptionRequested, minute * SECOND)
    assert len(asked) == 1


def test_two_askers_never_share_a_victim() -> None:
    scene = Scene(hosts=2)
    scene.running("v0", "b", gpus=8, min_runtime_ms=0)
    scene.running("v1", "b", gpus=8, min_runtime_ms=0)
    scene.job("j0", gpus=8)
    scene.job("j1", gpus=8)
    asked = {fact.run: fact.by for fact in scene.act_for(RunPreemptionRequested, SECOND)}
    assert sorted(asked.values()) == ["j0", "j1"]


def test_each_start_counts_against_its_budget_before_the_next_preemption() -> None:
    scene = Scene(hosts=2)
    for name in ("v0", "v1"):
        scene.running(name, "b", gpus=8, min_runtime_ms=MINUTE)
    week = 1_000_000_000
    scene.rank(a=1.0 - 8 * HOUR / week, b=1.01)
    scene.job("j0", gpus=8)
    scene.job("j1", gpus=8)
    asked = [fact.by for fact in scene.act_for(RunPreemptionRequested, HOUR)]
    assert asked == ["j0"]  # with j0's commitment, a is no longer lower by the margin


def test_the_placer_wakes_at_the_end_of_a_protection() -> None:
    scene = Scene(hosts=1)
    scene.running("v", "b")
    scene.rank(a=0.0, b=9.0)
    scene.job("j")
    scene.act(MINUTE)
    assert scene.actor.wake_at == HOUR


def test_reserved_hosts_take_only_contracts_that_end_in_time() -> None:
    scene = Scene(hosts=1)
    place = ReplicaPlace(replica=0, host=HostId("h0"), gpus=tuple(range(8)))
    why = Why(rule="P8", reason=Reason.DEFER_NO_ROOM)
    scene.say(ReservationMade(at=0, job=JobId("big"), placement=(place,), latest_start=HOUR, waits_for=(), why=why))
    scene.job("long", gpus=4, min_runtime_ms=2 * HOUR)
    scene.job("short", gpus=2, min_runtime_ms=HOUR // 2)
    scene.job("free", gpus=2, min_runtime_ms=0)
    assert {run.job for run in scene.act_for(RunAssigned)} == {"short", "free"}


def test_ten_thousand_alike_are_asked_once_a_decision() -> None:
    scene = Scene(hosts=2)
    scene.running("v", "b", gpus=8, replicas=2)
    for index in range(300):
        scene.job(f"j{index:04}", gpus=8)
    assert len(scene.act_for(PlacementDeferred, SECOND)) == 300
    assert scene.act(2 * SECOND) == []  # said once


def test_a_restart_decides_the_same() -> None:
    scene = Scene(hosts=3)
    scene.running("v", "b", gpus=8, min_runtime_ms=0)
    scene.job("a1", gpus=8, replicas=3)
    scene.act(SECOND)
    before = scene.actor.role.dump(scene.actor.state)
    scene.actor.restart(with_snapshot=False)
    assert scene.act(2 * SECOND) == []
    assert scene.actor.role.dump(scene.actor.state) == before


def test_a_decision_stays_below_one_append_however_many_escrows_are_complete_at_once() -> None:
    scene = Scene(hosts=STARTS_MAX + 10)
    for index in range(STARTS_MAX + 10):
        scene.job(f"v{index:04}", "b", gpus=8, min_runtime_ms=0)
    scene.act()
    for run in list(scene.actor.state.core.runs):
        scene.start(run)
    scene.order.clear()
    for index in range(STARTS_MAX + 10):
        scene.job(f"j{index:04}", gpus=8)
    told = scene.act_for(RunPreemptionRequested, SECOND)
    assert len(told) == STARTS_MAX + 10
    for fact in told:
        scene.exit(fact.run, code=None, signal=15)
    scene.actor.fold()
    while not (facts := [fact for fact in scene.actor.step(2 * SECOND) if isinstance(fact, RunAssigned)]):
        pass
    assert len(facts) == STARTS_MAX
    assert len(scene.act_for(RunAssigned)) == 10


def test_a_right_that_came_with_a_start_is_used_in_the_next_decision() -> None:
    scene = Scene(hosts=3)
    run = scene.running("busy", "b")
    scene.running("part", "c", gpus=4, min_runtime_ms=8 * HOUR)
    scene.now += 2 * HOUR
    scene.job("starts", "b", min_runtime_ms=8 * HOUR)  # raises the ratio of b above that of a
    scene.job("asks", "a", gpus=8)
    step = scene.actor.step
    assert [type(fact) for fact in step(scene.now)] == [RunAssigned]
    told = [fact.run for fact in step(scene.now) if isinstance(fact, RunPreemptionRequested)]
    assert told == [run], "from the start of the order, as a restored placer would look"
