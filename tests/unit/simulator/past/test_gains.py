"""Who gains and who loses: the figures of a small log, worked out in the head, and what changes do to them."""

from dataclasses import replace

import pytest

from simulator.past.answer import Answer
from simulator.past.gains import gains, really, served_by
from simulator.past.plan import Question, read_question
from simulator.past.replay import Changes
from simulator.past.story import Past, past_of
from simulator.report.fields import Served
from simulator.simulation import Work
from tenure.domain.host import HostSpec
from tenure.domain.ids import BudgetPath, HostId, JobId
from tenure.domain.reasons import EndCause
from tenure.domain.units import DAY, HOUR, MINUTE
from tenure.events.budgets import JobAdmitted
from tenure.events.reports import HostRegistered
from tests.unit.simulator.past.diary import Diary
from tests.unit.simulator.past.scene import END, history, hosts, replayed, tree


def test_what_one_got_is_what_was_charged_in_the_window_and_how_long_its_jobs_waited() -> None:
    diary = Diary()
    diary.submit("j", 1, gpus=1)
    diary.ran("j", 4, 10, cause=EndCause.PREEMPTED)
    diary.submit("waits", 6, user="ben")
    budgets, users = served_by(really(Past(diary.facts)), start=2 * HOUR, end=8 * HOUR)
    assert budgets["a"].delivered_gpu_hours == users["ana"].delivered_gpu_hours == 4
    assert (users["ana"].jobs, users["ana"].wait_mean_s, users["ana"].preemptions) == (0, None, 0), "both are outside"
    assert (users["ben"].jobs, users["ben"].wait_mean_s, users["ben"].wait_p90_s) == (1, 7200, 7200), "until the end"
    _, users = served_by(really(Past(diary.facts)), start=0, end=12 * HOUR)
    assert (users["ana"].wait_mean_s, users["ana"].preemptions) == (3 * 3600, 1)


def test_the_largest_gain_comes_first() -> None:
    before = {"a": Served(delivered_gpu_hours=5, wait_mean_s=10.0), "b": Served(delivered_gpu_hours=9)}
    after = {"a": Served(delivered_gpu_hours=4, wait_mean_s=70.0), "c": Served(delivered_gpu_hours=3)}
    found = gains(before, after, real=before)
    assert [(gain.name, gain.delivered_change_gpu_hours) for gain in found] == [("c", 3), ("a", -1), ("b", -9)]
    assert [gain.wait_mean_change_s for gain in found] == [None, 60, None]


def ask(**changes: object) -> Question:
    return replace(
        read_question(past_of(history(1)), since=4 * DAY),
        changes=Changes(**changes),  # type: ignore[arg-type]
    )


def test_unchanged_nobody_gains_and_every_figure_is_the_real_one() -> None:
    passed: list[int] = []
    answer = Answer(ask(), passed=passed.append)
    what_if = answer.report.what_if
    assert what_if and what_if.compared_with == "log"
    assert all(gain.after == gain.really == gain.before for gain in (*what_if.budgets, *what_if.users))
    assert sum(gain.after.jobs for gain in what_if.users) > 50
    assert passed[-1] == answer.question.end - answer.question.start and passed == sorted(passed)
    assert answer.report.simulated_days == 4 and answer.report.violations == 0


@pytest.mark.parametrize("processors", [1, 2])
def test_a_larger_share_gains_against_the_time_as_it_was(processors: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(processors)))
    question = ask(tree=tree(a=10, b=10, c=80))
    answer = Answer(question, passed=lambda _: None)
    what_if = answer.report.what_if
    assert what_if and what_if.compared_with == "replay"
    assert what_if.budgets[0].name == "c" and what_if.budgets[0].delivered_change_gpu_hours > 20
    assert what_if.budgets[-1].delivered_change_gpu_hours < 0
    for gain in what_if.budgets:
        assert gain.before == gain.really, "the simulation leaves nothing out here"


def test_knobs_count_from_the_instant_on_and_over_what_the_log_sets_later() -> None:
    question = ask(settings={"min_runtime_cap": "20m"})
    answer = Answer(question, passed=lambda _: None)
    later = [job for job in question.past.jobs.values() if job.submitted_at >= question.start]
    longer = {job.job for job in later if job.spec.min_runtime_ms > 20 * MINUTE}
    cut = {fact.job for fact in _facts(answer, "JobAdmitted") if fact.spec.min_runtime_ms == 20 * MINUTE}
    assert cut == longer and len(longer) > 20, "their owners would have asked for what they may"
    assert answer.report.what_if and answer.report.what_if.contracts_cut == len(longer)
    lookbacks = {fact.policy.lookback_ms for fact in _facts(answer, "PolicyChanged")}
    assert lookbacks == {7 * DAY, 3 * DAY}, "the other knobs are as they were, each at its time"


def test_a_cluster_s_own_cap_cuts_only_contracts_that_could_lie_there() -> None:
    diary = Diary()
    dev = HostSpec(host=HostId("d0"), gpus=8, gpu_type="A100", block="d", cluster="dev")
    diary.facts.append(HostRegistered(at=0, agent="agent", hosts=(dev,)))
    for name in ("typed", "any"):
        diary.submit(name, 1)
    past = Past(diary.facts)
    for name, gpu_type in (("typed", "H100"), ("any", None)):
        job = past.jobs[JobId(name)]
        job.spec = replace(job.spec, gpu_type=gpu_type, min_runtime_ms=6 * HOUR)
    changes = Changes(settings={"min_runtime_cap": "8h", "clusters": {"dev": {"min_runtime_cap": "1h"}}})
    recorded = replayed(past, end=2 * HOUR, changes=changes)
    admitted = {e.fact.job: e.fact.spec.min_runtime_ms for e in recorded if isinstance(e.fact, JobAdmitted)}
    assert admitted == {"typed": 6 * HOUR, "any": HOUR}


def test_another_cluster_has_its_hosts_from_the_instant_on() -> None:
    fewer, more = (Answer(ask(hosts=tuple(hosts(count))), passed=lambda _: None) for count in (3, 9))
    assert (fewer.report.gpus, more.report.gpus) == (24, 72)
    assert fewer.report.availability > 0.9, "hosts that went are no loss"
    start = fewer.question.start
    used = {place.host for fact in _facts(fewer, "RunAssigned") if fact.at > start for place in fact.placement}
    assert used == {"h000", "h001", "h002"}
    waits = [one.report.waits["all"].p90_s or 0 for one in (more, fewer)]
    assert waits[0] < waits[1]
    assert fewer.report.violations == more.report.violations == 0


def test_what_is_asked_of_a_whole_log_begins_with_nothing() -> None:
    question = replace(read_question(past_of(history(1)), since=None), changes=Changes(hosts=tuple(hosts(2))))
    answer = Answer(question, passed=lambda _: None)
    assert answer.report.gpus == 16 and answer.report.simulated_days == question.end / DAY
    assert BudgetPath("c") in {gain.name for gain in answer.report.what_if.budgets}  # type: ignore[union-attr]
    assert question.end <= END and question.work == Work()


def _facts(answer: Answer, kind: str) -> list:  # type: ignore[type-arg]
    return [entry.fact for entry in answer.recorded if type(entry.fact).__name__ == kind]
