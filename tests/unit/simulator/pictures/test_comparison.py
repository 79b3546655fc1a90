"""Reports side by side."""

from pathlib import Path
from typing import Any

import pytest

from simulator.pictures.comparison import comparison_table, names
from simulator.pictures.side_by_side import write_comparison
from tenure.domain.refusal import Refusal


def report(policy: str, **more: Any) -> dict[str, Any]:
    budgets = [{"path": "a/x", "ratio": more.pop("ratio", 0.9)}]
    return {
        "policy": policy,
        "occupancy": 0.9,
        "delivered": {"ratio": 0.9, "worst": 0.5, "at_least_95": 3, "budgets": budgets},
        "waits": {"all": {"n": 9, "p50_s": 300, "p90_s": 7_200.0, "p99_s": None, "max_s": 9_000}},
        "preemptions": {"total": 10, "unallocated": 8, "allocated": 2, "drain": 0, "lost_gpu_hours": 5.5},
        "violations": 0,
        **more,
    }


def test_better_and_worse_are_words() -> None:
    other = report("fair", occupancy=0.99, ratio=0.2, violations=2)
    other["waits"]["all"]["p50_s"] = 24
    rows = {row.name: row for row in comparison_table([report("priority"), other])}
    assert rows["occupancy"].shown == ("90.0 %", "99.0 %")
    assert rows["occupancy"].verdicts == ("", "better")
    assert rows["all, p50"].shown == ("5 min", "24 s")
    assert rows["all, p50"].verdicts == ("", "better")
    assert rows["all, p90"].verdicts == ("", "same")
    assert rows["a/x"].verdicts == ("", "worse")
    assert rows["violations"].verdicts == ("", "worse")


def test_what_no_report_has_is_no_row() -> None:
    found = [row.name for row in comparison_table([report("priority"), report("fair")])]
    assert "all, p99" not in found and "goodput" not in found


def test_what_one_report_lacks_is_not_judged() -> None:
    rows = {row.name: row for row in comparison_table([report("priority"), report("fair", goodput=0.99)])}
    assert (rows["goodput"].shown, rows["goodput"].verdicts) == (("–", "99.0 %"), ("", ""))


def test_more_than_is_owed_is_no_merit() -> None:
    rows = {row.name: row for row in comparison_table([report("priority", ratio=1.4), report("fair", ratio=1.0)])}
    assert rows["a/x"].verdicts == ("", "same")


def test_reports_of_one_policy_are_numbered() -> None:
    assert names([report("fair"), report("priority"), report("fair")]) == ["fair (1)", "priority", "fair (3)"]


@pytest.mark.parametrize(("ending", "begins"), [("html", b"<!doctype html>"), ("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_it_is_written_as_the_ending_says(tmp_path: Path, ending: str, begins: bytes) -> None:
    path = tmp_path / f"both.{ending}"
    write_comparison(path, [report("priority"), report("<fair>", occupancy=0.99)])
    written = path.read_bytes()
    assert written.startswith(begins)
    if ending == "html":
        assert "better" in written.decode() and "&lt;fair&gt;" in written.decode()


def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"\.jpg is no format of images; end it in \.png or \.svg"):
        write_comparison(tmp_path / "both.jpg", [report("priority"), report("fair")])
    assert not list(tmp_path.iterdir())
