"""An event loop whose time jumps to the next timer, so that hours pass in a moment and always in the same order."""

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from tenure.domain.units import HOUR, SECOND, Millis

BEGAN: Millis = 1000 * HOUR
"""The instant at which every simulated system begins: a full hour."""

TURNS_MAX = 150_000
"""Turns of the event loop in one run, far more than any needs."""


class Restless(Exception):
    """The run does not come to its end."""


class _Jumps(selectors.SelectSelector):
    """Waits for nothing: to wait is to let the virtual time pass."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_s = 0.0
        self.turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.turns += 1
        if self.turns > TURNS_MAX:
            raise Restless("the system does not come to rest")
        assert timeout is not None, "everybody waits for something that never comes"
        self.passed_s += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """One thread, nothing outside: what would run in a thread runs at once, and sockets are never heard."""

    def __init__(self) -> None:
        self._jumps = _Jumps()
        super().__init__(selector=self._jumps)

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._jumps.passed_s

    @property
    def turns(self) -> int:
        """How often the loop has gone round."""
        return self._jumps.turns

    def forgive(self) -> None:
        """Go round again after too many turns: what there is must still be ended."""
        self._jumps.turns = 0

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        """The result of `func`, which has run already."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except OSError as error:
            done.set_exception(error)
        return done


def instant() -> Millis:
    """The true present instant."""
    return BEGAN + round(asyncio.get_running_loop().time() * SECOND)


async def passed(seconds: float) -> None:
    """Return when so much time has passed."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    timer = loop.call_later(seconds, over.set_result, None)
    try:
        await over
    finally:
        timer.cancel()


class SkewedClock:
    """A process' clock: off by `skew_ms`, and never running back within the process, as `WallClock` does not."""

    def __init__(self, skew_ms: Callable[[], Millis]) -> None:
        self._skew_ms = skew_ms
        self._latest: Millis = 0
        self.ahead_ms: Millis = 0
        """As `LogClock.ahead_ms`: the agents' clocks are off by less than what is corrected."""

    def now(self) -> Millis:
        """See `Clock.now`."""
        self._latest = max(self._latest, instant() + self._skew_ms())
        return self._latest
