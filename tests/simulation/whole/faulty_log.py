"""The log in memory as each process meets it through a network that delays, cuts and loses acknowledgements.

What the port promises holds (`tenure/log/port.py`): a feed gives each fact once and in order of position. Facts of one
writer or kind reach the log late and in another order than they happened, because appends take their time; every
process hears them with a delay of its own; an acknowledgement that is lost leaves the writer to send or decide again;
ids are forgotten after `IDS_REMEMBERED_S`, so that what is sent again later stands twice.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from tenure.domain.ids import Position
from tenure.domain.units import Millis
from tenure.events.catalogue import KINDS, Kind
from tenure.events.fact import Fact, Recorded
from tenure.log.memory import MemoryLog
from tenure.log.port import IDS_REMEMBERED_S, Appended, BeyondEnd, Expect, LogFull, Unavailable, check_ids
from tests.simulation.whole.virtual_time import instant, passed

PATIENCE_S = 10.0
"""So long an append waits for a log that is away before it says so."""


class SharedLog(MemoryLog):
    """The log itself: what is in it, when it came, and who follows it."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False
        self.written_at: list[Millis] = []
        """By the log's own clock, by position from 1."""
        self.writers: list[str] = []
        """Which process wrote it, by position from 1."""
        self._known: deque[tuple[Millis, Fact]] = deque()
        self._feeds: dict[Kind, list[SimulatedFeed]] = {kind: [] for kind in KINDS.values()}

    def write(self, facts: Sequence[Fact], *, expect: Expect | None, writer: str) -> Appended:
        """Append now, and let the feeds hear of it."""
        now = instant()
        while self._known and now - self._known[0][0] >= IDS_REMEMBERED_S * 1000:
            self._positions.pop(self._known.popleft()[1].id, None)
        before = len(self.recorded)
        appended = self.append_now(facts, expect=expect)
        for entry in self.recorded[before:]:
            self.written_at.append(now)
            self.writers.append(writer)
            self._known.append((now, entry.fact))
            for feed in self._feeds[type(entry.fact)]:
                feed.arrive(entry)
        return appended

    def register(self, feed: "SimulatedFeed", kinds: Sequence[Kind]) -> None:
        """The feed hears of every new fact of these kinds."""
        for kind in kinds:
            self._feeds[kind].append(feed)

    def unregister(self, feed: "SimulatedFeed") -> None:
        """It hears of nothing more."""
        for feeds in self._feeds.values():
            if feed in feeds:
                feeds.remove(feed)


class Road:
    """One process' way to the log, with what is wrong with it now. It outlives the process' incarnations."""

    def __init__(self, log: SharedLog, *, name: str, chance: random.Random) -> None:
        self.log, self.name, self.chance = log, name, chance
        self.cut = False
        """Nothing comes through."""
        self.frozen = False
        """The process stands still between its decision and its append, and hears nothing."""
        self.hears_after_s, self.writes_after_s = 0.05, 0.02
        self.acks_lost = 0
        """So many of the next appends are written, and their writer is not told."""
        self.crash_at: str | None = None
        """The process dies at its next append: `before` or `after` it is written."""
        self.die: Callable[[], None] = lambda: None
        self.tell: Callable[[str], None] = lambda line: None
        self._changed = asyncio.Event()
        self._feeds: list[SimulatedFeed] = []

    @property
    def hears(self) -> bool:
        """Whether facts come through."""
        return not (self.cut or self.frozen)

    def set(self, **state: Any) -> None:
        """Change what is wrong, and let those who wait look again."""
        for name, value in state.items():
            assert hasattr(self, name), name
            setattr(self, name, value)
        self._changed.set()
        self._changed = asyncio.Event()
        for feed in self._feeds:
            feed.wake()

    async def thaw(self) -> None:
        """Return when the process does not stand still."""
        while self.frozen:
            await self._changed.wait()

    async def reach(self) -> None:
        """Return when the log can be reached. Raises `Unavailable` after a while."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while self.cut:
                    await self._changed.wait()
        except TimeoutError as trouble:
            raise Unavailable("the log does not answer") from trouble

    def follow(self, feed: "SimulatedFeed") -> None:
        """The feed hears what comes on this road."""
        self._feeds.append(feed)

    def leave(self, feed: "SimulatedFeed") -> None:
        """It does not any more."""
        self._feeds.remove(feed)


class SimulatedPort:
    """`Log` for one incarnation of a process."""

    def __init__(self, road: Road) -> None:
        self._road, self._log = road, road.log

    async def identity(self) -> str:
        """See `Log.identity`."""
        return await self._log.identity()

    async def append(self, facts: Sequence[Fact], *, expect: Expect | None = None) -> Appended:
        """See `Log.append`."""
        road, log = self._road, self._log
        check_ids(facts)
        await passed(road.chance.random() * road.writes_after_s)
        await road.thaw()
        await road.reach()
        if log.full:
            raise LogFull("no space left on the log's disk")
        kinds = ", ".join(dict.fromkeys([type(fact).__name__ for fact in facts]))
        if road.crash_at == "before":
            await self._die(f"dies before its {kinds} is written")
        appended = log.write(facts, expect=expect, writer=road.name)
        if road.crash_at == "after":
            await self._die(f"dies after its {kinds} is written, before it knows (position {appended.last})")
        if road.acks_lost > 0:
            road.acks_lost -= 1
            road.tell(f"is not told that its {kinds} is written (position {appended.last})")
            await passed(2.0)
            raise Unavailable("the acknowledgement was lost")
        await passed(road.chance.random() * road.writes_after_s)
        await road.thaw()
        return appended

    async def _die(self, how: str) -> None:
        road = self._road
        road.crash_at = None
        road.tell(how)
        road.die()
        await asyncio.get_running_loop().create_future()  # cancelled with the process

    async def follow(self, kinds: Sequence[Kind], *, after: Position, rest_s: float = 0.0) -> "SimulatedFeed":
        """See `Log.follow`."""
        await self._road.reach()
        if after > len(self._log.recorded):
            raise BeyondEnd(f"the log ends at {len(self._log.recorded)}, before {after}")
        return SimulatedFeed(self._road, frozenset(kinds), after)

    async def head(self, kinds: Sequence[Kind] | None = None) -> Position:
        """See `Log.head`."""
        await passed(self._road.chance.random() * 0.01)
        await self._road.thaw()
        await self._road.reach()
        return await self._log.head(kinds)

    async def condemned(self) -> frozenset[Position]:
        """See `Log.condemned`."""
        return frozenset()

    async def condemn(self, position: Position, *, reason: str, by: str) -> bool:
        """See `Log.condemn`. Whatever comes from simulated agents, a role has to bear."""
        raise AssertionError(f"{by} cannot fold what stands at {position}: {reason}")

    async def close(self) -> None:
        """Nothing to let go of."""


class SimulatedFeed:
    """`Feed` on a road: every fact once, in order, but late."""

    def __init__(self, road: Road, kinds: frozenset[Kind], after: Position) -> None:
        self._road, self._passed = road, after
        now = asyncio.get_running_loop().time()
        known = [entry for entry in road.log.recorded[after:] if type(entry.fact) in kinds]
        self._coming: deque[tuple[float, Recorded]] = deque((now, entry) for entry in known)
        self._waiter: asyncio.Future[None] | None = None
        road.log.register(self, sorted(kinds, key=lambda kind: kind.__name__))
        road.follow(self)

    @property
    def passed(self) -> Position:
        """See `Feed.passed`."""
        return self._passed

    quarantined = newer = 0

    def arrive(self, entry: Recorded) -> None:
        """A new fact is in the log."""
        road = self._road
        due = asyncio.get_running_loop().time() + road.chance.random() * road.hears_after_s
        if self._coming:
            due = max(due, self._coming[-1][0])
        self._coming.append((due, entry))
        if len(self._coming) == 1:
            self.wake()

    def wake(self) -> None:
        """Look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def next(self, timeout_s: float | None) -> Sequence[Recorded]:
        """See `Feed.next`."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        while True:
            fresh = self._due(loop.time())
            if fresh or (deadline is not None and loop.time() >= deadline):
                return fresh
            instants = [] if deadline is None else [deadline]
            if self._coming and self._road.hears:
                instants.append(self._coming[0][0])
            self._waiter = loop.create_future()
            timer = loop.call_at(min(instants), self.wake) if instants else None
            try:
                await self._waiter
            finally:
                if timer is not None:
                    timer.cancel()

    def _due(self, now: float) -> list[Recorded]:
        fresh = []
        while self._road.hears and self._coming and self._coming[0][0] <= now + 1e-6:
            fresh.append(self._coming.popleft()[1])
        if fresh:
            self._passed = fresh[-1].position
        return fresh

    def hasten(self, position: Position) -> None:
        """See `Feed.hasten`: facts are late here anyway."""

    async def close(self) -> None:
        """See `Feed.close`."""
        self._road.log.unregister(self)
        self._road.leave(self)
