"""The log on NATS JetStream: one stream a cluster, whose sequence numbers are the positions."""

import asyncio
import contextlib
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Self

from tenure.domain.ids import LOG_START, HostId, Position
from tenure.events.catalogue import KINDS, Kind
from tenure.events.fact import Fact, Recorded
from tenure.log.access import Access
from tenure.log.carrier import Carrier
from tenure.log.dead import CONDEMNED_MAX, DeadLetters
from tenure.log.feed import JetStreamFeed
from tenure.log.group_commit import GroupCommit
from tenure.log.link import Link, Lost
from tenure.log.port import ATOMIC_MAX, Appended, Expect, Unavailable, check_ids
from tenure.log.publish import Letter, Place, Publisher
from tenure.log.stream import ANSWER_S, Sizing, StreamState, ensure_stream, last_of, let_all_read
from tenure.log.subjects import Subjects

PATIENCE_S = 10.0
"""How long an operation waits for a server that is away (a restart takes a second) before it is `Unavailable`."""
HEARTBEATS_KEPT_S = 2 * 86_400
"""In the log; ClickHouse keeps what they said of occupancy. A role without a usable snapshot reads all of them."""


class JetStreamLog:
    """See `Log`. Safe for any number of coroutines of one event loop; use one for a process.

    Feeds have a connection of their own, so that an acknowledgement never waits behind facts that come in a flood.
    """

    def __init__(
        self,
        link: Link,
        subjects: Subjects,
        state: StreamState,
        *,
        access: Access,
        patience_s: float,
        heartbeats_kept_s: int,
        seal: Callable[[Fact], Fact],
        carrier: Carrier | None,
    ) -> None:
        """Use `connect`."""
        self._seal, self._carrier = seal, carrier
        self._link, self._subjects, self._access = link, subjects, access
        self._reading: asyncio.Task[Link] | None = None
        self._identity = state.identity
        self.replicas = state.replicas
        """On how many servers it lies."""
        self._patience_s = patience_s
        self._publisher = Publisher(
            link,
            subjects,
            read=self._read,
            replicated=state.replicas > 1,
            patience_s=patience_s,
            heartbeats_kept_s=heartbeats_kept_s,
            carrier=carrier,
        )
        self._group = GroupCommit(self._publisher.write)
        self.dead = DeadLetters(link, subjects, replicas=state.replicas)
        self._condemned: frozenset[Position] | None = None
        self._feeds: weakref.WeakSet[JetStreamFeed] = weakref.WeakSet()

    @classmethod
    async def connect(
        cls,
        server: str | Access,
        *,
        cluster: str,
        speaker: HostId | None = None,
        replicas: int = 1,
        max_bytes: int | None = None,
        heartbeats_kept_s: int = HEARTBEATS_KEPT_S,
        patience_s: float = PATIENCE_S,
        seal: Callable[[Fact], Fact] = lambda fact: fact,
        carrier: Carrier | None = None,
    ) -> Self:
        """The log of `cluster` on the server(s), made if it does not exist. An address alone: nothing is shown there.

        `replicas` and `max_bytes` say how it is made and change nothing later. `speaker` is the one host of which
        reports are written, None: of any. `seal` is given each fact before it is written, `carrier` gives and gets
        headers of facts. Raises `Unavailable`, and `Refusal` for an unusable cluster name or address.
        """
        subjects = Subjects(cluster, speaker=speaker)
        access = Access(url=server) if isinstance(server, str) else server
        link = await Link.open(access, patience_s=patience_s)
        try:
            sizing = Sizing(replicas=replicas, max_bytes=max_bytes)
            state = await ensure_stream(link, subjects, sizing, patience_s=patience_s)
        except BaseException:
            await link.close()
            raise
        return cls(
            link,
            subjects,
            state,
            access=access,
            patience_s=patience_s,
            heartbeats_kept_s=heartbeats_kept_s,
            seal=seal,
            carrier=carrier,
        )

    async def identity(self) -> str:
        """See `Log.identity`: a random id that the stream was made with."""
        return self._identity

    async def let_all_read(self) -> None:
        """See `tenure.log.stream.let_all_read`."""
        await let_all_read(self._link, self._subjects)

    async def append(self, facts: Sequence[Fact], *, expect: Expect | None = None) -> Appended:
        """See `Log.append`."""
        check_ids(facts)
        letters = list({fact.id: self._publisher.address(self._seal(fact)) for fact in facts}.values())
        if not letters:
            return Appended(last=LOG_START, duplicate=True)
        if len(letters) > ATOMIC_MAX:
            return await self._append_long(letters, expect)
        if expect is None:
            return _appended(await self._group.append(letters))
        return _appended(await self._publisher.write(letters, expect))

    async def _append_long(self, letters: Sequence[Letter], expect: Expect | None) -> Appended:
        """Append part by part; each part expects what the one before it left."""
        places: list[Place] = []
        for start in range(0, len(letters), ATOMIC_MAX):
            part = letters[start : start + ATOMIC_MAX]
            placed = await self._publisher.write(part, expect)
            places += placed
            if expect is not None:
                guarded = (
                    place.position
                    for letter, place in zip(part, placed, strict=True)
                    if expect.lane.covers(letter.lane)
                )
                expect = Expect(lane=expect.lane, last=max(guarded, default=expect.last))
        return _appended(places)

    async def _read(self, first: Position, count: int) -> Sequence[Recorded]:
        """The facts of so many positions, or as many of them as there are."""
        last = min(first + count - 1, await self.head())
        feed = await self.follow(tuple(KINDS.values()), after=Position(first - 1))
        facts: list[Recorded] = []
        try:
            while feed.passed < last:
                some = await feed.next(ANSWER_S)
                if not some and feed.passed < last:
                    raise Lost(f"the log was not read up to {last}")
                facts += some
        finally:
            await feed.close()
        return facts

    async def follow(self, kinds: Sequence[Kind], *, after: Position, rest_s: float = 0.0) -> JetStreamFeed:
        """See `Log.follow`."""
        if self._reading is None or (self._reading.done() and self._reading.exception() is not None):
            self._reading = asyncio.create_task(Link.open(self._access, patience_s=self._patience_s))
        link = await asyncio.shield(self._reading)
        feed = JetStreamFeed(
            link,
            self._subjects,
            kinds,
            dead=self.dead,
            identity=self._identity,
            after=after,
            condemned=self._condemned,
            rest_s=rest_s,
            carrier=self._carrier,
        )
        await link.patiently(feed.open, what="following the log", patience_s=self._patience_s)
        self._feeds.add(feed)
        return feed

    async def head(self, kinds: Sequence[Kind] | None = None) -> Position:
        """See `Log.head`. Asked of the stream's leader, so it is never behind what was acknowledged to anybody.

        Whoever speaks for a host asks one question at a time: a server that was slow is asked by all hosts at once, and
        drops what is more than it keeps waiting (10,000).
        """
        patterns = [self._subjects.every] if kinds is None else self._subjects.followed(kinds)
        at_once = asyncio.Semaphore(1 if self._subjects.is_of_host else len(patterns) or 1)

        async def last(pattern: str) -> Position:
            async with at_once:
                return await self._link.patiently(
                    partial(last_of, self._link, self._subjects, pattern),
                    what="the log's head",
                    patience_s=self._patience_s,
                )

        return max(await asyncio.gather(*map(last, patterns)), default=LOG_START)

    async def condemned(self) -> frozenset[Position]:
        """See `Log.condemned`."""
        self._condemned = await self._link.patiently(
            self.dead.condemned, what="asking what is condemned", patience_s=self._patience_s
        )
        return self._condemned

    async def condemn(self, position: Position, *, reason: str, by: str, at_most: int | None = CONDEMNED_MAX) -> bool:
        """See `Log.condemn`. `at_most` None: a person decides."""
        return await self._link.patiently(
            partial(self.dead.condemn, position, reason=reason, by=by, at_most=at_most),
            what=f"condemning what stands at {position}",
            patience_s=self._patience_s,
        )

    async def close(self) -> None:
        """See `Log.close`."""
        await self._group.close()
        for feed in list(self._feeds):
            await feed.close()
        if self._reading is not None:
            with contextlib.suppress(Unavailable):
                await (await self._reading).close()
        await self._link.close()


def _appended(places: Sequence[Place]) -> Appended:
    fresh = [place.position for place in places if place.fresh]
    return Appended(
        last=max(fresh, default=places[-1].position),
        duplicate=not fresh,
        partial=0 < len(fresh) < len(places),
    )
