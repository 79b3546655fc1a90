"""Waits by class and what early ends cost, recomputed by hand."""

import pytest

from simulator.pictures.history import read_history
from simulator.pictures.stops import stops
from simulator.pictures.stretch import stretch_of
from simulator.pictures.waits import quantiles, waits
from tenure.domain.units import DAY, SECOND
from tests.unit.simulator.pictures.five_runs import END, HOURS, history, started, submitted

WHOLE = stretch_of({}, log_end=END)


def seconds(kinds: dict[str, str]) -> dict[str, list[float]]:
    found = waits(history(), stretch=WHOLE, kinds=kinds)
    return {name: [length / SECOND for length in lengths.tolist()] for name, lengths in found.items()}


def test_a_wait_ends_with_the_first_start() -> None:
    assert seconds({}) == {"all": [0, 0, 1_800, 2_400], "largest": [0, 0, 1_800, 2_400]}


def test_kinds_are_classes_in_order_of_name() -> None:
    found = seconds({"j1": "train", "j4": "eval", "j2": "train"})
    assert list(found) == ["all", "largest", "eval", "train"]
    assert (found["eval"], found["train"]) == ([2_400], [0, 1_800])


def test_debug_is_small_short_and_allocated() -> None:
    lines = [
        submitted("small", 0, budget="a", gpus=8, min_runtime_s=900),
        submitted("free", 0, budget="a", gpus=1, min_runtime_s=0),
        submitted("long", 0, budget="a", gpus=1, min_runtime_s=901),
        submitted("wide", 0, budget="a", gpus=9, min_runtime_s=900),
        started("small.1", 5, {"h0": list(range(64))}, protected_until=905),
    ]
    found = waits(read_history(lines, budgets={}), stretch=stretch_of({}, log_end=5_000), kinds={})
    assert found["debug"].tolist() == [5_000]


def test_a_job_that_never_started_waits_until_the_end_and_late_ones_are_left_out() -> None:
    lines = [
        submitted("early", 3_600, budget="a", gpus=1, min_runtime_s=60),
        submitted("warm", 1, budget="a", gpus=1, min_runtime_s=60),
        submitted("late", 3 * 86_400 + 1, budget="a", gpus=1, min_runtime_s=60),
        {"t": 5 * 86_400, "type": "host_state"},
    ]
    stretch = stretch_of({"window": {"start_s": 2, "end_s": 5 * 86_400}}, log_end=5 * DAY)
    found = waits(read_history(lines, budgets={}), stretch=stretch, kinds={})
    assert found["all"].tolist() == [5 * DAY - HOURS * SECOND]


def test_quantiles_are_by_nearest_rank() -> None:
    lengths = waits(history(), stretch=WHOLE, kinds={})["all"]
    assert quantiles(lengths) == (0, 2_400_000, 2_400_000, 2_400_000)


def test_early_ends_by_cause_and_what_they_cost() -> None:
    """j3 and j4 lose all they did; j1 saved its work and spends two minutes of 4 GPUs on starting again."""
    found = [
        (stop.label, stop.allocated, stop.count, stop.lost_gpu_ms / SECOND, stop.restart_gpu_ms / SECOND)
        for stop in stops(history(), stretch=WHOLE)
    ]
    assert found == [
        ("host lost", False, 1, 2 * 6_600, 0),
        ("host lost", True, 1, 2 * 3_600, 0),
        ("for a budget further behind", True, 1, 0, 4 * 120),
    ]


@pytest.mark.parametrize(("start_s", "end_s", "kept"), [(0, 7_000, 1), (6_000, 14_400, 2), (8_000, 14_400, 0)])
def test_only_ends_in_the_stretch_count(start_s: int, end_s: int, kept: int) -> None:
    stretch = stretch_of({"window": {"start_s": start_s, "end_s": end_s}}, log_end=END)
    assert sum(stop.count for stop in stops(history(), stretch=stretch)) == kept
