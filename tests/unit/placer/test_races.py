"""What others write between a decision of the placer and its append, and facts in unexpected order."""

import msgspec

from tenure.domain.host import HostState
from tenure.domain.ids import FactId, HostId, JobId
from tenure.domain.job import gpus_by_host
from tenure.domain.reasons import EndCause, JobState, Reason, Why
from tenure.domain.units import HOUR, MINUTE
from tenure.events.budgets import JobAdmitted
from tenure.events.hosts import HostStateChanged
from tenure.events.placing import (
    JobFinished,
    JobRequeued,
    PlacementDeferred,
    RunAssigned,
    RunEnded,
    RunPreemptionRequested,
    RunStopRequested,
)
from tenure.events.reports import HostRegistered
from tests.checks.invariants import check_holding
from tests.unit.placer.scene import Scene, spec


def registered(scene: Scene, *, gpus: int) -> None:
    """The agent of h0 registers it with so many GPUs."""
    scene.say(HostRegistered(at=scene.now, agent="a", hosts=(spec("h0", gpus=gpus),)))


def test_a_cancel_between_decision_and_start_stops_the_run_and_ends_the_job_once() -> None:
    scene = Scene(hosts=1)
    scene.job("j")
    scene.actor.step(1, between=lambda: scene.cancel("j"))
    (stop,) = scene.act(2)
    assert isinstance(stop, RunStopRequested) and stop.cause_of_end is EndCause.CANCELLED
    scene.exit("j.1", code=None, signal=15)
    assert [fact.state for fact in scene.act(3) if isinstance(fact, JobFinished)] == [JobState.CANCELLED]
    scene.actor.restart(with_snapshot=False)
    assert scene.act(4) == []


def test_a_placer_killed_between_append_and_effect_starts_nothing_twice() -> None:
    for with_snapshot in (True, False):
        scene = Scene(hosts=2)
        scene.job("j")
        (assigned,) = scene.actor.step(1)
        scene.actor.restart(with_snapshot=with_snapshot)  # before it has read what it wrote, before any agent has
        assert scene.act_for(RunAssigned, 2) == []
        scene.start("j.1")
        scene.exit("j.1")
        assert [fact.run for fact in scene.act_for(RunEnded, 3)] == [assigned.run]  # type: ignore[attr-defined]


def test_a_host_drained_between_decision_and_start_gets_no_run() -> None:
    scene = Scene(hosts=1)
    scene.job("j")
    assert scene.actor.step(1, between=lambda: scene.host("h0", HostState.DRAINING)) == ()
    assert scene.act_for(RunAssigned, 2) == []


def test_a_host_may_come_back_with_fewer_gpus_at_any_time() -> None:
    scene = Scene(hosts=1)
    scene.job("j")
    scene.actor.step(1, between=lambda: registered(scene, gpus=4))  # while a run on all 8 is on its way
    scene.actor.fold()
    scene.start("j.1")
    scene.act(2)
    for with_snapshot in (True, False):
        scene.actor.restart(with_snapshot=with_snapshot)
        assert scene.act(3) == []
    registered(scene, gpus=8)
    scene.job("k", gpus=4)
    assert scene.act_for(RunAssigned, 4) == [], "the run still holds all of them"
    scene.exit("j.1")
    scene.act(5)
    check_holding([recorded.fact for recorded in scene.log.recorded])


def test_the_end_of_a_run_and_what_becomes_of_its_job_are_written_together() -> None:
    scene = Scene(hosts=150)
    runs = [scene.running(f"j{number:04}", gpus=1) for number in range(1_100)]
    for run in runs:
        scene.exit(run)
    facts = scene.actor.step(5)
    assert len(facts) <= 1_000, "an append of more would not be atomic"
    ended = {fact.job for fact in facts if isinstance(fact, RunEnded)}
    assert ended == {fact.job for fact in facts if isinstance(fact, JobFinished)}
    scene.act(6)
    assert not scene.actor.state.core.jobs


def test_a_log_that_was_cut_after_the_end_of_a_run_loses_no_job() -> None:
    scene = Scene(hosts=2)
    runs = [scene.running("done"), scene.running("lost", resumable=True)]
    scene.exit(runs[0], code=3)
    scene.host(next(iter(scene.actor.state.core.runs[runs[1]].hosts)), HostState.LOST)
    scene.actor.fold()
    facts = scene.actor.role.decide(scene.actor.state, scene.now).facts
    for number, fact in enumerate(facts):
        if isinstance(fact, RunEnded):  # only these reached the disk before the power went
            scene.log.append_now([msgspec.structs.replace(fact, id=FactId(f"cut-{number}"))])
    for with_snapshot in (False, True):
        scene.actor.restart(with_snapshot=with_snapshot)
        scene.actor.fold()
    after = scene.act(9)
    assert [fact.job for fact in after if isinstance(fact, JobFinished)] == ["done"]
    assert [fact.job for fact in after if isinstance(fact, JobRequeued)] == ["lost"]


def test_a_job_admitted_twice_is_the_same_job() -> None:
    scene = Scene(hosts=2)
    run = scene.running("j")
    job = scene.actor.state.core.jobs[JobId("j")]
    scene.say(JobAdmitted(at=9, job=job.job, spec=job.spec, submitted_at=0))
    scene.rank(order=["j"])
    assert scene.act_for(RunAssigned, 10) == []
    assert scene.actor.state.core.jobs[JobId("j")].run == run


def test_a_suspect_host_does_not_cost_the_asker_a_second_set_of_victims() -> None:
    scene = Scene(hosts=2)
    scene.running("v0", "b", min_runtime_ms=0, grace_ms=MINUTE)
    scene.running("v1", "b", min_runtime_ms=0, grace_ms=MINUTE)
    scene.job("j")
    (told,) = scene.act_for(RunPreemptionRequested, 1_000)
    host = next(iter(gpus_by_host(told.escrow)))
    scene.host(host, HostState.SUSPECT)
    assert scene.act_for(RunPreemptionRequested, 2_000) == []
    expired = scene.act(1_000 + MINUTE + scene.policy.escrow_slack_ms)
    assert not [fact for fact in expired if isinstance(fact, RunPreemptionRequested)], "the first victim is still going"


def overdue_scene() -> tuple[Scene, str]:
    """Two hosts, an unallocated run of 4 GPUs on each; one was told to end for a job and is still there too late."""
    scene = Scene(hosts=2)
    for name in ("v0", "v1"):
        scene.running(name, "b", min_runtime_ms=0, gpus=8, grace_ms=MINUTE)
    scene.job("j", gpus=4)
    (told,) = scene.act_for(RunPreemptionRequested, 1_000)
    (expired,) = scene.act_for(PlacementDeferred, 1_000 + MINUTE + scene.policy.escrow_slack_ms)[:1]
    host = next(iter(gpus_by_host(told.escrow)))
    assert expired.overdue == {host: (told.run,)}
    return scene, host


def call_suspect(scene: Scene, host: str) -> None:
    """Health hears the host and says that it keeps what it should have released."""
    why = Why(rule="P7", reason=Reason.HOST_OVERDUE, numbers={"runs": 1})
    fact = HostStateChanged(
        at=scene.now, host=HostId(host), state=HostState.SUSPECT, previous=None, last_seen=scene.now, why=why
    )
    scene.say(fact)


def test_nothing_starts_on_a_host_that_does_not_release_before_health_has_said_so() -> None:
    scene = Scene(hosts=1)
    scene.running("v", "b", min_runtime_ms=0, gpus=4, grace_ms=MINUTE)
    scene.job("j", gpus=8)
    scene.act(1_000)
    scene.job("small", "b", gpus=1)
    assert scene.act_for(RunAssigned, 1_000 + MINUTE + scene.policy.escrow_slack_ms) == []  # 4 GPUs are free
    assert scene.actor.role.load(scene.actor.role.dump(scene.actor.state)).overdue == {"h0": {"v.1": None}}
    scene.exit("v.1", code=None, signal=9)
    assert [fact.job for fact in scene.act_for(RunAssigned)] == ["j"]


def test_the_asker_asks_for_others_once_health_hears_a_host_that_keeps_its_victim() -> None:
    scene, host = overdue_scene()
    assert scene.act_for(RunPreemptionRequested, scene.now + MINUTE) == []
    call_suspect(scene, host)
    (told,) = scene.act_for(RunPreemptionRequested, scene.now + 1)
    assert (told.by, host in gpus_by_host(told.escrow)) == ("j", False)
    scene.exit(told.run, code=None, signal=15)
    assert [fact.job for fact in scene.act_for(RunAssigned)][:1] == ["j"]


def test_a_restart_knows_of_hosts_that_are_overdue() -> None:
    scene, host = overdue_scene()
    call_suspect(scene, host)
    scene.actor.fold()
    kept = scene.actor.state
    again = scene.actor.role.load(scene.actor.role.dump(kept))
    assert (again.overdue, again.waited_for) == (kept.overdue, kept.waited_for) == ({host: {f"v{host[1]}.1": None}}, {})


def test_an_escrow_whose_gpus_are_all_free_does_not_expire() -> None:
    scene = Scene(hosts=1)
    scene.running("v", "b", min_runtime_ms=0, grace_ms=MINUTE)
    scene.job("j")
    scene.act(1_000)
    scene.exit("v.1", code=None, signal=15)
    assert [fact.job for fact in scene.act_for(RunAssigned, HOUR)] == ["j"]  # the placer was away meanwhile


def test_a_gang_that_failed_by_itself_is_not_run_again_because_its_host_is_lost_then() -> None:
    scene = Scene(hosts=2)
    run = scene.running("g", replicas=2)
    scene.exit(run, code=7, only=0)
    scene.act(5)
    other = next(place.host for place in scene.actor.state.core.runs[run].placement if place.replica == 1)
    scene.host(other, HostState.LOST, last_seen=5)
    facts = scene.act(10)
    assert not [fact for fact in facts if isinstance(fact, JobRequeued)]
    assert [fact.state for fact in facts if isinstance(fact, JobFinished)] == [JobState.FAILED]


def test_the_cheapest_victims_of_all_pools_go() -> None:
    scene = Scene(hosts=0)
    scene.say(HostRegistered(at=0, agent="a", hosts=(spec("a0", gpu_type="A100"), spec("h0", gpu_type="H100"))))
    for host in ("a0", "h0"):
        scene.host(host, HostState.HEALTHY)
    scene.running("paid", "b", gpu_type="A100", min_runtime_ms=MINUTE)
    scene.running("free", "b", gpu_type="H100", min_runtime_ms=0)
    scene.rank(a=0.0, b=9.0)
    scene.job("j")
    assert [fact.job for fact in scene.act_for(RunPreemptionRequested, HOUR)] == ["free"]


def test_a_changed_reason_is_said_when_its_time_has_come() -> None:
    scene = Scene(hosts=3)
    full = [scene.running(name, "b") for name in ("x", "y", "z")]
    for name in ("p", "q", "r"):
        scene.job(name, "b", gpus=5)
    scene.job("j", "b")
    said = {fact.job: fact.why.reason for fact in scene.act_for(PlacementDeferred, 1_000)}
    assert said["j"] is Reason.DEFER_NO_ROOM
    for run in full:
        scene.exit(run)
    assert scene.act_for(PlacementDeferred, 2_000) == [], "nine GPUs are free in pieces now, but that is soon"
    assert scene.actor.wake_at == 1_000 + MINUTE
    (again,) = scene.act_for(PlacementDeferred, 1_000 + MINUTE)
    assert (again.job, again.why.reason) == ("j", Reason.DEFER_FRAGMENTED)


def test_runs_on_one_cluster_never_share_a_rendezvous_port() -> None:
    scene = Scene(hosts=20)
    ports = set()
    for number in range(100):
        scene.job(f"j{number}", gpus=1)
        (run,) = scene.act_for(RunAssigned, number)
        ports.add(run.master_port)
        scene.say(spec_filler(scene))
    assert len(ports) == 100


def spec_filler(scene: Scene) -> HostRegistered:
    """A fact that moves the position on without meaning anything new."""
    return HostRegistered(at=scene.now, agent="a", hosts=(spec("h0"),))
