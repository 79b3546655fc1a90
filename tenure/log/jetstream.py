"""The log on NATS JetStream: one stream a cluster, whose sequence numbers are the positions."""

import asyncio
import ssl
import weakref
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tenure.domain.ids import LOG_START, Position
from tenure.events.catalogue import Kind
from tenure.events.fact import Fact, Lane
from tenure.log.feed import JetStreamFeed
from tenure.log.group_commit import GroupCommit, Placed
from tenure.log.link import Access, Link, Refused
from tenure.log.port import ATOMIC_MAX, Appended, Expect, check_ids
from tenure.log.publish import Letter, Publisher
from tenure.log.stream import ANSWER_S, Sizing, StreamState, ensure_stream
from tenure.log.subjects import Subjects

PATIENCE_S = 10.0
"""How long an operation waits for a server that is away (a restart takes a second) before it is `Unavailable`."""
HEARTBEATS_KEPT_S = 30 * 86_400
NO_MESSAGE = 10037


class JetStreamLog:
    """See `Log`. Safe for any number of tasks of one event loop; use one for a process."""

    def __init__(
        self, link: Link, subjects: Subjects, publisher: Publisher, state: StreamState, *, patience_s: float
    ) -> None:
        """Use `connect`."""
        self._link, self._subjects, self._publisher = link, subjects, publisher
        self._identity = state.identity
        self._group = GroupCommit(publisher.write)
        self._patience_s = patience_s
        self._feeds: weakref.WeakSet[JetStreamFeed] = weakref.WeakSet()

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        cluster: str,
        client: str = "tenure",
        replicas: int = 1,
        max_bytes: int | None = None,
        heartbeats_kept_s: int = HEARTBEATS_KEPT_S,
        patience_s: float = PATIENCE_S,
        credentials: Path | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> "JetStreamLog":
        """The log of `cluster` on the server(s) at `url`, made if it does not exist.

        `replicas` and `max_bytes` say how it is made and change nothing later. `client` is the name that the server
        shows for this connection. Raises `Unavailable`, and `Refusal` for an unusable cluster name.
        """
        subjects = Subjects(cluster)
        access = Access(url=url, client=client, credentials=credentials, tls=tls)
        link = await Link.open(access, patience_s=patience_s)
        try:
            sizing = Sizing(replicas=replicas, max_bytes=max_bytes)
            state = await ensure_stream(link, subjects, sizing, patience_s=patience_s)
        except BaseException:
            await link.close()
            raise
        publisher = Publisher(link, subjects, patience_s=patience_s, heartbeats_kept_s=heartbeats_kept_s)
        return cls(link, subjects, publisher, state, patience_s=patience_s)

    async def identity(self) -> str:
        """See `Log.identity`: a random id that the stream was made with."""
        return self._identity

    async def append(self, facts: Sequence[Fact], *, expect: Expect | None = None) -> Appended:
        """See `Log.append`."""
        check_ids(facts)
        letters = list({fact.id: self._publisher.address(fact) for fact in facts}.values())
        if not letters:
            return Appended(last=LOG_START, duplicate=True)
        if len(letters) > ATOMIC_MAX:
            return await self._append_long(letters, expect)
        if expect is None:
            placed = await self._group.append(letters)
        else:
            placed = await self._publisher.write(letters, expect)
        return await self._appended(letters, placed)

    async def _append_long(self, letters: Sequence[Letter], expect: Expect | None) -> Appended:
        """Append part by part; each part expects what the one before it left."""
        appended = Appended(last=LOG_START, duplicate=True)
        for start in range(0, len(letters), ATOMIC_MAX):
            part = letters[start : start + ATOMIC_MAX]
            placed = await self._publisher.write(part, expect)
            done = await self._appended(part, placed)
            appended = Appended(last=done.last, duplicate=appended.duplicate and done.duplicate)
            if expect is not None:
                expect = Expect(lane=expect.lane, last=await self._last_in(expect, part, placed))
        return appended

    async def _appended(self, letters: Sequence[Letter], placed: Placed) -> Appended:
        written = [position for position in placed if position is not None]
        if written:
            return Appended(last=max(written))
        return Appended(last=await self._publisher.where(letters[-1]), duplicate=True)

    async def _last_in(self, expect: Expect, letters: Sequence[Letter], placed: Placed) -> Position:
        """Where the last of the letters in the guarded lane stands; if none is in it, the lane has not moved."""
        for letter, position in zip(reversed(letters), reversed(placed), strict=True):
            if expect.lane.covers(Lane(letter.lane)):
                return await self._publisher.where(letter) if position is None else position
        return expect.last

    async def follow(self, kinds: Sequence[Kind], *, after: Position) -> JetStreamFeed:
        """See `Log.follow`."""
        feed = JetStreamFeed(self._link, self._subjects, kinds, identity=self._identity, after=after)
        await self._link.patiently(feed.open, what="following the log", patience_s=self._patience_s)
        self._feeds.add(feed)
        return feed

    async def head(self, kinds: Sequence[Kind] | None = None) -> Position:
        """See `Log.head`. Asked of the stream's leader, so it is never behind what was acknowledged to anybody."""
        patterns = [self._subjects.every] if kinds is None else self._subjects.of_all(kinds)
        asked = (
            self._link.patiently(partial(self._last_of, pattern), what="the log's head", patience_s=self._patience_s)
            for pattern in patterns
        )
        return max(await asyncio.gather(*asked), default=LOG_START)

    async def _last_of(self, pattern: str) -> Position:
        verb = f"STREAM.MSG.GET.{self._subjects.stream}"
        try:
            answer = await self._link.api(verb, {"last_by_subj": pattern}, timeout_s=ANSWER_S)
        except Refused as refused:
            if refused.code == NO_MESSAGE:
                return LOG_START
            raise
        return Position(answer["message"]["seq"])

    async def close(self) -> None:
        """See `Log.close`."""
        await self._group.close()
        for feed in list(self._feeds):
            await feed.close()
        await self._link.close()
