"""The checker of `events.jsonl` and `report.json` has teeth: what is broken in either is found."""

import gzip
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from simulator.report import write_report
from tests.checks.export import check_export, findings, flat
from tests.unit.simulator.tale import Tale

Lines = list[dict[str, Any]]
END = 9 * 24
KINDS = {"victim": "long", "asks": "short"}


def story() -> Tale:
    """Nine days of two hosts: a preemption, a drain, a loss with its refund, restarts, a wait, an unallocated run."""
    tale = Tale(a=50, b=30, c=20)
    tale.host("h1")
    tale.job("victim", 1, budget="b", resumable=True, contract=0.25, gpus=4)
    tale.start("victim.1", 1)
    tale.job("free", 1, budget="c", contract=0, gpus=2)
    tale.start("free.1", 1, host="h1")
    tale.job("asks", 2, contract=1)
    tale.preempted("victim.1", 3, by="asks")
    tale.start("asks.1", 3)
    tale.start("victim.2", 3, host="h1", first=4)
    tale.preempted("free.1", 4, by="asks")
    tale.saved("victim.2", 5)
    tale.end("victim.2", 6, "host_lost", by="h1", refunded_from=5)
    tale.offer("h1", 0, at=6)
    tale.end("asks.1", 7)
    tale.offer("h1", 8, at=30)
    tale.start("victim.3", 30, host="h1")
    tale.tree(40.5, a=50, b=40, c=10)
    tale.offer("h1", 0, at=50)
    tale.preempted("victim.3", 51, by="h1")
    tale.job("waits", 52, budget="c", gpus=8)
    return tale


@cache
def _texts() -> tuple[str, str]:
    tale = story()
    return json.dumps(tale.lines()), msgspec.json.encode(tale.report(end=END, kinds=KINDS)).decode()


def lines() -> Lines:
    told: Lines = json.loads(_texts()[0])
    return told


def report() -> dict[str, Any]:
    said: dict[str, Any] = json.loads(_texts()[1])
    return said


def of(told: Lines, kind: str, **wanted: Any) -> dict[str, Any]:
    """The first line like that."""
    return next(line for line in told if line["type"] == kind and wanted.items() <= line.items())


def test_a_sound_story_passes_from_files_as_from_memory(tmp_path: Path) -> None:
    assert findings(lines(), report(), kinds=KINDS) == []
    tale = story()
    write_report(tmp_path / "report.json", tale.report(end=END, kinds=KINDS))
    with gzip.open(tmp_path / "events.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(line) + "\n" for line in tale.lines())
    check_export(tmp_path / "events.jsonl.gz", tmp_path / "report.json", kinds=KINDS)
    (tmp_path / "report.json").write_text(json.dumps(report() | {"runs": 77}))
    with pytest.raises(AssertionError, match="runs is 77, by the lines 5"):
        check_export(tmp_path / "events.jsonl.gz", tmp_path / "report.json", kinds=KINDS)


NOT_FROM_LINES = ("policy", "wall_seconds", "violations_shown", "gpus", "window.start_s", "window.end_s", "lookback_s")
"""What only the simulation knows, and what is not a figure."""
FIGURES = [
    key
    for key, value in flat(report()).items()
    if not key.startswith(NOT_FROM_LINES) and isinstance(value, int | float)
]


@pytest.mark.parametrize("figure", FIGURES)
def test_every_figure_is_checked(figure: str) -> None:
    """A figure that is off by little is found, whichever it is."""
    said = report()
    *above, last = figure.split(".")
    place: Any = said
    for name in above:
        if isinstance(place, list):
            place = next(entry for entry in place if entry["path"] == name)
        else:
            place = place[name]
    place[last] += 1 if isinstance(place[last], int) else max(1e-6, abs(place[last]) * 1e-6)
    assert any(figure in found for found in findings(lines(), said, kinds=KINDS))


def test_the_figures_are_all_that_was_promised() -> None:
    tops = {figure.partition(".")[0] for figure in FIGURES}
    assert tops >= {"jobs", "runs", "occupancy", "availability", "unallocated_fraction", "goodput", "delivered"}
    assert tops >= {"rolling_7d", "waits", "preemptions", "violations", "gpu_hours", "host_losses"}
    assert {"waits.long.p90_s", "delivered.budgets.a.owed_gpu_hours", "preemptions.lost_gpu_hours"} <= set(FIGURES)
    assert findings(lines(), {"policy": "fair"}, kinds=KINDS)[0].startswith("report: there is no ")


def swap(told: Lines) -> None:
    told[3], told[-1] = told[-1], told[3]


def two_on_a_gpu(told: Lines) -> None:
    for kind in ("run_assigned", "run_started"):
        of(told, kind, run="victim.2")["hosts"] = {"h1": [1, 4, 5, 6]}


def a_gpu_that_is_not_there(told: Lines) -> None:
    for kind in ("run_assigned", "run_started"):
        of(told, kind, run="victim.1")["hosts"] = {"h0": [4, 5, 6, 8]}


def half_a_gang(told: Lines) -> None:
    of(told, "job_submitted", job="asks")["replicas"] = 2


def other_gpus_than_given(told: Lines) -> None:
    of(told, "run_started", run="victim.1")["hosts"] = {"h0": [4, 5, 6, 7]}


def starts_twice(told: Lines) -> None:
    told.insert(told.index(of(told, "run_started", run="victim.1")), of(told, "run_started", run="victim.1"))


def never_started(told: Lines) -> None:
    told.remove(of(told, "run_started", run="victim.1"))


def longer_contract(told: Lines) -> None:
    of(told, "job_submitted", job="victim")["min_runtime_s"] = 7300
    for line in told:
        if line["type"] == "run_started" and line["job"] == "victim":
            line["protected_until"] = line["t"] + 7300


def less_protection(told: Lines) -> None:
    of(told, "run_started", run="victim.1")["protected_until"] -= 1


def submitted_twice(told: Lines) -> None:
    told.insert(told.index(of(told, "job_submitted", job="asks")), of(told, "job_submitted", job="asks"))


def a_run_of_nobody(told: Lines) -> None:
    told.remove(of(told, "job_submitted", job="free"))


def ends_twice(told: Lines) -> None:
    told.append(of(told, "job_finished", job="asks") | {"t": END * 3600})


def no_end_of_the_job(told: Lines) -> None:
    told.remove(of(told, "job_finished", job="asks"))


def no_requeue(told: Lines) -> None:
    told.remove(of(told, "job_requeued", run="victim.3"))


def an_end_of_nothing(told: Lines) -> None:
    told.append(of(told, "run_ended", run="asks.1") | {"t": END * 3600})


def another_end_of_the_job(told: Lines) -> None:
    of(told, "job_finished", job="asks")["state"] = "failed"


def too_dear(told: Lines) -> None:
    of(told, "run_ended", run="asks.1")["charged_gpu_s"] += 1


def back_for_no_fault(told: Lines) -> None:
    of(told, "run_ended", run="asks.1").update(refunded_gpu_s=8, charged_gpu_s=4 * 8 * 3600 - 8)


def more_back_than_held(told: Lines) -> None:
    of(told, "run_ended", run="victim.2").update(refunded_gpu_s=4 * 3 * 3600 + 1, charged_gpu_s=-1)


def charged_for_nothing(told: Lines) -> None:
    of(told, "run_started", run="free.1")["charged"] = True


def on_a_lost_host(told: Lines) -> None:
    of(told, "capacity", host="h1", gpus=8, t=30 * 3600)["gpus"] = 0


def on_an_unhealthy_host(told: Lines) -> None:
    of(told, "host_state", host="h1", state="healthy", t=30 * 3600)["state"] = "suspect"


def unallocated_asks(told: Lines) -> None:
    of(told, "job_submitted", job="asks")["min_runtime_s"] = 0


def served_more(told: Lines) -> None:
    of(told, "preemption_requested", run="victim.1")["reason"]["numbers"]["victim_ratio"] = 0.51


def no_ratios(told: Lines) -> None:
    of(told, "preemption_requested", run="victim.1")["reason"]["numbers"] = {"a": 1}


def same_budget_no_priority(told: Lines) -> None:
    of(told, "job_submitted", job="victim")["budget"] = "a"


def no_numbers(told: Lines) -> None:
    of(told, "run_ended", run="victim.1")["reason"] = {"rule": "P5", "reason": "disrupt_lower_ratio", "numbers": {}}


def another_asked(told: Lines) -> None:
    of(told, "run_ended", run="victim.1")["by"] = "free"


def a_cause_nobody_knows(told: Lines) -> None:
    of(told, "run_ended", run="asks.1")["cause"] = "evaporated"


def lost_with_no_host(told: Lines) -> None:
    of(told, "run_ended", run="victim.2")["by"] = None


def cancelled_by_nobody(told: Lines) -> None:
    of(told, "run_ended", run="asks.1")["cause"] = "cancelled"


BREAKS: list[tuple[str, Callable[[Lines], None]]] = [
    ("order", swap),
    ("I1", two_on_a_gpu),
    ("I1", a_gpu_that_is_not_there),
    ("I2", half_a_gang),
    ("I2", other_gpus_than_given),
    ("I2", starts_twice),
    ("I2", never_started),
    ("I3", longer_contract),
    ("I3", less_protection),
    ("I4", submitted_twice),
    ("I4", a_run_of_nobody),
    ("I4", ends_twice),
    ("I4", no_end_of_the_job),
    ("I4", no_requeue),
    ("I4", an_end_of_nothing),
    ("I5", too_dear),
    ("I5", back_for_no_fault),
    ("I5", more_back_than_held),
    ("I5", charged_for_nothing),
    ("I7", on_a_lost_host),
    ("I7", on_an_unhealthy_host),
    ("I8", unallocated_asks),
    ("I9", served_more),
    ("I9", same_budget_no_priority),
    ("I10", no_ratios),
    ("I10", no_numbers),
    ("I10", another_asked),
    ("I10", another_end_of_the_job),
    ("I10", a_cause_nobody_knows),
    ("I10", lost_with_no_host),
    ("I10", cancelled_by_nobody),
]


@pytest.mark.parametrize(("invariant", "break_it"), BREAKS, ids=[breaking.__name__ for _, breaking in BREAKS])
def test_a_broken_log_is_found(invariant: str, break_it: Callable[[Lines], None]) -> None:
    told = lines()
    break_it(told)
    found = findings(told, report(), kinds=KINDS)
    assert invariant in {finding.partition(":")[0] for finding in found}, found


def test_a_log_without_assignments_is_checked_by_its_starts() -> None:
    """The lines that design section 6 fixes are enough to find two runs on one GPU."""
    told = [line for line in lines() if line["type"] != "run_assigned"]
    assert not [found for found in findings(told, report(), kinds=KINDS) if found.startswith("I")]
    of(told, "run_started", run="victim.2")["hosts"] = {"h1": [1, 4, 5, 6]}
    assert any(found.startswith("I1") for found in findings(told, report(), kinds=KINDS))


def test_a_report_that_counts_no_breach_of_a_broken_log_is_found() -> None:
    told = lines()
    served_more(told)
    assert "report: violations 0, but the lines show 1" in findings(told, report(), kinds=KINDS)
