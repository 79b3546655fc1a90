"""The answers of one process `forecast`: worked out beside the fold when somebody asks, told again for a while."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from services.placer.state import State as PlacerState
from simulator.live.alternatives import alternatives
from simulator.live.forecast import forecast
from simulator.live.state import Folding, State
from tenure.domain.ids import JobId, Position
from tenure.domain.policy import Policy
from tenure.domain.units import Millis
from tenure.runtime.clock import Clock
from tenure.runtime.forecasts import (
    Forecast,
    Outlook,
    Question,
    decode_question,
    encode_answer,
    encode_trouble,
    subject,
)
from tenure.runtime.loop import Loop

logger = logging.getLogger(__name__)
T = TypeVar("T")

KEPT_S = 4.0
"""A forecast is told again for so long, ..."""
REST_FACTOR = 4.0
"""... and for so many times as long as working it out took: at most a fifth of a processor is spent on them."""
COPY_KEPT_MS: Millis = 2_000
"""What would change a start is looked at on a copy of what the placer knows, which is as old at most."""
PENDING_MAX = 256
"""So many questions wait; the log's server drops what comes beyond."""
AT_A_TIME = 256
"""So many questions are answered at a time; whoever asks beyond them is told so."""


class Answers:
    """Answers for one log. `asker`: the first word of the names on which whoever may ask hears answers."""

    def __init__(self, loop: Loop[State], folding: Folding, clock: Clock, *, policy: Policy, asker: str) -> None:
        self._loop, self._folding, self._clock = loop, folding, clock
        self._policy, self._asker = policy, asker
        self._made: bytes | None = None
        self._copy: tuple[PlacerState, Position, Millis] | None = None
        self._until_s = 0.0
        self._working, self._looking = asyncio.Lock(), asyncio.Lock()
        self._answering: set[asyncio.Task[None]] = set()
        """Kept, or a task may be collected before it is done."""

    async def listen(self, connection: Client, *, cluster: str) -> None:
        """Answer from now on. Of several processes one is asked at a time."""
        self._connection = connection
        await connection.subscribe(
            subject(cluster=cluster), queue="forecast", cb=self._hear, pending_msgs_limit=PENDING_MAX
        )

    async def _hear(self, message: Msg) -> None:
        """Begin to answer one question. The client gives the next one when this returns: nothing is waited for here."""
        if not message.reply.startswith(f"{self._asker}."):
            logger.warning("somebody asked for a forecast to be sent to %.80r: no name of a gateway", message.reply)
            return
        if len(self._answering) >= AT_A_TIME:
            await self._say(message.reply, b"", encode_trouble("no forecast is available: too many ask at once"))
            return
        task = asyncio.create_task(self._reply(message))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _reply(self, message: Msg) -> None:
        body, headers = b"", dict[str, str]()
        try:
            question = decode_question(message.data)
            body = await self.answer(question)
        except ValueError as trouble:
            headers = encode_trouble(str(trouble))
        except Exception:  # a future that breaks is no reason to end: the next one begins elsewhere
            logger.exception("no forecast could be made")
            headers = encode_trouble("no forecast is available: it could not be worked out (its log says why)")
        await self._say(message.reply, body, headers)

    async def _say(self, reply: str, body: bytes, headers: dict[str, str]) -> None:
        try:
            await self._connection.publish(reply, body, headers=headers or None)
        except NatsError as trouble:  # whoever asked has stopped waiting by the time that the server is back
            logger.warning("an answer could not be sent: %s", trouble)

    async def answer(self, question: Question) -> bytes:
        """The body of the reply. Raises ValueError with a line for people."""
        if not self._loop.caught_up.is_set():
            raise ValueError("no forecast is available: its process is still reading the log")
        if question.job is not None:
            return encode_answer(await self._outlook(question.job))
        async with self._working:
            if self._made is None or time.monotonic() >= self._until_s:
                began = time.monotonic()
                self._made = encode_answer(await self._forecast())
                took = time.monotonic() - began
                self._until_s = time.monotonic() + max(KEPT_S, REST_FACTOR * took)
            return self._made

    async def _forecast(self) -> Forecast:
        payload, now = self._folding.dump(self._loop.state), self._clock.now()
        return await beside(partial(forecast, payload, self._folding, now=now))

    async def _outlook(self, job: JobId) -> Outlook:
        async with self._looking:
            copy, position, at = await self._copied(job)
            changes = alternatives(copy, job, at, policy=self._policy)
        return Outlook(at=at, position=position, changes=changes)

    async def _copied(self, job: JobId) -> tuple[PlacerState, Position, Millis]:
        """A copy of what the placer knows, that knows the job if anybody does; of which position and instant it is."""
        state, now, known = self._loop.state, self._clock.now(), self._copy
        is_young = known is not None and now - known[2] <= COPY_KEPT_MS
        if known is None or not is_young or (job not in known[0].core.jobs and known[1] != state.position):
            payload, position = self._folding.placer.dump(state.placer), state.position
            known = self._copy = await beside(partial(self._folding.placer.load, payload)), position, now
        return known


async def beside(work: Callable[[], T]) -> T:
    """What some work comes to, done in a thread that does not keep the process from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(set_: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the process has ended meanwhile
            loop.call_soon_threadsafe(lambda: None if done.done() else set_())

    def run() -> None:
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - whoever waits is to have it
            settle(partial(done.set_exception, error))
        else:
            settle(partial(done.set_result, result))

    threading.Thread(target=run, name="forecast", daemon=True).start()
    return await done
