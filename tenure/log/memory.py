"""The log in memory: for the simulator and for tests of whole systems in one process."""

import asyncio
from bisect import bisect_right
from collections.abc import Sequence

from tenure.domain.ids import LOG_START, FactId, Position
from tenure.events.catalogue import Kind
from tenure.events.fact import Fact, Lane, Recorded
from tenure.log.port import Appended, BeyondEnd, Conflict, Expect, check_ids


class MemoryLog:
    """All facts in a list; position n is the n-th. `append_now` and `since` are the same without an event loop."""

    def __init__(self) -> None:
        self.recorded: list[Recorded] = []
        self._positions: dict[FactId, Position] = {}
        self._last_of_lane: dict[Lane, Position] = {}
        self._grown = asyncio.Event()

    def append_now(self, facts: Sequence[Fact], *, expect: Expect | None = None) -> Appended:
        """See `Log.append`."""
        check_ids(facts)
        recorded, positions = self.recorded, self._positions
        fresh = [fact for fact in facts if fact.id not in positions]
        if not fresh:
            return Appended(last=positions[facts[-1].id] if facts else LOG_START, duplicate=True)
        if expect is not None and self._last_in(expect) != expect.last:
            raise Conflict(f"{expect.lane}: expected last {expect.last}, found {self._last_in(expect)}")
        for fact in fresh:
            if fact.id in positions:
                continue  # twice in one append
            position = Position(len(recorded) + 1)
            recorded.append(Recorded(position, fact))
            positions[fact.id] = self._last_of_lane[fact.lane] = position
        self._grown.set()
        return Appended(last=Position(len(recorded)))

    def since(self, after: Position) -> Sequence[Recorded]:
        """All facts after a position."""
        return self.recorded[after:]

    def _last_in(self, expect: Expect) -> Position:
        last_of_lane = self._last_of_lane
        return max([last_of_lane.get(lane, LOG_START) for lane in expect.lane.covered])

    async def identity(self) -> str:
        """See `Log.identity`. A memory log lives as long as its process: nothing outside can mistake it."""
        return "memory"

    async def append(self, facts: Sequence[Fact], *, expect: Expect | None = None) -> Appended:
        """See `Log.append`."""
        return self.append_now(facts, expect=expect)

    async def follow(self, kinds: Sequence[Kind], *, after: Position) -> "MemoryFeed":
        """See `Log.follow`."""
        if after > len(self.recorded):
            raise BeyondEnd(f"the log ends at {len(self.recorded)}, before {after}")
        return MemoryFeed(self, frozenset(kinds), after)

    async def head(self, kinds: Sequence[Kind] | None = None) -> Position:
        """See `Log.head`."""
        if kinds is None:
            return Position(len(self.recorded))
        wanted = frozenset(kinds)
        return next((r.position for r in reversed(self.recorded) if type(r.fact) in wanted), LOG_START)

    async def close(self) -> None:
        """Nothing to let go of."""

    async def wait_growth(self) -> None:
        """Wait until something is appended."""
        self._grown.clear()
        await self._grown.wait()


class MemoryFeed:
    """A reader of a `MemoryLog`."""

    def __init__(self, log: MemoryLog, kinds: frozenset[Kind], after: Position) -> None:
        self._log = log
        self._kinds = kinds
        self._next = bisect_right(log.recorded, after, key=lambda recorded: recorded.position)

    @property
    def passed(self) -> Position:
        """See `Feed.passed`."""
        return Position(self._next)

    async def next(self, timeout_s: float | None) -> Sequence[Recorded]:
        """See `Feed.next`."""
        try:
            async with asyncio.timeout(timeout_s):
                while not (fresh := self._take()):
                    await self._log.wait_growth()
                return fresh
        except TimeoutError:
            return self._take()

    def _take(self) -> Sequence[Recorded]:
        fresh = [r for r in self._log.recorded[self._next :] if type(r.fact) in self._kinds]
        self._next = len(self._log.recorded)
        return fresh

    async def close(self) -> None:
        """Nothing to let go of."""
