"""How far a process is behind the log, in facts and in seconds, asked now and then where anybody is told.

Seconds: for how long the log has had something that this process has not taken in, as far as it has looked.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable

from tenure.domain.ids import Position
from tenure.log.port import Unavailable
from tenure.runtime.metric import gauge
from tenure.runtime.telemetry import Gauges, Reading

EVERY_S = 2.0
ANSWER_S = 5.0
SAMPLES_MAX = 1_000
CAUGHT_UP = gauge("tenure.caught_up", "", "1 when it has read all that was in the log when it started, else 0")
REACHABLE = gauge("tenure.log.reachable", "", "1 while the log's server answers it, else 0")
LAG_FACTS = gauge("tenure.log.lag.facts", "{fact}", "positions of the log that it has not taken in yet")
LAG_TIME = gauge("tenure.log.lag.time", "s", "since when the log has had something that it has not taken in; 0: none")
LAG_METRICS = (CAUGHT_UP, REACHABLE, LAG_FACTS, LAG_TIME)


class Lag:
    """What is known of the log's end, and since when it has not been reached."""

    def __init__(self) -> None:
        self._ahead: deque[tuple[float, Position]] = deque(maxlen=SAMPLES_MAX)

    def look(self, head: Position, passed: Position, *, now_s: float) -> tuple[int, float]:
        """Facts and seconds behind, seen now (by any clock that does not jump)."""
        while self._ahead and self._ahead[0][1] <= passed:
            self._ahead.popleft()
        if head > passed:
            self._ahead.append((now_s, head))
        return max(0, head - passed), now_s - self._ahead[0][0] if self._ahead else 0.0


class LagWatch:
    """Tells how far one process is behind."""

    def __init__(self, *, every_s: float = EVERY_S) -> None:
        self._gauges, self._lag, self._every_s = Gauges(LAG_METRICS), Lag(), every_s

    async def run(
        self, head: Callable[[], Awaitable[Position]], passed: Callable[[], Position | None], caught_up: asyncio.Event
    ) -> None:
        """Look again and again until cancelled. Nothing is asked where nobody is told.

        `passed` None: this process takes nothing in now, another one does.
        """
        while self._gauges.wanted:
            here: dict[str, list[Reading]] = {CAUGHT_UP.name: [(float(caught_up.is_set()), {})]}
            try:
                async with asyncio.timeout(ANSWER_S):
                    end = await head()
                told: dict[str, list[Reading]] = {REACHABLE.name: [(1.0, {})]}
                if (taken_in := passed()) is not None:
                    facts, seconds = self._lag.look(end, taken_in, now_s=time.monotonic())
                    told |= {LAG_FACTS.name: [(float(facts), {})], LAG_TIME.name: [(seconds, {})]}
            except (Unavailable, TimeoutError):
                told = {REACHABLE.name: [(0.0, {})]}
            self._gauges.set({**here, **told})
            await asyncio.sleep(self._every_s if caught_up.is_set() else min(self._every_s, EVERY_S))
