"""What becomes of runs and jobs as agents report (settle), and of cancels: P10, I2, I4."""

from tenure.domain.host import HostState
from tenure.domain.reasons import EndCause, JobState, Reason
from tenure.domain.units import HOUR
from tenure.events.placing import (
    JobFinished,
    JobRequeued,
    RunAssigned,
    RunEnded,
    RunPreemptionRequested,
    RunStarted,
    RunStopRequested,
)
from tenure.events.reports import ReplicaExit, ReplicasExited
from tests.unit.placer.scene import Scene


def preempted(**victim: object) -> Scene:
    """`v` of budget b holds the only host and was told at 2 h to give way to `j` of budget a."""
    scene = Scene(hosts=1)
    scene.running("v", "b", **victim)  # type: ignore[arg-type]
    scene.rank(a=0.1, b=2.0)
    scene.job("j", "a")
    assert scene.act_for(RunPreemptionRequested, 2 * HOUR)
    return scene


def test_a_run_starts_when_its_last_replica_does() -> None:
    scene = Scene(hosts=2)
    scene.job("j", replicas=2)
    scene.act(10)
    scene.now = 20
    scene.start("j.1")
    (started,) = scene.act_for(RunStarted)
    assert (started.at, started.protected_until, started.charged) == (20, 20 + HOUR, True)
    assert started.hosts == {"h0": tuple(range(8)), "h1": tuple(range(8))}


def test_completed_failed_and_killed_by_signal() -> None:
    scene = Scene(hosts=3)
    runs = [scene.running(name) for name in ("ok", "bad", "killed")]
    for run, code, signal in zip(runs, (0, 3, None), (None, None, 9), strict=True):
        scene.exit(run, code=code, signal=signal)
    finished = {fact.job: (fact.state, fact.exit_code) for fact in scene.act_for(JobFinished, 5)}
    assert finished == {
        "ok": (JobState.COMPLETED, 0),
        "bad": (JobState.FAILED, 3),
        "killed": (JobState.FAILED, 137),
    }


def test_one_failing_replica_brings_the_gang_down_and_ends_it_once() -> None:
    scene = Scene(hosts=2)
    run = scene.running("g", replicas=2)
    scene.exit(run, code=7, only=1)
    (stop,) = scene.act_for(RunStopRequested, 5)
    assert (stop.why.reason, stop.why.numbers["exit_code"]) == (Reason.STOP_GANG_BROKEN, 7)
    assert scene.act(6) == []  # the rest is still there: the GPUs are not free
    scene.exit(run, code=None, signal=15, only=0)
    ended, finished = scene.act(7)
    assert isinstance(ended, RunEnded) and ended.cause_of_end is EndCause.FAILED and ended.exit_code == 7
    assert isinstance(finished, JobFinished) and finished.state is JobState.FAILED


def test_a_preempted_resumable_job_goes_back_with_its_submit_time() -> None:
    scene = preempted(resumable=True)
    scene.exit("v.1", code=None, signal=15)
    ended, requeued, assigned = scene.act(2 * HOUR + 5)
    assert isinstance(ended, RunEnded) and (ended.cause_of_end, ended.by) == (EndCause.PREEMPTED, "j")
    assert isinstance(requeued, JobRequeued) and (requeued.submitted_at, requeued.resume_count) == (0, 1)
    assert isinstance(assigned, RunAssigned) and assigned.why.reason is Reason.START_ESCROW_COMPLETE


def test_a_preempted_job_that_cannot_resume_is_over() -> None:
    scene = preempted(resumable=False)
    scene.exit("v.1", code=None, signal=15)
    (finished,) = scene.act_for(JobFinished, 2 * HOUR + 5)
    assert finished.state is JobState.PREEMPTED


def test_a_normal_exit_inside_the_grace_period_wins() -> None:
    scene = preempted(resumable=True)
    scene.exit("v.1", code=0)
    (finished,) = scene.act_for(JobFinished, 2 * HOUR + 5)
    assert finished.state is JobState.COMPLETED


def test_an_exit_with_status_0_after_saving_for_later_is_a_preemption() -> None:
    scene = preempted(resumable=True)
    scene.now += 3
    scene.checkpoint("v.1")
    scene.exit("v.1", code=0)
    assert [fact.why.reason for fact in scene.act_for(JobRequeued)] == [Reason.REQUEUE_PREEMPTED]


def test_cancel_while_queued_starting_and_running() -> None:
    scene = Scene(hosts=2)
    scene.cancel("early")  # before it was admitted
    scene.job("early")
    scene.job("queued", replicas=2)
    scene.cancel("queued")
    assert {fact.job for fact in scene.act_for(JobFinished)} == {"early", "queued"}
    scene.job("starting")
    scene.act()
    run = scene.running("running")
    scene.cancel("starting")
    scene.cancel("running")
    stops = {fact.job: fact.cause_of_end for fact in scene.act_for(RunStopRequested)}
    assert stops == {"starting": EndCause.CANCELLED, "running": EndCause.CANCELLED}
    scene.exit(run, code=0)
    scene.exit("starting.1", code=None, signal=15)
    ends = [fact for fact in scene.act() if isinstance(fact, RunEnded | JobFinished)]
    assert {fact.cause_of_end for fact in ends if isinstance(fact, RunEnded)} == {EndCause.CANCELLED}
    assert {fact.state for fact in ends if isinstance(fact, JobFinished)} == {JobState.CANCELLED}


def test_a_cancel_between_preemption_and_requeue_finishes_the_job() -> None:
    scene = preempted(resumable=True)
    scene.cancel("v")
    scene.exit("v.1", code=None, signal=15)
    (finished,) = scene.act_for(JobFinished, 2 * HOUR + 1)
    assert (finished.job, finished.state) == ("v", JobState.CANCELLED)


def test_a_lost_host_ends_its_gang_everywhere_and_requeues_even_what_cannot_resume() -> None:
    scene = Scene(hosts=3)
    run = scene.running("g", replicas=2)
    lost = scene.actor.state.core.runs[run].placement[0].host
    scene.now = 50
    scene.host(lost, HostState.LOST, last_seen=40)
    (stop,) = scene.act_for(RunStopRequested)
    assert (stop.cause_of_end, stop.by) == (EndCause.HOST_LOST, lost)
    scene.exit(run, code=None, signal=15, only=1)
    ended, requeued = scene.act(60)[:2]
    assert isinstance(ended, RunEnded) and (ended.cause_of_end, ended.by, ended.at) == (EndCause.HOST_LOST, lost, 50)
    assert isinstance(requeued, JobRequeued) and requeued.why.reason is Reason.REQUEUE_HOST_LOST


def test_a_run_given_to_a_host_that_was_dead_already_does_not_end_before_it_began() -> None:
    scene = Scene(hosts=1)
    scene.now = 60
    run = scene.running("j")
    lost = scene.actor.state.core.runs[run].placement[0].host
    scene.host(lost, HostState.LOST, last_seen=40)
    (ended,) = scene.act_for(RunEnded, 100)
    assert ended.at == 60, "the last sign of life of the host came before the run was placed"


def test_reports_said_twice_or_too_late_change_nothing() -> None:
    scene = Scene(hosts=1)
    run = scene.running("j")
    held = scene.actor.state.core.runs[run]
    late = tuple(ReplicaExit(replica=p.replica, host=p.host, at=9, code=1) for p in held.placement)
    scene.start(run)
    scene.exit(run, code=0)
    assert len(scene.act_for(RunEnded, 5)) == 1
    scene.say(ReplicasExited(at=9, run=run, job=held.job, replicas=late))
    assert scene.act(10) == []
