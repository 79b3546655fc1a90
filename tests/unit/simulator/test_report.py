"""The figures of `report.json`, each from a log small enough to work it out in the head. One host of 8 GPUs."""

from pathlib import Path

import pytest

from simulator.report import write_report
from simulator.report.fields import BudgetDelivered, Report, Waits
from simulator.report.waits import summary
from tests.unit.simulator.tale import Tale

MINUTE = 1 / 60
DAY = 24


def budget(report: Report, path: str) -> BudgetDelivered:
    return next(leaf for leaf in report.delivered.budgets if leaf.path == path)


def test_owed_is_the_smaller_of_share_and_demand_hour_by_hour() -> None:
    """a wants 8 GPUs in hour 0 and nothing in hour 1: it is owed 4 of hour 0, not 8 of both."""
    tale = Tale()
    tale.job("j", 0)
    tale.start("j.1", 0)
    tale.end("j.1", 1)
    leaf = budget(tale.checked(end=2), "a")
    assert (leaf.owed_gpu_hours, leaf.delivered_gpu_hours, leaf.ratio) == (4, 8, 2)


def test_inside_an_hour_demand_is_added_up_before_it_is_compared() -> None:
    """8 GPUs for half of the hour are 4 GPU-hours of demand, as much as the share of the whole hour."""
    tale = Tale()
    tale.job("j", 0.25, contract=0.5)
    tale.start("j.1", 0.25)
    tale.end("j.1", 0.75)
    assert budget(tale.checked(end=1), "a").owed_gpu_hours == 4


def test_demand_is_queued_or_running_and_allocated() -> None:
    """b's job waits all the time and is owed its half; the unallocated one asks for nothing."""
    tale = Tale()
    tale.job("j", 0, contract=2)
    tale.start("j.1", 0)
    tale.job("waits", 0.5, budget="b")
    tale.job("free", 0, budget="b", contract=0)
    report = tale.checked(end=2)
    assert budget(report, "b").owed_gpu_hours == 4 * 1 + 4
    assert (budget(report, "b").delivered_gpu_hours, budget(report, "b").ratio) == (0, 0)
    assert report.delivered.worst == 0 and report.delivered.at_least_95 == 1
    # met: a's 8 of 8 owed; b's 0 of 8
    assert report.delivered.ratio == 8 / 16


def test_a_window_that_cuts_an_hour_counts_what_lies_inside() -> None:
    tale = Tale()
    tale.job("j", 0, contract=3)
    tale.start("j.1", 0)
    leaf = budget(tale.checked(start=0.5, end=2.75), "a")
    assert (leaf.owed_gpu_hours, leaf.delivered_gpu_hours) == (2.25 * 4, 2.25 * 8)


def test_a_window_inside_one_hour() -> None:
    tale = Tale()
    tale.job("j", 0.5)
    tale.start("j.1", 0.5)
    leaf = budget(tale.checked(start=0.4, end=0.6), "a")
    # demand 0.1 h x 8 = 0.8, share 0.2 h x 4 = 0.8
    assert leaf.owed_gpu_hours == pytest.approx(0.8) and leaf.delivered_gpu_hours == pytest.approx(0.8)


def test_entitlement_follows_capacity_and_tree_as_they_change() -> None:
    """Hour 0: half of 8. From 1 h half of 16. From 1 h 30 a quarter of 16."""
    tale = Tale()
    tale.job("j", 0, contract=2)
    tale.start("j.1", 0)
    tale.host("h1", 8, at=1)
    tale.tree(1.5, a=25, b=75)
    report = tale.checked(end=2)
    assert budget(report, "a").owed_gpu_hours == 4 + 0.5 * 8 + 0.5 * 4
    assert report.gpus == 16 and report.gpu_hours.capacity == 8 * 2 + 8


def test_a_budget_that_became_a_leaf_later_is_one_of_the_leaves() -> None:
    tale = Tale()
    tale.tree(1, a=50, a__x=100, b=50)
    tale.job("j", 1, budget="a/x")
    tale.start("j.1", 1)
    owed = {leaf.path: leaf.owed_gpu_hours for leaf in tale.checked(end=2).delivered.budgets}
    assert owed == {"a": 0, "a/x": 4, "b": 0}


def test_the_time_of_every_gpu_goes_somewhere() -> None:
    """8 GPUs x 4 h = 32. Charged 2 x 4 = 8, unallocated 4 x 2 = 8. From 3 h on the host drains with 2 GPUs held."""
    tale = Tale()
    tale.job("j", 0, gpus=2, contract=4)
    tale.start("j.1", 0)
    tale.job("free", 0, gpus=4, contract=0, budget="b")
    tale.start("free.1", 1, first=4)
    tale.end("free.1", 3)
    tale.offer("h0", 0, at=3)
    report = tale.checked(end=4)
    parts = report.gpu_hours
    assert (parts.capacity, parts.charged, parts.unallocated, parts.refunded) == (32, 8, 8, 0)
    assert (parts.idle, parts.unavailable) == (6 * 1 + 2 * 2, 6)
    assert report.occupancy == 16 / 26 and report.availability == 24 / 32
    assert report.unallocated_fraction == 0.5


def test_what_a_lost_host_refunds_is_not_delivered() -> None:
    """10 h, saved at 6 h: 4 h x 8 = 32 are lost and given back."""
    tale = Tale()
    tale.job("j", 0, resumable=True)
    tale.start("j.1", 0)
    tale.saved("j.1", 6)
    tale.end("j.1", 10, "host_lost", by="h0", refunded_from=6)
    report = tale.checked(end=10 + MINUTE)
    assert budget(report, "a").delivered_gpu_hours == 48
    losses = report.host_losses
    assert (losses.runs, losses.lost_gpu_hours, losses.refunded_gpu_hours) == (1, 32, 32)
    assert report.goodput == 1 - 32 / 80 and report.preemptions.lost_gpu_hours == 0
    assert budget(tale.checked(start=7, end=9), "a").delivered_gpu_hours == 0, "it is given back when it was held"
    assert budget(tale.checked(start=5, end=7), "a").delivered_gpu_hours == 8


def test_what_stopping_costs() -> None:
    """Three runs stopped after 2 h: one could not resume (16 GPU-h lost), two could; each begins again with 2 min."""
    tale = Tale()
    for name, resumable in (("dies", False), ("goes", True)):
        tale.job(name, 0, resumable=resumable)
    tale.job("asks", 0, budget="b")
    tale.start("dies.1", 0)
    tale.preempted("dies.1", 2, by="asks")
    tale.start("goes.1", 2)
    tale.preempted("goes.1", 4, by="asks")
    tale.start("goes.2", 4)
    tale.preempted("goes.2", 6, by="h0")
    tale.start("goes.3", 6)
    report = tale.checked(end=8)
    stops = report.preemptions
    assert (stops.total, stops.allocated, stops.unallocated, stops.drain) == (3, 2, 0, 1)
    assert stops.lost_gpu_hours == 16
    assert report.restart_gpu_hours == pytest.approx(2 * 2 / 60 * 8)
    assert report.goodput == pytest.approx(1 - (16 + 32 / 60) / 64)


def test_a_run_stopped_while_it_begins_again_has_no_work_to_lose() -> None:
    tale = Tale()
    tale.job("free", 0, contract=0, resumable=True)
    tale.job("asks", 0, budget="b")
    tale.start("free.1", 0)
    tale.preempted("free.1", 1, by="asks")
    tale.start("free.2", 1)
    tale.preempted("free.2", 1 + MINUTE, by="asks")
    report = tale.checked(end=2)
    assert (report.preemptions.unallocated, report.preemptions.lost_gpu_hours) == (2, 0)
    assert report.restart_gpu_hours == pytest.approx(8 / 60)


def test_only_the_test_window_counts() -> None:
    """A stop, a submission and a run before the window, the same inside, and a run that lasts through all of it."""
    tale = Tale()
    tale.job("asks", 0, budget="b", gpus=4)
    for number, at in enumerate((0, 10)):
        tale.job(f"j{number}", at, gpus=4)
        tale.start(f"j{number}.1", at)
        tale.preempted(f"j{number}.1", at + 2, by="asks")
    tale.start("asks.1", 2, first=4)
    report = tale.checked(start=5, end=15)
    assert (report.jobs, report.runs, report.preemptions.total) == (1, 1, 1)
    assert report.preemptions.lost_gpu_hours == 8
    assert report.gpu_hours.charged == 4 * 10 + 8
    assert (report.window.start_s, report.window.end_s, report.simulated_days) == (5 * 3600, 15 * 3600, 15 / 24)


def test_rolling_weeks_inside_the_test_window() -> None:
    """Eight days: weeks 0-7 and 1-8. a asks all the time and has days 0-4 and nothing after.

    Week 0-7: owed 7 days x 4 GPUs, delivered 4 days x 8: full. Week 1-8: 3 days x 8 of 7 x 4 = 24 / 28.
    """
    tale = Tale()
    tale.job("j", 0, contract=DAY)
    tale.start("j.1", 0)
    tale.job("more", 0)
    tale.end("j.1", 4 * DAY)
    report = tale.checked(end=8 * DAY)
    assert report.rolling_7d.worst == pytest.approx(24 / 28)
    assert report.rolling_7d.ratio == pytest.approx((28 + 24) / 56)
    assert report.delivered.ratio == report.delivered.worst == 1, "over all eight days it had its half"


def test_waits_by_class() -> None:
    """Four days. Counted are submissions of the first two; what never started has waited until the end."""
    tale = Tale(gpus=8)
    tale.job("debug", 0, gpus=2, contract=0.25)
    tale.job("free", 1, gpus=1, contract=0)
    tale.job("never", 12, gpus=2, contract=8)
    tale.job("late", 2 * DAY + 1, gpus=8)
    tale.start("debug.1", 0.5)
    tale.start("free.1", 3, first=4)
    kinds = {"debug": "small", "free": "sweep", "never": "all", "late": "small"}
    waits = tale.checked(end=4 * DAY, kinds=kinds).waits
    hour = 3600.0
    assert list(waits) == ["all", "debug", "largest", "small", "sweep"]
    assert waits["all"] == Waits(n=3, p50_s=2 * hour, p90_s=84 * hour, p99_s=84 * hour, max_s=84 * hour)
    assert waits["debug"] == waits["small"] == Waits(n=1, p50_s=1800, p90_s=1800, p99_s=1800, max_s=1800)
    assert waits["largest"].n == 2 and waits["largest"].max_s == 84 * hour, "2 of 8 GPUs are a quarter"
    assert waits["sweep"].max_s == 2 * hour


def test_percentiles_are_waits_that_happened() -> None:
    assert summary([]) == Waits(n=0)
    assert summary([5000]) == Waits(n=1, p50_s=5, p90_s=5, p99_s=5, max_s=5)
    tenths = [1000 * number for number in range(10, 0, -1)]
    assert summary(tenths) == Waits(n=10, p50_s=5, p90_s=9, p99_s=10, max_s=10)


def test_nothing_at_all() -> None:
    report = Tale().checked(end=1)
    assert (report.occupancy, report.availability, report.goodput, report.delivered.ratio) == (0, 1, 1, 1)
    assert report.unallocated_fraction == 0 and report.rolling_7d.worst == 1
    with pytest.raises(ValueError, match="empty"):
        Tale().report(start=1, end=1)


def test_the_same_report_the_same_bytes(tmp_path: Path) -> None:
    report = Tale().report(end=1)
    write_report(tmp_path / "one.json", report)
    write_report(tmp_path / "two.json", Tale().report(end=1))
    written = (tmp_path / "one.json").read_bytes()
    assert written == (tmp_path / "two.json").read_bytes() and written.endswith(b"}\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.json", "two.json"]
