import pytest

from services.gateway.evolve import READS, evolve
from services.gateway.policy.transitions import IllegalTransitionError
from services.gateway.state import State, initial
from tenure.domain.host import HostState
from tenure.domain.ids import HostId, JobId, Position, RunId, UserName
from tenure.domain.job import JobSpec, Launch
from tenure.domain.reasons import EndCause, JobState, Reason, Why
from tenure.events.budgets import JobAdmitted, JobRejected, RunCharged
from tenure.events.catalogue import KINDS
from tenure.events.fact import Fact, Recorded
from tenure.events.hosts import HostStateChanged
from tenure.events.intake import JobCancelRequested, JobSubmitted
from tenure.events.placing import (
    JobFinished,
    JobRequeued,
    PlacementDeferred,
    ReservationDropped,
    ReservationMade,
    RunAssigned,
    RunEnded,
    RunPreemptionRequested,
    RunStarted,
)
from tenure.events.ranking import RankingPublished
from tenure.events.reports import CheckpointReported, Heartbeat
from tests.contract.gateway_rig import NOW, a_cluster, assigned, place

WHY = Why(rule="P6", reason=Reason.DEFER_NO_ROOM)
JOB, RUN = JobId("j1"), RunId("j1.1")
SPEC = JobSpec(
    budget="science/chem",
    user=UserName("ana"),
    gpus_per_replica=8,
    launch=Launch(command=("true",)),
    min_runtime_ms=900,
)


def fold(state: State, *facts: Fact) -> State:
    for fact in facts:
        evolve(state, Recorded(Position(state.position + 1), fact))
    return state


def a_queued_job() -> State:
    state = fold(initial(), *a_cluster())
    return fold(
        state,
        JobSubmitted(at=NOW, job=JOB, spec=SPEC),
        JobAdmitted(at=NOW + 1, job=JOB, spec=SPEC, submitted_at=NOW),
    )


def a_running_job() -> State:
    state = a_queued_job()
    fold(state, assigned(state, JOB, place("h000"), at=NOW + 2))
    return fold(state, RunStarted(at=NOW + 3, run=RUN, job=JOB, protected_until=NOW + 903, charged=True, hosts={}))


def ended(cause: EndCause = EndCause.COMPLETED, *, at: int = NOW + 10) -> RunEnded:
    return RunEnded(at=at, run=RUN, job=JOB, cause_of_end=cause, exit_code=0, why=WHY)


def test_every_kind_of_fact_is_read_but_heartbeats() -> None:
    assert set(READS) == set(KINDS.values()) - {Heartbeat}


def test_a_job_goes_from_submitted_to_completed() -> None:
    state, seen = fold(initial(), *a_cluster()), []
    fold(state, JobSubmitted(at=NOW, job=JOB, spec=SPEC))
    for fact in (
        JobAdmitted(at=NOW + 1, job=JOB, spec=SPEC, submitted_at=NOW),
        assigned(state, JOB, place("h000"), at=NOW + 2),
        RunStarted(at=NOW + 3, run=RUN, job=JOB, protected_until=NOW + 903, charged=True, hosts={}),
        ended(),
        JobFinished(at=NOW + 11, job=JOB, state=JobState.COMPLETED, exit_code=0, why=WHY),
    ):
        seen.append(state.jobs[JOB].state)
        fold(state, fact)
    assert seen == [JobState.SUBMITTED, JobState.QUEUED, JobState.STARTING, JobState.RUNNING, JobState.STOPPING]
    entry = state.jobs[JOB]
    assert (entry.state, entry.first_started_at, entry.finished_at) == (JobState.COMPLETED, NOW + 3, NOW + 11)
    assert entry.runs[0].state == "completed"
    assert list(state.over) == [JOB]
    assert all(not jobs for jobs in state.live.values())


def test_a_preempted_resumable_job_waits_again_with_both_runs_told() -> None:
    state = a_running_job()
    fold(
        state,
        RunPreemptionRequested(at=NOW + 9, run=RUN, job=JOB, by="j2", why=WHY, escrow=place("h000")),
        ended(EndCause.PREEMPTED),
        JobRequeued(at=NOW + 11, job=JOB, run=RUN, submitted_at=NOW, resume_count=1, why=WHY),
    )
    assert state.jobs[JOB].state is JobState.QUEUED
    fold(state, assigned(state, JOB, place("h001"), at=NOW + 12, number=2))
    entry = state.jobs[JOB]
    assert [run.state for run in entry.runs] == ["preempted", "starting"]
    assert (entry.resume_count, entry.state) == (1, JobState.STARTING)


def test_a_run_told_to_stop_while_it_starts_may_still_report_its_start() -> None:
    state = a_queued_job()
    fold(
        state,
        assigned(state, JOB, place("h000")),
        RunPreemptionRequested(at=NOW + 3, run=RUN, job=JOB, by="h000", why=WHY),
        RunStarted(at=NOW + 4, run=RUN, job=JOB, protected_until=NOW + 904, charged=True, hosts={}),
    )
    assert state.jobs[JOB].state is JobState.STOPPING
    assert state.jobs[JOB].runs[0].state == "stopping"


def test_rejected_is_the_end() -> None:
    state = fold(initial(), JobSubmitted(at=NOW, job=JOB, spec=SPEC))
    fold(state, JobRejected(at=NOW + 5, job=JOB, why=Why(rule="admission", reason=Reason.REJECT_ADMISSION)))
    entry = state.jobs[JOB]
    assert (entry.state, entry.finished_at) == (JobState.REJECTED, NOW + 5)


def test_a_queued_job_that_is_cancelled_is_finished_from_the_queue() -> None:
    state = fold(a_queued_job(), JobCancelRequested(at=NOW + 2, job=JOB, by=UserName("ana")))
    assert (state.jobs[JOB].state, state.jobs[JOB].cancel_asked) == (JobState.QUEUED, True)
    fold(state, JobFinished(at=NOW + 3, job=JOB, state=JobState.CANCELLED, why=WHY))
    assert state.jobs[JOB].state is JobState.CANCELLED


def test_a_job_cannot_end_twice() -> None:
    state = fold(a_running_job(), ended(), JobFinished(at=NOW + 11, job=JOB, state=JobState.FAILED, why=WHY))
    with pytest.raises(IllegalTransitionError, match="j1 is failed"):
        fold(state, JobFinished(at=NOW + 12, job=JOB, state=JobState.COMPLETED, why=WHY))


def test_a_job_that_is_over_cannot_be_given_hosts() -> None:
    state = fold(a_running_job(), ended(), JobFinished(at=NOW + 11, job=JOB, state=JobState.FAILED, why=WHY))
    with pytest.raises(IllegalTransitionError, match="RunAssigned cannot follow"):
        fold(state, assigned(state, JOB, place("h000"), number=2))


def test_hosts_and_budgets_hold_gpus_from_assignment_to_end() -> None:
    state = a_running_job()
    assert state.hosts[HostId("h000")].runs == {RUN: 8}
    assert (state.held["science/chem"].allocated, state.held["science/chem"].unallocated) == (8, 0)
    fold(state, ended())
    assert state.hosts[HostId("h000")].held == 0
    assert state.held["science/chem"].allocated == 0


def reserved(latest_start: int, *hosts: str, waits_for: tuple[RunId, ...] = ()) -> ReservationMade:
    return ReservationMade(
        at=NOW + 3, job=JOB, placement=place(*hosts), latest_start=latest_start, waits_for=waits_for, why=WHY
    )


def test_a_waiting_job_shows_why_and_its_latest_start() -> None:
    state = fold(a_queued_job(), PlacementDeferred(at=NOW + 2, job=JOB, why=WHY), reserved(NOW + 99, "h000"))
    kept = state.jobs[JOB].reservation
    assert kept is not None
    assert (state.jobs[JOB].why, kept.latest_start, kept.placement) == (WHY, NOW + 99, place("h000"))
    fold(state, assigned(state, JOB, place("h000")))
    assert state.jobs[JOB].reservation is None


def test_a_better_reservation_replaces_the_earlier_one() -> None:
    other = RunId("j2.1")
    state = fold(a_queued_job(), reserved(NOW + 99, "h000"), reserved(NOW + 50, "h001", waits_for=(other,)))
    kept = state.jobs[JOB].reservation
    assert kept is not None
    assert (kept.latest_start, kept.placement, kept.waits_for) == (NOW + 50, place("h001"), (other,))


def test_a_reservation_that_was_dropped_is_not_shown_and_its_reason_is() -> None:
    gone = Why(rule="P8", reason=Reason.RESERVE_HOST_GONE, numbers={"host": "h000"})
    state = fold(a_queued_job(), reserved(NOW + 99, "h000"), ReservationDropped(at=NOW + 4, job=JOB, why=gone))
    assert (state.jobs[JOB].reservation, state.jobs[JOB].why) == (None, gone)


def test_what_is_freed_is_held_for_the_asker_until_it_starts_or_time_is_up() -> None:
    asker = JobId("j2")
    expired = Why(rule="P7", reason=Reason.DEFER_ESCROW_EXPIRED)
    asked = RunPreemptionRequested(at=NOW + 9, run=RUN, job=JOB, by=asker, why=WHY, escrow=place("h000"))
    for end in (
        lambda state: assigned(state, asker, place("h000")),
        lambda state: PlacementDeferred(at=NOW + 10, job=asker, why=expired),
        lambda state: JobFinished(at=NOW + 10, job=asker, state=JobState.CANCELLED, why=WHY),
    ):
        state = fold(a_running_job(), JobAdmitted(at=NOW + 4, job=asker, spec=SPEC, submitted_at=NOW), asked)
        assert state.jobs[asker].escrow == place("h000")
        fold(state, ended(EndCause.PREEMPTED), end(state))
        assert state.jobs[asker].escrow == ()


def test_the_rank_is_the_place_in_the_latest_order() -> None:
    state = a_queued_job()
    assert state.rank(JOB) == 0
    fold(state, RankingPublished(at=NOW, order=(JobId("j0"), JOB), standings=(), basis=Position(1)))
    assert state.rank(JOB) == 2
    fold(state, RankingPublished(at=NOW, order=(JOB,), standings=(), basis=Position(2)))
    assert state.rank(JOB) == 1


def test_charges_and_refunds_add_up_over_runs() -> None:
    state = fold(a_running_job(), ended(EndCause.HOST_LOST))
    charge = RunCharged(
        at=NOW, run=RUN, job=JOB, budget="science/chem", user="ana", charged_gpu_ms=70, refunded_gpu_ms=30, why=WHY
    )
    fold(state, charge)
    entry = state.jobs[JOB]
    assert (entry.charged_gpu_ms, entry.refunded_gpu_ms, entry.runs[0].books_closed) == (70, 30, True)


def test_facts_about_jobs_that_are_not_kept_change_nothing() -> None:
    state = fold(initial(), *a_cluster())
    fold(
        state,
        CheckpointReported(at=NOW, run=RUN, job=JOB, host=HostId("h000")),
        RunCharged(at=NOW, run=RUN, job=JOB, budget="science/chem", user="ana", charged_gpu_ms=1, why=WHY),
    )
    assert state.jobs == {}


def test_the_position_of_a_job_is_that_of_its_last_fact() -> None:
    state = a_running_job()
    before = state.jobs[JOB].position
    fold(state, HostStateChanged(at=NOW, host="h001", state=HostState.SUSPECT, previous=None, last_seen=NOW, why=WHY))
    assert state.jobs[JOB].position == before
    fold(state, CheckpointReported(at=NOW, run=RUN, job=JOB, host=HostId("h000")))
    assert state.jobs[JOB].position == state.position


def test_an_assigned_run_is_unallocated_without_minimum_runtime() -> None:
    state = a_queued_job()
    fact = assigned(state, JOB, place("h000", gpus=3))
    free = RunAssigned(**{name: getattr(fact, name) for name in fact.__struct_fields__} | {"min_runtime_ms": 0})
    fold(state, free)
    assert (state.held["science/chem"].allocated, state.held["science/chem"].unallocated) == (0, 3)
