"""Writing to the stream: one fact as a plain publish, several as an atomic batch, and what to do about each refusal.

The server tells of a duplicate id in three ways: a plain publish is acknowledged with the old position, a conditional
one meets its own condition first (conflict), and a batch is refused whole. `Publisher.write` makes one behaviour of it.
"""

import asyncio
import dataclasses
import itertools
import random
import uuid
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from tenure.domain.ids import FactId, Position
from tenure.events.fact import Fact, Lane, Recorded
from tenure.events.reports import Heartbeat
from tenure.log import codec
from tenure.log.carrier import HEADER, Carrier
from tenure.log.link import Link, Refused
from tenure.log.port import ATOMIC_MAX, Conflict, Expect, FactTooLarge, LogFull
from tenure.log.stream import NO_MESSAGE, last_of
from tenure.log.subjects import Subjects

HEADERS_MAX = 1_024
"""Bytes of a message that we leave for its headers (they count as payload)."""
ACK_S = 5.0
NEVER = str(2**53 - 1)
"""A sequence that no stream reaches: a batch expecting it is always refused."""
AROUND_PAUSE_S = 0.005
"""How long at most a writer in `place.hosts` steps back when it met one in `place.runs` on a replicated stream."""
NOTHING: Mapping[str, str] = MappingProxyType({})

WRONG_LAST = (10071, 10164)
"""The condition does not hold; of a replicated stream also: it is being changed right now."""
DUPLICATE = 10201
STORE_FAILED, NO_STORAGE, NO_RESOURCES, ACCOUNT_FULL, LIMITS_EXCEEDED = 10077, 10047, 10023, 10002, 10028
FULL = (NO_STORAGE, NO_RESOURCES, ACCOUNT_FULL, LIMITS_EXCEEDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A fact ready to be sent."""

    id: FactId
    lane: Lane
    subject: str
    payload: bytes
    headers: Mapping[str, str]


class Place(NamedTuple):
    """Where a letter stands in the log, and whether it was written just now or had been there before."""

    position: Position
    fresh: bool


Read = Callable[[Position, int], Awaitable[Sequence[Recorded]]]
"""Reads so many positions of the log from one on."""


class Publisher:
    """Writes letters, surviving outages up to `patience_s` long."""

    def __init__(
        self,
        link: Link,
        subjects: Subjects,
        *,
        read: Read,
        replicated: bool,
        patience_s: float,
        heartbeats_kept_s: int,
        carrier: Carrier | None = None,
    ) -> None:
        self._link, self._subjects, self._read = link, subjects, read
        self._replicated, self._carrier = replicated, carrier
        self._patience_s = patience_s
        self._beat_headers = {"Nats-TTL": f"{heartbeats_kept_s}s"}
        self._session = uuid.uuid4().hex
        self._batches = itertools.count()

    def address(self, fact: Fact) -> Letter:
        """The fact as a letter. Raises `FactTooLarge`, `Undecodable` for a kind that nobody could read."""
        kind, payload = codec.kind_name(fact), codec.encode(fact)
        if len(payload) + HEADERS_MAX > self._link.payload_max:
            raise FactTooLarge(
                f"{kind} {fact.id} has {len(payload)} bytes, the log takes {self._link.payload_max - HEADERS_MAX}"
            )
        headers = {"Nats-Msg-Id": str(fact.id)}
        if self._carrier is not None and (header := self._carrier.header_of(fact)):
            headers[HEADER] = header
        if isinstance(fact, Heartbeat):
            headers |= self._beat_headers
        return Letter(id=fact.id, lane=fact.lane, subject=self._subjects.of(fact), payload=payload, headers=headers)

    async def write(self, letters: Sequence[Letter], expect: Expect | None = None) -> list[Place]:
        """Write up to `ATOMIC_MAX` letters with different ids; those not in the log yet all together or not at all.

        Returns the place of each. Raises `Conflict`, `LogFull`, `Unavailable`.
        """
        assert 0 < len(letters) <= ATOMIC_MAX, "the caller cuts longer appends"
        return await self._link.patiently(
            lambda: self._write_once(letters, expect),
            what=f"{len(letters)} facts were not acknowledged",
            patience_s=self._patience_s,
        )

    async def _write_once(self, letters: Sequence[Letter], expect: Expect | None) -> list[Place]:
        places: dict[FactId, Place] = {}
        while fresh := [letter for letter in letters if letter.id not in places]:
            try:
                guard = NOTHING if expect is None else await self._guard(expect)
                if len(fresh) == 1:
                    places[fresh[0].id] = await self._send_one(fresh[0], guard)
                else:
                    last = await self._send_batch(fresh, first=guard)
                    for back, letter in enumerate(reversed(fresh)):
                        places[letter.id] = Place(Position(last - back), fresh=True)
            except Refused as refused:
                places |= await self._known_because(refused, fresh, expect)
        return [places[letter.id] for letter in letters]

    async def _guard(self, expect: Expect) -> Mapping[str, str]:
        """The headers of a condition. Raises `Refused` if it does not hold now.

        A replicated stream keeps conditions that are in flight by their pattern and does not see that two patterns
        overlap: a guard on `place` would miss an append that is guarded by `place.hosts`. There the topmost pattern
        guards in place of the lane's own, at the position at which the lane is seen to be as expected.
        """
        own, around = self._subjects.in_lane(expect.lane), self._subjects.around(expect.lane)
        if not self._replicated or own == around:
            return _condition(own, expect.last)
        last_around = await last_of(self._link, self._subjects, around)  # first: nothing may come in between
        last = await last_of(self._link, self._subjects, own)
        if last != expect.last:
            raise Refused(code=WRONG_LAST[0], status=400, description=f"wrong last sequence: {last}")
        return _condition(around, last_around)

    async def _send_one(self, letter: Letter, guard: Mapping[str, str]) -> Place:
        ack = await self._link.ask(letter.subject, letter.payload, headers={**letter.headers, **guard}, timeout_s=ACK_S)
        return Place(Position(ack["seq"]), fresh=not ack.get("duplicate", False))

    async def _send_batch(
        self, letters: Sequence[Letter], *, first: Mapping[str, str], last: Mapping[str, str] = NOTHING
    ) -> Position:
        """Send letters as one atomic batch, with more headers on the first and on the last of them.

        Returns the position of the last. Raises `Refused`, with the code `DUPLICATE` if any is in the log.
        """
        batch = f"{self._session}-{next(self._batches)}"
        for number, letter in enumerate(letters, start=1):
            headers = {**letter.headers, "Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
            if number == 1:
                headers |= first
            if number < len(letters):
                await self._link.say(letter.subject, letter.payload, headers=headers)
        headers |= {**last, "Nats-Batch-Commit": "1"}
        ack = await self._link.ask(letter.subject, letter.payload, headers=headers, timeout_s=ACK_S)
        assert ack["count"] == len(letters), "a batch is whole"
        return Position(ack["seq"])

    async def _known_because(
        self, refused: Refused, letters: Sequence[Letter], expect: Expect | None
    ) -> dict[FactId, Place]:
        """The letters that are in the log, if `refused` is about those; none if they may be sent again as they are.

        Raises what the refusal is about otherwise.
        """
        if refused.code in FULL or (refused.code == STORE_FAILED and "maximum" in refused.description):
            raise LogFull(f"the log {self._subjects.stream} is full: {refused}; give it more room") from refused
        if refused.code in WRONG_LAST and expect is not None:
            if not await self._met_itself(letters, expect):
                if await self._still_holds(expect):
                    await asyncio.sleep(random.uniform(0, AROUND_PAUSE_S))
                    return {}
                raise Conflict(f"{expect.lane} after {expect.last}: {refused}") from refused
        elif refused.code != DUPLICATE:
            raise refused
        known = await self._find_known(letters)
        if not known:  # forgotten in this very moment: sent again it will be taken
            raise refused
        return known

    async def _still_holds(self, expect: Expect) -> bool:
        """Whether a refused condition holds all the same: only the lanes around have moved (see `_guard`)."""
        own = self._subjects.in_lane(expect.lane)
        if not self._replicated or own == self._subjects.around(expect.lane):
            return False
        return await last_of(self._link, self._subjects, own) == expect.last

    async def _met_itself(self, letters: Sequence[Letter], expect: Expect) -> bool:
        """Whether a conflict is with an earlier sending of the same letters.

        Those were written on the same condition, so the first of them in the guarded lane follows its last fact there.
        """
        ours = next((letter for letter in letters if expect.lane.covers(letter.lane)), None)
        if ours is None:
            return await self._any_known(letters[:1])
        verb = f"STREAM.MSG.GET.{self._subjects.stream}"
        next_in_lane = {"seq": expect.last + 1, "next_by_subj": self._subjects.in_lane(expect.lane)}
        try:
            answer = await self._link.api(verb, next_in_lane, timeout_s=ACK_S)
            return codec.decode(b64decode(answer["message"]["data"])).id == ours.id
        except codec.Undecodable:
            return False
        except Refused as refused:
            if refused.code == NO_MESSAGE:
                return False
            raise

    async def _find_known(self, letters: Sequence[Letter]) -> dict[FactId, Place]:
        """Where the letters stand that are in the log.

        What was written together stands together: from the first known one on the log itself is read.
        """
        known: dict[FactId, Place] = {}
        rest = list(letters)
        while rest and await self._any_known(rest):
            low, high = 0, len(rest)  # the first known one is in rest[low:high]
            while high - low > 1:
                middle = (low + high) // 2
                if await self._any_known(rest[low:middle]):
                    high = middle
                else:
                    low = middle
            first = await self._send_one(rest[low], {})
            known[rest[low].id] = Place(first.position, fresh=False)
            wanted = {letter.id for letter in rest}
            for recorded in await self._read(first.position, len(rest)):
                if recorded.fact.id in wanted:
                    known[recorded.fact.id] = Place(recorded.position, fresh=False)
            rest = [letter for letter in rest if letter.id not in known]
        return known

    async def _any_known(self, letters: Sequence[Letter]) -> bool:
        """Whether one of the letters is in the log, found out without writing.

        They are sent as a batch whose last one has a condition that never holds: the server goes through a batch in
        order and looks for duplicates before it looks at a condition. (`Nats-Expected-Last-Msg-Id` on a plain publish
        would tell too, but on a replicated stream of nats-server 2.15.1 it stops the stream.)
        """
        empty = [dataclasses.replace(letter, payload=b"") for letter in letters]
        try:
            await self._send_batch(empty, first=NOTHING, last={"Nats-Expected-Last-Sequence": NEVER})
        except Refused as refused:
            if refused.code == DUPLICATE:
                return True
            if refused.code in WRONG_LAST:
                return False
            raise
        raise AssertionError("a batch on a condition that cannot hold was written")


def _condition(pattern: str, last: Position) -> dict[str, str]:
    return {
        "Nats-Expected-Last-Subject-Sequence": str(last),
        "Nats-Expected-Last-Subject-Sequence-Subject": pattern,
    }
