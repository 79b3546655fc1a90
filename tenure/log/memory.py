"""The log in memory: for the simulator and for tests of whole systems in one process."""

import asyncio
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from itertools import count
from typing import cast

from tenure.domain.ids import LOG_START, FactId, Position
from tenure.events.catalogue import KINDS, Kind
from tenure.events.fact import Fact, Lane, Recorded
from tenure.log.port import Appended, BeyondEnd, Condemned, Conflict, Expect, check_ids


class _End:
    """Where a lane ends: the position of the last fact in it or in a lane below it."""

    __slots__ = ("position",)

    def __init__(self) -> None:
        self.position = LOG_START


_Route = tuple[tuple[_End, ...], list[list[Recorded]]]
"""What hears of a new fact of one kind: the ends of its lanes, and the inboxes of those who read it."""


class MemoryLog:
    """All facts in a list, one position after the other. `append_now` and `since` are the same without an event loop.

    `after`: the position that another log ended at, which this one goes on from without holding what stood before.
    """

    def __init__(self, *, after: Position = LOG_START) -> None:
        self.recorded: list[Recorded] = []
        self._after = after
        self._positions: dict[FactId, Position] = {}
        self.verdicts: dict[Position, str] = {}
        """Why facts are condemned."""
        self._ends = {lane: _End() for lane in Lane}
        self._routes: dict[Kind, _Route] = {
            kind: (tuple(end for lane, end in self._ends.items() if lane.covers(kind.lane)), [])
            for kind in KINDS.values()
        }
        self._numbers = cast("Iterator[Position]", count(after + 1))
        self._grown = asyncio.Event()

    def append_now(self, facts: Sequence[Fact], *, expect: Expect | None = None) -> Appended:
        """See `Log.append`. Ids are taken as they are: whoever appends without an event loop made them itself."""
        recorded, positions, routes, numbers = self.recorded, self._positions, self._routes, self._numbers
        found = None if expect is None else self._ends[expect.lane].position
        if expect is not None and found != expect.last and not all(fact.id in positions for fact in facts):
            raise Conflict(f"{expect.lane}: expected last {expect.last}, found {found}")
        before, last, partial = self._after + len(recorded), None, False
        for fact in facts:
            if fact.id in positions:
                partial = partial or positions[fact.id] <= before
                continue
            positions[fact.id] = last = next(numbers)
            entry = Recorded(last, fact)
            recorded.append(entry)
            ends, inboxes = routes[type(fact)]
            for end in ends:
                end.position = last
            for inbox in inboxes:
                inbox.append(entry)
        if last is None:
            return Appended(last=positions[facts[-1].id] if facts else LOG_START, duplicate=True)
        self._grown.set()
        return Appended(last=last, partial=partial)

    def since(self, after: Position) -> Sequence[Recorded]:
        """All facts after a position."""
        return self.recorded[after - self._after :]

    def of(self, kinds: Collection[Kind]) -> list[Recorded]:
        """All facts of these kinds so far."""
        return [entry for entry in self.recorded if type(entry.fact) in kinds]

    def inbox(self, kinds: Collection[Kind]) -> list[Recorded]:
        """All facts of these kinds so far; those to come are added to it for ever. Its one reader empties it."""
        inbox = self.of(kinds)
        for kind in kinds:
            self._routes[kind][1].append(inbox)
        return inbox

    async def identity(self) -> str:
        """See `Log.identity`. A memory log lives as long as its process: nothing outside can mistake it."""
        return "memory"

    async def append(self, facts: Sequence[Fact], *, expect: Expect | None = None) -> Appended:
        """See `Log.append`."""
        check_ids(facts)
        return self.append_now(facts, expect=expect)

    async def follow(self, kinds: Sequence[Kind], *, after: Position, rest_s: float = 0.0) -> "MemoryFeed":  # noqa: ARG002
        """See `Log.follow`."""
        assert self._after == LOG_START, "what stood before cannot be followed"
        if after > len(self.recorded):
            raise BeyondEnd(f"the log ends at {len(self.recorded)}, before {after}")
        return MemoryFeed(self, frozenset(kinds), after)

    async def head(self, kinds: Sequence[Kind] | None = None) -> Position:
        """See `Log.head`."""
        if kinds is None:
            return Position(self._after + len(self.recorded))
        wanted = frozenset(kinds)
        return next((r.position for r in reversed(self.recorded) if type(r.fact) in wanted), LOG_START)

    async def condemned(self) -> frozenset[Position]:
        """See `Log.condemned`."""
        return frozenset(self.verdicts)

    async def condemn(self, position: Position, *, reason: str, by: str) -> bool:
        """See `Log.condemn`."""
        fresh = position not in self.verdicts
        self.verdicts.setdefault(position, f"{by}: {reason}")
        self._grown.set()
        return fresh

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
        self._known = frozenset(log.verdicts)
        self.quarantined = self.newer = 0
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
        condemned = self._log.verdicts.keys()
        if any(position <= self._next for position in condemned - self._known):
            raise Condemned("a fact that was given was condemned: folding the log again without it")
        self._known = frozenset(condemned)
        fresh = [r for r in self._log.recorded[self._next :] if type(r.fact) in self._kinds]
        self._next = len(self._log.recorded)
        if not condemned:
            return fresh
        kept = [r for r in fresh if r.position not in condemned]
        self.quarantined += len(fresh) - len(kept)
        return kept

    def hasten(self, position: Position) -> None:
        """See `Feed.hasten`: it never rests."""

    async def close(self) -> None:
        """Nothing to let go of."""
