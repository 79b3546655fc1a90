"""The agent's clock: the machine's while that is near the log's, else the log's."""

import time

import pytest

from services.agent.log_clock import FAR_MS, LogClock
from services.agent.signals.time_sync import judge_log_clock
from tenure.domain.units import HOUR, SECOND

ALLOWED_MS = 5 * SECOND


def wall() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.parametrize("offset", [0, FAR_MS - 1, 1 - FAR_MS])
def test_a_clock_that_is_near_is_left_as_it_is(offset: int) -> None:
    clock = LogClock()
    clock.compare(offset)
    assert clock.ahead_ms == 0
    assert abs(clock.now() - wall()) < ALLOWED_MS


@pytest.mark.parametrize("offset", [FAR_MS, 3 * HOUR, -3 * HOUR])
def test_of_one_that_is_far_off_the_logs_counts(offset: int) -> None:
    clock = LogClock()
    clock.compare(offset)
    assert clock.ahead_ms == offset
    assert abs(clock.now() - (wall() - offset)) < ALLOWED_MS


def test_it_never_runs_back() -> None:
    clock = LogClock()
    before = clock.now()
    clock.compare(3 * HOUR)
    assert clock.now() == before
    clock.compare(0)
    assert before <= clock.now() < before + ALLOWED_MS


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (None, None),
        (900, None),
        (-2 * SECOND, ("watch", "the clock is 2.0 s behind that of the log's server")),
        (3 * HOUR, ("drain", "the clock is 10800.0 s ahead of that of the log's server")),
    ],
)
def test_how_far_off_is_said(offset: int | None, expected: tuple[str, str] | None) -> None:
    found = [(signal.severity.value, signal.text) for signal in judge_log_clock(offset, read_at=1)]
    assert found == ([] if expected is None else [expected])
