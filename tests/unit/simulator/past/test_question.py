"""What may be asked of a past: since when, and with what other than it was."""

from dataclasses import replace
from pathlib import Path

import pytest

from simulator.past.answer import Answer
from simulator.past.plan import NothingHappened, Question, read_question
from simulator.past.story import Past
from tenure.domain.ids import BudgetPath, JobId
from tenure.domain.refusal import Refusal
from tenure.domain.tree import BudgetNode, BudgetTree
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


def planned(question: Past, shares: dict[str, int], **options: object) -> Question:
    """The question of a dry run: top-level budgets and, with a '/', those below."""
    nodes = [BudgetNode(path=BudgetPath(path), share_ppm=share * 10_000) for path, share in sorted(shares.items())]
    return read_question(question, **({"since": None, "tree": BudgetTree(nodes=tuple(nodes))} | options))  # type: ignore[arg-type]


def test_a_budget_that_is_to_go_is_replayed_with_a_share_of_0_and_said() -> None:
    question = planned(past(days=3), {"b": 50})
    assert question.told == ("the new tree", "a at a share of 0 (it funds 3 jobs)")
    tree = question.changes.tree
    assert tree is not None and tree.leaves == ("a", "b") and tree.by_path[BudgetPath("a")].share_ppm == 0
    what_if = Answer(question, passed=lambda _: None).report.what_if
    assert what_if and what_if.changes == list(question.told) and [gain.name for gain in what_if.budgets] == ["a"]


def test_a_budget_that_is_to_be_split_is_replayed_whole_and_said() -> None:
    question = planned(past(days=3), {"a": 70, "a/x": 100, "a-b": 30, "a-b/x": 100})
    assert question.told == ("the new tree", "a not split (it funds 3 jobs)")
    tree = question.changes.tree
    assert tree is not None and tree.leaves == ("a", "a-b/x") and tree.by_path[BudgetPath("a")].share_ppm == 700_000


def test_what_a_planned_tree_lacks_is_added_with_all_above_it() -> None:
    question = past(days=3)
    for number, path in enumerate(("g/h/i", "a", "a")):
        job = question.jobs[JobId(f"j{number}")]
        job.spec = replace(job.spec, budget=BudgetPath(path))
    tree = planned(question, {"a": 50}).changes.tree
    assert tree is not None and [node.path for node in tree.nodes] == ["a", "g", "g/h", "g/h/i"]
    job.spec = replace(job.spec, budget=BudgetPath("a/x"))
    with pytest.raises(Refusal, match=r"--dry-run: jobs of this time are funded by a and by a/x.* --since"):
        planned(question, {"a": 50})


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
