"""docs/benchmarks.md says what was measured, and nothing else."""

import pytest

from tests.bench import report
from tests.bench.targets import TARGETS


def test_the_page_is_what_the_figures_make() -> None:
    page = report.PAGE.read_text()
    assert page == report.with_figures(page, report.render(report.load())), "edited by hand? make bench writes it"


def test_a_target_that_is_missed_is_said() -> None:
    target = TARGETS[0]
    module, group, figure, part_of_it = target.figure.split(".")
    part = {
        "at": "2026-01-01",
        "machine": "one",
        "figures": {"conditions": {"hosts": 128}, group: {figure: {part_of_it: 99.96}}},
    }
    assert f"| <= 100 ms | {99.96} ms | " in report.render({module: part})
    part["figures"] = {group: {figure: {part_of_it: [12.5, 1234.5]}}}
    assert "| <= 100 ms | 1,234 ms, **missed** | " in report.render({module: part})
    assert "not measured yet" in report.render({})


def test_a_page_without_marks_is_not_overwritten() -> None:
    with pytest.raises(ValueError, match="lacks"):
        report.with_figures("# Benchmarks", "figures")
