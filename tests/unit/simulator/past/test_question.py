"""What may be asked of a past: since when, and with what other than it was."""

from dataclasses import replace
from pathlib import Path

import pytest

from simulator.past.plan import NothingHappened, Question, read_question
from simulator.past.story import Past
from tenure.domain.ids import BudgetPath, JobId
from tenure.domain.refusal import Refusal
from tenure.domain.units import DAY, HOUR
from tests.unit.simulator.past.diary import Diary


def past(*, days: float = 40) -> Past:
    """A job a day of budget a."""
    diary = Diary()
    for day in range(int(days)):
        diary.ran(f"j{day}", day * 24 + 1, day * 24 + 5)
    return Past(diary.facts)


def refused(question: Past, **options: object) -> str:
    with pytest.raises(Refusal) as caught:
        read_question(question, **({"since": None} | options))  # type: ignore[arg-type]
    return str(caught.value)


def test_a_month_is_looked_at_or_all_that_there_is() -> None:
    long, short = read_question(past(), since=None), read_question(past(days=3), since=None)
    assert (long.end - long.start, long.end) == (30 * DAY, 39 * DAY + 5 * HOUR)
    assert (short.start, short.end) == (0, 2 * DAY + 5 * HOUR)
    assert not long.changes.any


def test_since_before_the_log_began_says_how_much_there_is() -> None:
    said = refused(past(days=3), since=30 * DAY)
    assert said.startswith("--since: 30d is before the log began: it is of the last 2d5h; give at most 2d5h")
    assert read_question(past(days=3), since=2 * DAY + 5 * HOUR).start == 0, "what it says can be given"
    assert "nothing is looked at" in refused(past(), since=0)


def test_a_log_without_jobs_has_nothing_to_replay() -> None:
    with pytest.raises(NothingHappened, match="no job is in the log"):
        read_question(Past(Diary().facts), since=None)


def test_a_tree_that_lacks_budgets_names_them_and_how_many_jobs_they_fund(tmp_path: Path) -> None:
    file = tmp_path / "new.yaml"
    file.write_text("budgets: {aa: {share: 50}, b: {share: 50}}\n")
    said = refused(past(), budgets=file)
    assert said.startswith(
        f"{file}: 31 jobs of the log are funded by a, which is no leaf of this tree; did you mean aa?"
    )
    assert "with a share of 0" in said
    file.write_text("budgets: {a: {share: 50, children: {x: {share: 50}}}}\n")
    assert "funded by a, which is no leaf" in refused(past(), budgets=file)
    file.write_text("budgets: {a: {share: 50}, b: {share: 50}}\n")
    assert read_question(past(), since=None, budgets=file).changes.tree is not None


def test_jobs_that_were_over_before_do_not_matter(tmp_path: Path) -> None:
    diary = Diary()
    diary.ran("old", 1, 2)
    diary.ran("new", 100, 101, user="ben")
    question = Past(diary.facts)
    old = question.jobs[JobId("old")]
    old.spec = replace(old.spec, budget=BudgetPath("gone"))
    file = tmp_path / "new.yaml"
    file.write_text("budgets: {a: {share: 50}}\n")
    assert read_question(question, since=DAY, budgets=file).changes.any
    assert "gone" in refused(question, budgets=file)


def test_knobs_are_told_from_the_simulated_work_and_checked(tmp_path: Path) -> None:
    question: Question = read_question(past(), since=None, settings=["lookback=1d", "restart_overhead=0"])
    assert question.changes.settings == {"lookback": "1d"} and question.work.restart_overhead_ms == 0
    assert question.told == ("lookback=1d", "restart_overhead=0")
    assert "unknown knob 'lookbak'" in refused(past(), settings=["lookbak=1d"])
    assert "no such cluster" in refused(past(), settings=["clusters={east: {grace_max: 5m}}"])
    assert "no host has GPUs of this type" in refused(past(), settings=["rates={B200: 2}"])
    assert refused(past(), cluster=tmp_path / "absent.yaml").startswith(str(tmp_path / "absent.yaml"))
