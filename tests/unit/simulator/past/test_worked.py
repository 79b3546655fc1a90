"""How long jobs work, from what they did: one host, instants in hours."""

from simulator.past.story import Past
from simulator.past.worked import behaviours_of
from simulator.simulation import Work
from tenure.domain.ids import JobId, UserName
from tenure.domain.reasons import EndCause, JobState
from tenure.domain.units import HOUR, MINUTE, Millis
from tests.unit.simulator.past.diary import Diary

WORK = Work(restart_overhead_ms=6 * MINUTE)


def runs_for(diary: Diary, job: str, *, until: float = 100) -> Millis:
    return behaviours_of(Past(diary.facts).jobs, until=round(until * HOUR), work=WORK).by_job[JobId(job)].runs_for_ms


def test_a_job_that_came_to_its_end_worked_as_long_as_it_did() -> None:
    diary = Diary()
    diary.ran("j", 1, 4)
    assert runs_for(diary, "j") == 3 * HOUR


def test_a_stopped_job_that_saves_has_the_work_of_all_its_runs_without_what_starting_again_took() -> None:
    diary = Diary()
    diary.ran("j", 1, 4, cause=EndCause.PREEMPTED, saved=4, resumable=True)
    diary.ran("j", 6, 8.1, resumable=True)
    assert runs_for(diary, "j") == 5 * HOUR


def test_what_a_lost_host_threw_away_is_work_once() -> None:
    diary = Diary()
    diary.ran("j", 0, 4, cause=EndCause.HOST_LOST, saved=3, resumable=True)
    diary.ran("j", 5, 7.1, resumable=True)
    assert runs_for(diary, "j") == 5 * HOUR


def test_a_job_that_saves_nothing_worked_as_long_as_its_last_run() -> None:
    diary = Diary()
    diary.ran("j", 0, 4, cause=EndCause.HOST_LOST)
    diary.ran("j", 5, 11)
    assert runs_for(diary, "j") == 6 * HOUR


def test_one_that_runs_when_the_log_ends_works_as_long_as_those_of_its_user_who_worked_longer() -> None:
    diary = Diary()
    for number, hours in enumerate([1, 3, 5, 9]):
        diary.ran(f"ended{number}", 0, hours)
    diary.ran("other", 0, 90, user="ben")
    diary.ran("j", 10, None)
    assert runs_for(diary, "j", until=12) == 5 * HOUR, "the median of 3, 5 and 9: longer than the 2 that it has"
    assert runs_for(diary, "j", until=20) == 90 * HOUR, "nobody of the same user, then of the same budget"
    assert runs_for(diary, "j", until=200) == 191 * HOUR, "nobody at all: an hour more"


def test_a_queued_job_works_as_long_as_the_median() -> None:
    diary = Diary()
    for number, hours in enumerate([1, 3, 5]):
        diary.ran(f"ended{number}", 0, hours)
    diary.submit("j", 1)
    made = behaviours_of(Past(diary.facts).jobs, until=9 * HOUR, work=WORK)
    assert made.by_job[JobId("j")].runs_for_ms == 3 * HOUR and made.estimated == 1


def test_who_was_cancelled_or_preempted_would_have_worked_longer() -> None:
    diary = Diary()
    diary.ran("ended", 0, 7)
    diary.ran("gone", 0, 4, cause=EndCause.CANCELLED, state=JobState.CANCELLED)
    diary.ran("hit", 0, 5, cause=EndCause.PREEMPTED, state=JobState.PREEMPTED)
    assert runs_for(diary, "gone") == 7 * HOUR and runs_for(diary, "hit") == 7 * HOUR


def test_a_failure_fails_again_and_who_saved_nothing_saves_nothing() -> None:
    diary = Diary()
    diary.ran("fails", 0, 1, cause=EndCause.FAILED, state=JobState.FAILED, exit_code=3)
    diary.ran("loses", 0, 1, cause=EndCause.PREEMPTED, resumable=True)
    diary.ran("saves", 0, 1, cause=EndCause.PREEMPTED, resumable=True, saved=1)
    made = behaviours_of(Past(diary.facts).jobs, until=9 * HOUR, work=WORK).by_job
    assert made[JobId("fails")].exit_code == 3
    assert not made[JobId("loses")].saves_on_stop and made[JobId("saves")].saves_on_stop


def test_starting_and_stopping_take_as_long_as_they_did_or_as_is_usual() -> None:
    diary = Diary()
    diary.ran("slow", 1, 2, starts_after=2 * MINUTE, user="ben")
    diary.ran("told", 1, 2, cause=EndCause.PREEMPTED, state=JobState.PREEMPTED, told=2 - 20 / 3600)
    diary.submit("queued", 3)
    made = behaviours_of(Past(diary.facts).jobs, until=9 * HOUR, work=WORK).by_job
    assert made[JobId("slow")].starts_after_ms == 2 * MINUTE and made[JobId("told")].starts_after_ms == 0
    assert made[JobId("queued")].starts_after_ms == 2 * MINUTE, "the upper one of 0 and 2 min"
    assert [made[JobId(job)].stops_after_ms for job in ("told", "queued")] == [20_000, 20_000]
    assert Past(diary.facts).jobs[JobId("slow")].spec.user == UserName("ben")
