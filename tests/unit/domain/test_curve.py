"""Curves: amounts over time at rates that step, exact at every instant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.domain.curve import Curve

spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(-8, 8)), max_size=12)


def curve_of(parts: list[tuple[int, int, int]]) -> Curve:
    """A curve that gains each rate from one instant to another."""
    curve = Curve()
    for since, until, rate in parts:
        curve.add(since=since, until=until, rate=rate)
    return curve


def plainly(parts: list[tuple[int, int, int]], *, since: int, until: int) -> int:
    """The same in words: the overlap of every part, times its rate."""
    return sum(rate * max(0, min(end, until) - max(begin, since)) for begin, end, rate in parts if end > begin)


def test_nothing_is_gained_before_the_first_step() -> None:
    curve = Curve()
    assert curve.at(10) == 0 and curve.rate == 0 and curve.flat
    curve.step(100, 8)
    assert curve.at(100) == 0
    assert curve.at(50) == 0


def test_it_grows_at_its_rate_from_the_step_on() -> None:
    curve = Curve()
    curve.step(100, 8)
    curve.step(150, -3)
    assert curve.at(101) == 8
    assert curve.at(150) == 400
    assert curve.at(250) == 400 + 500
    assert curve.rate == 5
    assert curve.gained(since=140, until=160) == 80 + 50


def test_a_step_in_the_past_changes_everything_after_it() -> None:
    curve = Curve()
    curve.step(100, 8)
    assert curve.at(300) == 1600
    curve.step(50, 1)
    curve.step(200, -8)
    assert curve.at(300) == 250 + 800


def test_a_part_that_is_taken_back_leaves_no_step() -> None:
    curve = Curve()
    curve.add(since=10, until=20, rate=4)
    curve.add(since=10, until=20, rate=-4)
    assert curve.flat
    assert curve.dump() == Curve().dump()


def test_an_empty_or_backward_part_gains_nothing() -> None:
    curve = Curve()
    curve.add(since=20, until=20, rate=4)
    curve.add(since=20, until=10, rate=4)
    curve.step(5, 0)
    assert curve.flat


def test_the_line_around_an_instant_holds_until_the_next_step() -> None:
    curve = Curve()
    curve.add(since=100, until=200, rate=3)
    rate, constant, until = curve.line(150)
    assert (rate, until) == (3, 200)
    assert [rate * when + constant for when in (100, 150, 199)] == [curve.at(100), curve.at(150), curve.at(199)]
    assert curve.line(99) == (0, 0, 100)
    assert curve.line(200) == (0, 300, None)


@given(spans, st.lists(st.tuples(st.integers(-5, 70), st.integers(-5, 70)), max_size=5))
def test_it_is_the_plain_sum_whenever_it_is_asked(
    parts: list[tuple[int, int, int]], windows: list[tuple[int, int]]
) -> None:
    """Asked in between, which keeps sums, or only at the end: the same."""
    asked = Curve()
    for count, (since, until, rate) in enumerate(parts, start=1):
        asked.add(since=since, until=until, rate=rate)
        for begin, end in windows:
            expected = plainly(parts[:count], since=min(begin, end), until=max(begin, end))
            assert asked.gained(since=min(begin, end), until=max(begin, end)) == expected
    assert asked.dump() == curve_of(parts).dump()


@given(spans, spans, st.integers(0, 60), st.integers(0, 30))
def test_what_is_forgotten_is_not_missed_later(
    early: list[tuple[int, int, int]], late: list[tuple[int, int, int]], before: int, length: int
) -> None:
    curve = curve_of(early)
    curve.forget(before)
    for since, until, rate in late:  # also steps that lie in what is forgotten
        curve.add(since=since, until=until, rate=rate)
    assert curve.gained(since=before, until=before + length) == plainly(
        early + late, since=before, until=before + length
    )
    assert len(curve.dump()[2]) <= len(curve_of(early).dump()[2]) + 2 * len(late), "steps are not kept for ever"


@given(spans, st.integers(0, 60))
def test_dump_and_load_are_inverse(parts: list[tuple[int, int, int]], before: int) -> None:
    curve = curve_of(parts)
    curve.forget(before)
    again = Curve.load(curve.dump())
    assert again.dump() == curve.dump()
    assert [again.at(when) for when in range(before, 70)] == [curve.at(when) for when in range(before, 70)]
    again.step(65, 1)
    assert curve.at(70) == again.at(70) - 5


def test_it_stays_exact_where_floats_do_not() -> None:
    curve = Curve()
    begin = 1_800_000_000_000
    for number in range(1000):
        curve.add(since=begin + number, until=begin + 10**11 + number, rate=1_000_003)
    assert curve.gained(since=begin, until=begin + 10**12) == 1000 * 10**11 * 1_000_003


@pytest.mark.parametrize("count", [1, 1000])
def test_forgetting_bounds_what_is_kept(count: int) -> None:
    curve = Curve()
    for number in range(count):
        curve.add(since=number * 10, until=number * 10 + 5, rate=2)
        curve.forget(number * 10 - 100)
    assert len(curve.dump()[2]) <= 24
