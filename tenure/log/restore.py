"""Making a log anew from a copy of its facts: each at the position it had, because facts and tables refer to positions.

    create, named after the log that it replaces -> [ facts, and something in each gap ] -> purge what filled the gaps

Gaps are what nobody could read, and heartbeats that the log would have forgotten by now.
"""

import contextlib
import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tenure.domain.ids import LOG_START, FactId, Position
from tenure.domain.units import SECOND, Millis
from tenure.events.fact import Fact, Recorded
from tenure.events.reports import Heartbeat
from tenure.log import codec
from tenure.log.access import Access
from tenure.log.create import create
from tenure.log.jetstream import HEARTBEATS_KEPT_S, PATIENCE_S
from tenure.log.link import Link, Lost, Refused
from tenure.log.port import ATOMIC_MAX, Unavailable
from tenure.log.publish import ACK_S
from tenure.log.stream import NOT_FOUND, Sizing, ensure_stream, read_state
from tenure.log.subjects import Subjects

logger = logging.getLogger(__name__)

IDS_KEPT = 100_000
"""The ids of so many last facts are given to the server, so that what is sent again just after is known."""
BATCH_BYTES_MAX = 8 << 20
PURGE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What was written: facts, and positions without one, `heartbeats_left_out` of them for heartbeats too old."""

    facts: int
    gaps: int
    heartbeats_left_out: int
    last: Position
    identity: str


class _Message(NamedTuple):
    subject: str
    payload: bytes
    headers: Mapping[str, str]


def family(identity: str) -> str:
    """What a log and those restored from copies of it have in common in their identities: positions mean the same."""
    return identity.partition(".")[0]


async def restore(
    copy: Iterable[Recorded],
    access: Access,
    *,
    cluster: str,
    copy_of: str,
    last: Position,
    now: Millis,
    replicas: int = 1,
    max_bytes: int | None = None,
    heartbeats_kept_s: int = HEARTBEATS_KEPT_S,
) -> Restored:
    """Write all facts of the copy, in order of position and up to `last`, into a log that is made for them.

    `copy_of`: the identity of the log that they are from. `max_bytes`: its size at most; None: as one that is made
    without saying. Raises `Unavailable` if there is a log already, if somebody
    else writes meanwhile, or the server cannot be reached: then nothing is left.
    """
    subjects = Subjects(cluster)
    link = await Link.open(access, patience_s=PATIENCE_S)
    try:
        identity = f"{family(copy_of)}.{uuid.uuid4().hex[:12]}"
        await _make(link, subjects, Sizing(replicas=replicas, max_bytes=max_bytes, identity=identity))
        try:
            filler = _Filler(copy, subjects, last=last, now=now, kept_s=heartbeats_kept_s)
            restored = await _write(link, filler, identity)
            await link.api(f"STREAM.PURGE.{subjects.stream}", {"filter": subjects.gap}, timeout_s=PURGE_S)
        except BaseException:
            with contextlib.suppress(Lost, Refused):
                await link.api(f"STREAM.DELETE.{subjects.stream}", timeout_s=PURGE_S)
            raise
    except (Lost, Refused) as trouble:
        raise Unavailable(f"the log was not restored: {trouble}") from trouble
    finally:
        await link.close()
    await create(server=access, cluster=cluster, replicas=replicas, max_gib=0)
    return restored


async def _make(link: Link, subjects: Subjects, sizing: Sizing) -> None:
    try:
        state = await read_state(link, subjects)
    except Refused as refused:
        if refused.code != NOT_FOUND:
            raise
        await ensure_stream(link, subjects, sizing, patience_s=PATIENCE_S)
        return
    raise Unavailable(f"there is a log {subjects.stream} already, up to position {state.last}: it is left as it is")


class _Filler:
    """The messages of a log in order, one for each position, and what was counted on the way."""

    def __init__(
        self, copy: Iterable[Recorded], subjects: Subjects, *, last: Position, now: Millis, kept_s: int
    ) -> None:
        self.facts = self.gaps = self.left_out = 0
        self._copy, self._subjects, self._last, self._now, self._kept_s = copy, subjects, last, now, kept_s
        self._seen: set[FactId] = set()

    def messages(self) -> Iterator[_Message]:
        """One for each position from 1 on."""
        next_at = 1
        for position, fact in ((entry.position, entry.fact) for entry in self._copy):
            if position > self._last:
                return
            for _ in range(next_at, position):
                self.gaps += 1
                yield self._gap()
            next_at = position + 1
            rest_s = self._kept_s - (self._now - fact.at) // SECOND
            if isinstance(fact, Heartbeat) and rest_s <= 0:
                self.left_out += 1
                self.gaps += 1
                yield self._gap()
            else:
                self.facts += 1
                yield _Message(self._subjects.of(fact), codec.encode(fact), self._headers(fact, position, rest_s))

    def _gap(self) -> _Message:
        return _Message(self._subjects.gap, b"", {})

    def _headers(self, fact: Fact, position: Position, rest_s: int) -> dict[str, str]:
        headers = {}
        if isinstance(fact, Heartbeat):
            headers["Nats-TTL"] = f"{rest_s}s"
        if position > self._last - IDS_KEPT and fact.id not in self._seen:  # one may stand twice
            self._seen.add(fact.id)
            headers["Nats-Msg-Id"] = str(fact.id)
        return headers


async def _write(link: Link, filler: _Filler, identity: str) -> Restored:
    """Write in batches, each on the condition that the one before it is the last in the log."""
    batch: list[_Message] = []
    size, written = 0, LOG_START
    for message in filler.messages():
        batch.append(message)
        size += len(message.payload)
        if len(batch) == ATOMIC_MAX or size >= BATCH_BYTES_MAX:
            written = await _send(link, batch, after=written)
            batch, size = [], 0
    if batch:
        written = await _send(link, batch, after=written)
    logger.info("restored up to position %d", written)
    return Restored(
        facts=filler.facts, gaps=filler.gaps, heartbeats_left_out=filler.left_out, last=written, identity=identity
    )


async def _send(link: Link, batch: Sequence[_Message], *, after: Position) -> Position:
    """Write some messages whole, right after a position. Returns the position of the last."""
    name, expected = uuid.uuid4().hex, Position(after + len(batch))
    first = {"Nats-Expected-Last-Sequence": str(after)}
    if len(batch) == 1:
        ack = await link.ask(batch[0].subject, batch[0].payload, headers={**batch[0].headers, **first}, timeout_s=ACK_S)
    else:
        for number, message in enumerate(batch, start=1):
            headers = {**message.headers, "Nats-Batch-Id": name, "Nats-Batch-Sequence": str(number)}
            headers |= first if number == 1 else {}
            if number < len(batch):
                await link.say(message.subject, message.payload, headers=headers)
        last = {**headers, "Nats-Batch-Commit": "1"}
        ack = await link.ask(message.subject, message.payload, headers=last, timeout_s=PURGE_S)
    if ack["seq"] != expected:
        raise Unavailable(f"the facts up to {expected} were written up to {ack['seq']}: somebody else writes here, too")
    return expected
