"""The wall clock of a shell. Deciders never see it: they are given `now`."""

import time
from typing import Protocol

from tenure.domain.units import Millis


class Clock(Protocol):
    """A source of the present instant."""

    def now(self) -> Millis:
        """Epoch milliseconds; never less than what it said before."""


class WallClock:
    """The system's clock, held back while it is set backwards, so that time never runs back inside a process."""

    def __init__(self) -> None:
        self._latest: Millis = 0

    def now(self) -> Millis:
        """See `Clock.now`."""
        self._latest = max(self._latest, time.time_ns() // 1_000_000)
        return self._latest
