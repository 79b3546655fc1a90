"""The numbers over time, recomputed by hand on a log of five runs (`five_runs.py`); GPU-hours of each hour."""

import numpy as np
import pytest

from simulator.pictures.curve import Curve
from simulator.pictures.history import read_history
from simulator.pictures.series import Series, build_series
from tenure.domain.units import DAY, HOUR
from tests.unit.simulator.pictures.five_runs import LEAVES, history, lines, started


@pytest.fixture(scope="module")
def series() -> Series:
    return build_series(history(), lookback_ms=2 * HOUR)


def hours(amounts: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> list[float]:
    return [round(amount / HOUR, 6) for amount in amounts.tolist()]


def test_entitlement_is_the_share_of_what_is_available(series: Series) -> None:
    assert [hours(leaf) for leaf in series.entitled] == [[4, 4, 2, 4], [2, 2, 1, 2], [2, 2, 1, 2]]


def test_owed_is_no_more_than_demand(series: Series) -> None:
    """j2 asks for 4 GPUs from 1:00 to 2:30, j4 for 2 from 0:20 on."""
    assert [hours(leaf) for leaf in series.demand] == [[4, 4, 4, 4], [0, 4, 2, 0], [1.333333, 2, 2, 2]]
    assert [hours(leaf) for leaf in series.owed] == [[4, 4, 2, 4], [0, 2, 1, 0], [1.333333, 2, 1, 2]]


def test_delivered_is_what_is_charged_after_refunds(series: Series) -> None:
    assert [hours(leaf) for leaf in series.charged] == [[4, 2, 2, 4], [0, 2, 2, 0], [0, 1, 0, 0]]


def test_parts_sum_to_all_gpus(series: Series) -> None:
    """I5."""
    assert hours(series.unallocated.sum(axis=0)) == [1.666667, 2, 0, 0]
    assert hours(series.lost) == [0, 1, 0, 0]
    assert hours(series.unavailable) == [0, 0, 4, 0]
    assert hours(series.idle) == [2.333333, 0, 0, 4]
    held = series.charged.sum(axis=0) + series.unallocated.sum(axis=0) + series.lost
    assert hours(held + series.idle + series.unavailable) == [8, 8, 8, 8]


def test_ratio_counts_the_window_and_what_is_still_promised(series: Series) -> None:
    """At 3:00 a has had 4 GPU-hours since 1:00, is promised 2 until 3:30, and its share of two hours was 6."""
    ratios = {leaf: values.round(6).tolist() for leaf, values in zip(LEAVES, series.ratio, strict=True)}
    assert series.instants.tolist() == [HOUR, 2 * HOUR, 3 * HOUR, 4 * HOUR]
    assert ratios == {"a": [1, 0.75, 1, 1], "b/x": [0, 0.5, 1.333333, 0.666667], "b/y": [1, 0.25, 0.333333, 0]}
    assert hours(series.behind[0]) == [0, 2, 0, 0]


def test_a_change_of_shares_counts_from_its_instant() -> None:
    later = {"t": 2 * 3_600, "type": "budget_tree", "shares": {"a": 1.0, "b": 0, "b/x": 0.5, "b/y": 0.5}}
    told = sorted([*lines(), later], key=lambda line: line["t"])
    series = build_series(read_history(told, budgets={}), lookback_ms=2 * HOUR)
    assert [hours(leaf) for leaf in series.entitled] == [[4, 4, 4, 8], [2, 2, 0, 0], [2, 2, 0, 0]]
    assert np.isnan(series.ratio[1][-1])


def test_a_run_on_a_host_that_takes_no_more_is_held_and_not_unavailable() -> None:
    """A draining host of 4 GPUs offers none, but 1 is still held: 3 are unavailable."""
    told = [
        {"t": 0, "type": "capacity", "host": "h0", "gpus": 4},
        started("j.1", 0, {"h0": [0]}, protected_until=HOUR),
        {"t": 1_800, "type": "capacity", "host": "h0", "gpus": 0},
        {"t": 3_600, "type": "host_state"},
    ]
    series = build_series(read_history(told, budgets={"a": 1}), lookback_ms=7 * DAY)
    assert (hours(series.unavailable), hours(series.idle)) == ([1.5], [1.5])


def test_a_host_that_comes_late_was_not_available_before() -> None:
    told = [{"t": 1_800, "type": "capacity", "host": "h0", "gpus": 4}, {"t": 3_600, "type": "host_state"}]
    series = build_series(read_history(told, budgets={"a": 1}), lookback_ms=7 * DAY)
    assert (hours(series.unavailable), hours(series.idle), hours(series.entitled[0])) == ([2], [2], [2])


def test_days_are_cut_at_the_end() -> None:
    told = [{"t": 0, "type": "capacity", "host": "h0", "gpus": 2}, {"t": 30 * 3_600, "type": "host_state"}]
    series = build_series(read_history(told, budgets={"a": 1}), lookback_ms=7 * DAY)
    assert hours(series.daily(series.entitled)[0]) == [48, 12]


def test_an_empty_log_has_no_numbers_to_trip_over() -> None:
    series = build_series(read_history([], budgets={"a": 1}), lookback_ms=7 * DAY)
    assert (series.charged.sum(), series.idle.sum()) == (0, 0)


def test_a_curve_goes_on_at_its_last_rate() -> None:
    curve = Curve.of_rates(np.array([10, 20]), np.array([2.0, 3.0]))
    assert curve.at(np.array([0, 10, 15, 20, 30])).tolist() == [0, 0, 10, 20, 50]
