"""How far behind the log: in positions, and since when."""

from tenure.domain.ids import Position
from tenure.runtime.lag import Lag


def test_at_the_end_of_the_log_there_is_no_lag() -> None:
    lag = Lag()
    assert lag.look(Position(7), Position(7), now_s=10.0) == (0, 0.0)
    assert lag.look(Position(7), Position(9), now_s=11.0) == (0, 0.0)


def test_the_time_counts_from_the_oldest_end_that_was_not_reached() -> None:
    lag = Lag()
    assert lag.look(Position(10), Position(4), now_s=100.0) == (6, 0.0)
    assert lag.look(Position(20), Position(9), now_s=102.0) == (11, 2.0)
    assert lag.look(Position(30), Position(10), now_s=104.0) == (20, 2.0)
    assert lag.look(Position(30), Position(20), now_s=107.0) == (10, 3.0)
    assert lag.look(Position(30), Position(30), now_s=108.0) == (0, 0.0)
