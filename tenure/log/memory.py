"""The log in memory: for the simulator and for tests of whole systems in one process."""

import asyncio
from bisect import bisect_right
from collections.abc import Sequence

from tenure.domain.ids import LOG_START, FactId, Position
from tenure.events.catalogue import Kind
from tenure.events.fact import Fact, Recorded
from tenure.log.port import Appended, Conflict, Expect


class MemoryLog:
    """All facts in a list; position n is the n-th. `append_now` and `since` are the same without an event loop."""

    def __init__(self) -> None:
        self.recorded: list[Recorded] = []
        self._positions: dict[FactId, Position] = {}
        self._last_of_lane: dict[str, Position] = {}
        self._grown = asyncio.Event()

    def append_now(self, facts: Sequence[Fact], *, expect: Expect | None = None) -> Appended:
        """See `Log.append`."""
        if expect is not None and self._last_in(expect) != expect.last:
            raise Conflict(f"{expect.lane}: expected last {expect.last}, found {self._last_in(expect)}")
        last, fresh = LOG_START, 0
        for fact in facts:
            if not fact.id:
                raise ValueError(f"{type(fact).__name__} has no id")
            known = self._positions.get(fact.id)
            if known is not None:
                last = max(last, known)
                continue
            fresh += 1
            last = Position(len(self.recorded) + 1)
            self.recorded.append(Recorded(last, fact))
            self._positions[fact.id] = last
            self._last_of_lane[fact.lane] = last
        if fresh:
            self._grown.set()
        return Appended(last=last, duplicate=fresh == 0)

    def since(self, after: Position) -> Sequence[Recorded]:
        """All facts after a position."""
        return self.recorded[after:]

    def _last_in(self, expect: Expect) -> Position:
        return max(
            (last for lane, last in self._last_of_lane.items() if expect.lane.covers(type(expect.lane)(lane))),
            default=LOG_START,
        )

    async def append(self, facts: Sequence[Fact], *, expect: Expect | None = None) -> Appended:
        """See `Log.append`."""
        return self.append_now(facts, expect=expect)

    async def follow(self, kinds: Sequence[Kind], *, after: Position) -> "MemoryFeed":
        """See `Log.follow`."""
        return MemoryFeed(self, frozenset(kinds), after)

    async def head(self, kinds: Sequence[Kind] | None = None) -> Position:
        """See `Log.head`."""
        if kinds is None:
            return Position(len(self.recorded))
        wanted = frozenset(kinds)
        return next((r.position for r in reversed(self.recorded) if type(r.fact) in wanted), LOG_START)

    async def close(self) -> None:
        """Nothing to let go of."""

    async def wait_growth(self, timeout_s: float | None) -> bool:
        """Wait until something is appended; False when time is up."""
        self._grown.clear()
        try:
            await asyncio.wait_for(self._grown.wait(), timeout_s)
        except TimeoutError:
            return False
        return True


class MemoryFeed:
    """A reader of a `MemoryLog`."""

    def __init__(self, log: MemoryLog, kinds: frozenset[Kind], after: Position) -> None:
        self._log = log
        self._kinds = kinds
        self._next = bisect_right(log.recorded, after, key=lambda recorded: recorded.position)

    async def next(self, timeout_s: float | None) -> Sequence[Recorded]:
        """See `Feed.next`."""
        while True:
            fresh = [r for r in self._log.recorded[self._next :] if type(r.fact) in self._kinds]
            self._next = len(self._log.recorded)
            if fresh or not await self._log.wait_growth(timeout_s):
                return fresh

    async def close(self) -> None:
        """Nothing to let go of."""
