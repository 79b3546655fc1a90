"""Writing to the stream: one fact as a plain publish, several as an atomic batch, and what to do about each refusal.

The server tells of a duplicate id in three ways: a plain publish is acknowledged with the old position, a conditional
one meets its own condition first (conflict), and a batch is refused whole. `Publisher.write` makes one behaviour of it.
"""

import asyncio
import itertools
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tenure.domain.ids import FactId, Position
from tenure.events.fact import Fact, Lane
from tenure.events.reports import Heartbeat
from tenure.log import codec
from tenure.log.link import Link, Refused
from tenure.log.port import ATOMIC_MAX, Conflict, Expect, FactTooLarge, LogFull
from tenure.log.subjects import Subjects

HEADERS_MAX = 1_024
"""Bytes of a message that we leave for its headers (they count as payload)."""
ACK_S = 5.0
PROBES_AT_ONCE = 32
NEVER = str(2**53 - 1)
"""A sequence that no stream reaches: a batch expecting it is always refused."""

WRONG_LAST, LAST_IN_FLIGHT = 10071, 10164
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


class Publisher:
    """Writes letters, surviving outages up to `patience_s` long."""

    def __init__(self, link: Link, subjects: Subjects, *, patience_s: float, heartbeats_kept_s: int) -> None:
        self._link, self._subjects = link, subjects
        self._patience_s = patience_s
        self._beat_headers = {"Nats-TTL": f"{heartbeats_kept_s}s"}
        self._session = uuid.uuid4().hex
        self._batches = itertools.count()

    def address(self, fact: Fact) -> Letter:
        """The fact as a letter. Raises `FactTooLarge`."""
        payload = codec.encode(fact)
        if len(payload) + HEADERS_MAX > self._link.payload_max:
            raise FactTooLarge(
                f"{codec.kind_name(fact)} {fact.id} has {len(payload)} bytes, the log takes "
                f"{self._link.payload_max - HEADERS_MAX}"
            )
        headers = {"Nats-Msg-Id": str(fact.id)}
        if isinstance(fact, Heartbeat):
            headers |= self._beat_headers
        return Letter(
            id=fact.id, lane=fact.lane, subject=self._subjects.of(type(fact)), payload=payload, headers=headers
        )

    async def write(self, letters: Sequence[Letter], expect: Expect | None = None) -> list[Position | None]:
        """Write up to `ATOMIC_MAX` letters with different ids; those not in the log yet all together or not at all.

        Returns the position of each, None for those that were in the log already. Raises `Conflict`, `LogFull`,
        `Unavailable`.
        """
        assert 0 < len(letters) <= ATOMIC_MAX, "the caller cuts longer appends"
        return await self._link.patiently(
            lambda: self._write_once(letters, expect),
            what=f"{len(letters)} facts were not acknowledged",
            patience_s=self._patience_s,
        )

    async def where(self, letter: Letter) -> Position:
        """The position of a letter that is known to be in the log. Raises `Unavailable`."""
        return await self._link.patiently(
            lambda: self._send_one(letter, {}), what=f"the position of {letter.id}", patience_s=self._patience_s
        )

    async def _write_once(self, letters: Sequence[Letter], expect: Expect | None) -> list[Position | None]:
        fresh = letters
        while fresh:
            try:
                last = await self._send(fresh, expect)
            except Refused as refused:
                fresh = await self._without_known(fresh, refused)
                continue
            placed = {letter.id: Position(last - back) for back, letter in enumerate(reversed(fresh))}
            return [placed.get(letter.id) for letter in letters]
        return [None] * len(letters)

    async def _without_known(self, letters: Sequence[Letter], refused: Refused) -> Sequence[Letter]:
        """The letters that are not in the log, if `refused` is about the others. Raises what it is about otherwise."""
        if refused.code in FULL or (refused.code == STORE_FAILED and "maximum" in refused.description):
            raise LogFull(f"the log {self._subjects.stream} is full: {refused}; give it more room") from refused
        if refused.code in (WRONG_LAST, LAST_IN_FLIGHT):
            if not await self._is_known(letters[0]):
                raise Conflict(str(refused)) from refused
        elif refused.code != DUPLICATE:
            raise refused
        known = await self._known(letters)
        if not known:
            raise refused
        return [letter for letter in letters if letter.id not in known]

    async def _send(self, letters: Sequence[Letter], expect: Expect | None) -> Position:
        """Send once. Returns the position of the last letter; raises `Refused(DUPLICATE)` if any is known already."""
        guard: dict[str, str] = {}
        if expect is not None:
            guard["Nats-Expected-Last-Subject-Sequence"] = str(expect.last)
            guard["Nats-Expected-Last-Subject-Sequence-Subject"] = self._subjects.in_lane(expect.lane)
        if len(letters) == 1:
            return await self._send_one(letters[0], guard, known=DUPLICATE)
        batch = self._batch_id()
        for number, letter in enumerate(letters[:-1], start=1):
            headers = {**letter.headers, **guard, "Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
            await self._link.say(letter.subject, letter.payload, headers=headers)
            guard = {}  # the condition is about the log before the batch: it stands on the first letter only
        commit = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(len(letters)), "Nats-Batch-Commit": "1"}
        ack = await self._link.ask(
            letters[-1].subject, letters[-1].payload, headers={**letters[-1].headers, **commit}, timeout_s=ACK_S
        )
        assert ack["count"] == len(letters), "a batch is whole"
        return Position(ack["seq"])

    async def _send_one(self, letter: Letter, guard: Mapping[str, str], *, known: int | None = None) -> Position:
        """Publish one letter. One that is in the log already: its position, or `Refused(known)` if that is given."""
        ack = await self._link.ask(letter.subject, letter.payload, headers={**letter.headers, **guard}, timeout_s=ACK_S)
        if ack.get("duplicate") and known is not None:
            raise Refused(code=known, status=400, description="duplicate message id")
        return Position(ack["seq"])

    async def _known(self, letters: Sequence[Letter]) -> set[FactId]:
        """The ids of those that are in the log."""
        known: set[FactId] = set()
        for start in range(0, len(letters), PROBES_AT_ONCE):
            some = letters[start : start + PROBES_AT_ONCE]
            answers = await asyncio.gather(*(self._is_known(letter) for letter in some))
            known.update(letter.id for letter, is_known in zip(some, answers, strict=True) if is_known)
        return known

    async def _is_known(self, letter: Letter) -> bool:
        """Whether a letter is in the log, found out without writing.

        A batch of one is sent on a condition that never holds: the server looks for duplicates in a batch before it
        looks at the condition. (`Nats-Expected-Last-Msg-Id` on a plain publish would tell too, but on a replicated
        stream of nats-server 2.15.1 it stops the stream.)
        """
        headers = {
            "Nats-Msg-Id": str(letter.id),
            "Nats-Batch-Id": self._batch_id(),
            "Nats-Batch-Sequence": "1",
            "Nats-Batch-Commit": "1",
            "Nats-Expected-Last-Sequence": NEVER,
        }
        try:
            await self._link.ask(letter.subject, b"", headers=headers, timeout_s=ACK_S)
        except Refused as refused:
            if refused.code == DUPLICATE:
                return True
            if refused.code in (WRONG_LAST, LAST_IN_FLIGHT):
                return False
            raise
        raise AssertionError("a batch on a condition that cannot hold was written")

    def _batch_id(self) -> str:
        return f"{self._session}-{next(self._batches)}"
