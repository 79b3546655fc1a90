"""Following the log: an ordered consumer of NATS, made again after the last fact heard whenever anything is in doubt.

    consumer --pull, one request at a time--> _hear -> ahead (bounded) -> next

A request waits at the server for facts to come. A feed that rests asks instead for what there is, and again after its
rest: 200 facts a second that come one by one cost 50 times what they cost in parcels.

The server numbers what it sends to a consumer. A number out of order, a silence longer than its heartbeats, a refused
request or a broken connection all end the same way: a new consumer, beginning after the last fact that was heard. So
each fact is given once, in order, across restarts of the server.

What stands in the log and is no fact is passed over, and so is what is condemned (`tenure.log.dead`): by every reader
alike, since the one follows from its bytes and the other stands written.
"""

import asyncio
import contextlib
import json
import logging
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from tenure.domain.ids import Position
from tenure.events.catalogue import Kind
from tenure.events.fact import Recorded
from tenure.events.plausible import impossible
from tenure.log import codec
from tenure.log.carrier import HEADER, Carrier
from tenure.log.dead import DATA_MAX, DeadLetter, DeadLetters
from tenure.log.link import API, Link, Lost, Refused
from tenure.log.port import BeyondEnd, Condemned, Unavailable
from tenure.log.stream import ANSWER_S, SECOND_NS, read_state
from tenure.log.subjects import Subjects

logger = logging.getLogger(__name__)

AHEAD_MAX = 4_000
"""Facts that one request to the server may bring; the next request is made when at least half of them were taken."""
PULL_BYTES = 8 << 20
"""Bytes that one request may bring."""
PULL_EXPIRES_S = 60
BEAT_S = 2
SILENCE_CHECK_S = 1.5 * BEAT_S
SILENT_CHECKS_MAX = 2
"""Checks in a row without a sign of life before a consumer is given up: one may be our own process being busy."""
FORGOTTEN_AFTER_S = 300
"""When the server drops a consumer that asks for nothing: its reader was killed, or is very slow."""
RETRY_S, RETRY_LONGEST_S, HURRY_S = 0.1, 3.0, 0.005
RECOVERY_S = 30.0
"""How long a stream whose server restarted may seem shorter than what we heard of it (a new leader catching up)."""
LETTERS_WAITING_MAX = 100
"""Dead letters that a feed remembers to keep; there are other readers, and the log has the originals."""
KEEP_PATIENCE_S, LAST_LETTERS_S = 10.0, 2.0
ACK = "$JS.ACK."
"""Where the answer to something out of the stream would go: status messages have no such thing."""

BEAT, ENDED = "100", "409"
NOTHING_MORE = ("408", "404")
"""Time is up, or there is nothing now."""
BYTES_REACHED = "Message Size Exceeds MaxBytes"


@dataclass(slots=True, eq=False)
class _Consumer:
    """One consumer on the server. `due`: number of its next message, `asked`: what our request is still to bring."""

    inbox: str
    subscription: Subscription
    name: str = ""
    due: int = 1
    asked: int = 0
    request: int = 0


class JetStreamFeed:
    """See `Feed`. Read by one coroutine at a time."""

    def __init__(
        self,
        link: Link,
        subjects: Subjects,
        kinds: Sequence[Kind],
        *,
        dead: DeadLetters,
        identity: str,
        after: Position,
        condemned: frozenset[Position] | None = None,
        rest_s: float = 0.0,
        carrier: Carrier | None = None,
    ) -> None:
        """Use `JetStreamLog.follow`. `condemned`: what the reader knew of when it came to be at `after`."""
        self.quarantined, self.newer = 0, 0
        self._link, self._subjects, self._identity = link, subjects, identity
        self._dead, self._to_keep = dead, list[DeadLetter]()
        self._keeping: asyncio.Task[None] | None = None
        self._condemned = None if condemned is None else set(condemned)
        self._verdicts: Subscription | None = None
        self._filters = subjects.followed(kinds)
        self._ahead: list[Recorded] = []
        self._heard = self._given = after
        self._arrived = asyncio.Event()
        self._doubt = asyncio.Event()
        self._sign_of_life = False
        self._failure: Unavailable | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._consumer: _Consumer | None = None
        self._rest_s, self._hurry, self._carrier = rest_s, after, carrier
        self._resting: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Begin to follow. Raises `BeyondEnd`, `Unavailable`; `Lost` and `Refused` when it may be tried again."""
        if self._verdicts is None:
            self._verdicts = await self._link.listen(self._subjects.every_condemned, self._hear_verdict)
        await self._begin()
        self._link.on_change.append(self._doubt.set)
        self._keeper = asyncio.create_task(self._keep())
        self._keeper.add_done_callback(self._keeper_ended)

    @property
    def passed(self) -> Position:
        """See `Feed.passed`."""
        return self._given

    async def next(self, timeout_s: float | None) -> Sequence[Recorded]:
        """See `Feed.next`."""
        if self._given == self._heard and self._failure is None:
            self._arrived.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._arrived.wait()
            except TimeoutError:
                return ()
        if self._given == self._heard and self._failure is not None:
            raise self._failure
        await self._pull(room=AHEAD_MAX)
        facts, self._ahead = self._ahead, []  # nothing is awaited from here: a cancelled reader loses no fact
        self._given = self._heard
        return facts

    def hasten(self, position: Position) -> None:
        """See `Feed.hasten`."""
        self._hurry = max(self._hurry, position)
        if self._heard < self._hurry and self._resting is not None:
            self._rested()

    async def close(self) -> None:
        """See `Feed.close`."""
        if self._keeper is None:
            return
        if self._resting is not None:
            self._resting.cancel()
        self._keeper.cancel()
        self._keeper = None
        self._link.on_change.remove(self._doubt.set)
        if self._keeping is not None:
            await asyncio.wait({self._keeping}, timeout=0 if self._link.gone else LAST_LETTERS_S)
            self._keeping.cancel()
        consumer, verdicts = self._consumer, self._verdicts
        await self._leave_consumer()
        if verdicts is not None:
            with contextlib.suppress(NatsError):
                await verdicts.unsubscribe()
        self._fail(Unavailable("the feed is closed"))
        if consumer is not None and not self._link.gone:
            try:
                await self._link.api(f"CONSUMER.DELETE.{self._subjects.stream}.{consumer.name}", timeout_s=1.0)
            except (Lost, Refused):
                logger.debug("the server will forget the consumer by itself in %d s", FORGOTTEN_AFTER_S)

    async def _keep(self) -> None:
        """Watch for doubt, and begin again when there is any."""
        silent_checks = 0
        while self._failure is None:
            try:
                async with asyncio.timeout(SILENCE_CHECK_S):
                    await self._doubt.wait()
            except TimeoutError:
                waiting = self._consumer is not None and self._consumer.asked > 0
                silent_checks = silent_checks + 1 if waiting and not self._sign_of_life else 0
                self._sign_of_life = False
                if silent_checks < SILENT_CHECKS_MAX:
                    continue
            silent_checks = 0
            await self._begin_again()

    async def _begin_again(self) -> None:
        began, delay = time.monotonic(), RETRY_S
        while True:
            self._doubt.clear()
            try:
                await self._link.wait_connected(timeout_s=None)
                await self._begin()
                logger.info("following the log again after position %d", self._heard)
                return
            except (Lost, Refused) as trouble:
                logger.debug("following the log again: %s", trouble)
            except BeyondEnd as beyond:
                if time.monotonic() > began + RECOVERY_S:
                    self._fail(beyond)
                    return
            except Unavailable as trouble:
                self._fail(trouble)
                return
            await asyncio.sleep(delay * random.uniform(0.5, 1.5))  # not all readers at the same instant
            delay = min(2 * delay, RETRY_LONGEST_S)

    async def _begin(self) -> None:
        """Make a consumer that begins after what was heard, in place of the present one."""
        await self._leave_consumer()
        state = await read_state(self._link, self._subjects)
        if state.identity != self._identity:
            raise Unavailable(f"{self._subjects.stream} was replaced by another log: start again from its beginning")
        if state.last < self._heard:
            raise BeyondEnd(f"{self._subjects.stream} ends at {state.last}, before {self._heard}")
        self._pass_over(await self._dead.condemned())
        inbox = self._link.new_inbox()
        subscription = await self._link.listen(f"{inbox}.*", partial(self._hear, inbox))
        self._consumer = consumer = _Consumer(inbox=inbox, subscription=subscription)
        config = {
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self._heard + 1,
            "ack_policy": "none",
            "filter_subjects": self._filters,
            "inactive_threshold": FORGOTTEN_AFTER_S * SECOND_NS,
            "mem_storage": True,
            "num_replicas": 1,
            "description": self._link.access.client,
        }
        question = {"stream_name": self._subjects.stream, "config": config}
        made = await self._link.api(f"CONSUMER.CREATE.{self._subjects.stream}", question, timeout_s=ANSWER_S)
        consumer.name = made["name"]
        await self._pull(room=AHEAD_MAX - len(self._ahead))

    async def _leave_consumer(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is None:
            return
        try:
            await consumer.subscription.unsubscribe()
        except NatsError:
            logger.debug("the subscription ended with its connection")

    async def _pull(self, *, room: int) -> None:
        """Ask for up to `room` more facts, unless a request is under way or the room is too small to bother."""
        consumer = self._consumer
        if consumer is None or not consumer.name or consumer.asked > 0 or room < AHEAD_MAX // 2 or self._resting:
            return
        consumer.asked, consumer.request = room, consumer.request + 1
        waits = {"expires": PULL_EXPIRES_S * SECOND_NS, "idle_heartbeat": BEAT_S * SECOND_NS}
        request = {
            "batch": room,
            "max_bytes": max(PULL_BYTES, 2 * self._link.payload_max),
            **({"no_wait": True} if self._rest_s else waits),
        }
        subject = f"{API}.CONSUMER.MSG.NEXT.{self._subjects.stream}.{consumer.name}"
        try:
            await self._link.say(subject, json.dumps(request).encode(), reply=f"{consumer.inbox}.{consumer.request}")
        except Lost:
            self._doubt.set()

    def _rest(self) -> None:
        """Ask again after a while, or at once if somebody waits for what is to come."""
        rest_s = self._rest_s if self._heard >= self._hurry else HURRY_S
        self._resting = asyncio.get_running_loop().call_later(rest_s, self._rested)

    def _rested(self) -> None:
        if self._resting is not None:
            self._resting.cancel()
        self._resting = None
        self._asking = asyncio.create_task(self._pull(room=AHEAD_MAX - len(self._ahead)))

    async def _hear(self, inbox: str, message: Msg) -> None:
        """Take in one message of the consumer with this inbox."""
        consumer = self._consumer
        if consumer is None or consumer.inbox != inbox:
            return  # an earlier consumer's
        self._sign_of_life = True
        if not message.reply.startswith(ACK):
            await self._hear_status(consumer, message)
            return
        position, number = _numbers(message.reply)
        if number != consumer.due:
            self._doubt.set()
            return
        consumer.due += 1
        consumer.asked -= 1
        self._take_in(position, message)
        if consumer.asked == 0:
            await self._pull(room=AHEAD_MAX - len(self._ahead))

    async def _hear_status(self, consumer: _Consumer, message: Msg) -> None:
        headers = message.headers or {}
        status, said = headers.get("Status"), headers.get("Description", "")
        if status == BEAT:
            if int(headers.get("Nats-Last-Consumer", consumer.due - 1)) != consumer.due - 1:
                self._doubt.set()
            return
        if message.subject != f"{consumer.inbox}.{consumer.request}":
            return  # about an earlier request
        if status in NOTHING_MORE or (status == ENDED and said == BYTES_REACHED):
            consumer.asked = 0
            if self._rest_s and status in NOTHING_MORE:
                self._rest()
            await self._pull(room=AHEAD_MAX - len(self._ahead))
            return
        logger.debug("the consumer ended: %s %s", status, said)
        self._doubt.set()

    def _take_in(self, position: Position, message: Msg) -> None:
        self._heard = position
        self._arrived.set()
        if self._condemned and position in self._condemned:
            self.quarantined += 1
            return
        try:
            fact = codec.decode(message.data)
            if not self._subjects.vouches(message.subject, fact):
                raise codec.Undecodable(f"a {type(fact).__name__} may not be said there")
            if wrong := impossible(fact):
                raise codec.Undecodable(f"{type(fact).__name__} {wrong}")
            self._ahead.append(Recorded(position, fact))
            if self._carrier is not None and (header := (message.headers or {}).get(HEADER)):
                self._carrier.heard(fact, header)
        except codec.Undecodable as trouble:
            self._quarantine(position, message, reason=str(trouble))

    def _quarantine(self, position: Position, message: Msg, *, reason: str) -> None:
        """Pass over what is no fact, and keep it for people: whichever reader is the first to do so says it."""
        self.quarantined += 1
        if (tag := codec.tag_of(message.data)) and self._subjects.is_newer(message.subject, tag):
            self.newer += 1
            reason = f"this version knows no {tag}"
        if len(self._to_keep) >= LETTERS_WAITING_MAX:
            return
        letter = DeadLetter(
            position=position,
            subject=message.subject,
            reason=reason,
            by=self._link.access.client,
            size=len(message.data),
            data=message.data[:DATA_MAX],
        )
        self._to_keep.append(letter)
        if self._keeping is None or self._keeping.done():
            self._keeping = asyncio.create_task(self._keep_letters())

    async def _keep_letters(self) -> None:
        while self._to_keep:
            letter = self._to_keep[0]
            told = f"what stands at {letter.position} on {letter.subject} is no fact and is passed over"
            try:
                fresh = await self._link.patiently(
                    partial(self._dead.keep, letter), what="keeping a dead letter", patience_s=KEEP_PATIENCE_S
                )
                if fresh:
                    logger.error("quarantined: %s: %s (see `tenure log dead`)", told, letter.reason)
            except Unavailable as trouble:
                logger.warning("%s: %s (not kept among the dead letters: %s)", told, letter.reason, trouble)
            self._to_keep.pop(0)

    async def _hear_verdict(self, message: Msg) -> None:
        letter = self._dead.opened(message.subject, message.data)
        if letter is not None and letter.condemned and self._condemned is not None:
            self._pass_over([*self._condemned, letter.position])

    def _pass_over(self, positions: Iterable[Position]) -> None:
        """These are condemned. What was given already cannot be taken back: its reader folds anew."""
        new = set(positions) - (self._condemned or set())
        told = [position for position in new if position <= self._given]
        if told and self._condemned is not None:
            self._fail(Condemned(f"the fact at {min(told)} was condemned: folding the log again without it"))
        self._condemned = (self._condemned or set()) | new
        kept = [recorded for recorded in self._ahead if recorded.position not in new]
        self.quarantined += len(self._ahead) - len(kept)
        self._ahead[:] = kept

    def _keeper_ended(self, keeper: "asyncio.Task[None]") -> None:
        """A mistake in here must reach the reader: it would wait for ever otherwise."""
        if not keeper.cancelled() and (error := keeper.exception()) is not None:
            logger.error("the keeper of a feed ended", exc_info=error)
            self._fail(Unavailable(f"the feed cannot be continued: {error!r}"))

    def _fail(self, failure: Unavailable) -> None:
        self._failure = failure
        self._arrived.set()


def _numbers(reply: str) -> tuple[Position, int]:
    """The position of a message and its number in its consumer, from `$JS.ACK[.domain.account].stream.consumer...`."""
    words = reply.split(".")
    begin = 5 if len(words) == 9 else 7
    return Position(int(words[begin])), int(words[begin + 1])
