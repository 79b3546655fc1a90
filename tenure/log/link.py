"""One connection to NATS: questions with answers, and word of every outage. The whole adapter talks through it.

A question that was under way when the connection broke fails at once (`Lost`), not when its time is up: the answer can
never come, and whoever asked can ask again as soon as the connection is back.
"""

import asyncio
import itertools
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from tenure.log.access import Access, SafeClient
from tenure.log.carrier import HEADER
from tenure.log.port import Unavailable

logger = logging.getLogger(__name__)

API = "$JS.API"
RECONNECT_WAIT_S = 0.05
PING_INTERVAL_S = 5
CONNECT_TIMEOUT_S = 2
RETRY_FIRST_S, RETRY_LONGEST_S = 0.01, 0.5
STATUS_START = b"NATS/1.0 "
NO_RESPONDERS = "503"
BATCH_CUT = 10176
"""The first part of a batch was lost with a connection and the rest came over the next one: nothing was written."""
FORBIDDEN, IN_FLIGHT, TOO_MANY_REQUESTS = 403, 409, 429
TRACE_BYTES_MAX = 80
_TRACE = f"\r\n{HEADER}:".encode()
_DENIED = re.compile(r'permissions violation for publish to "([^"]+)"', re.IGNORECASE)

_UNHEARD = re.compile(r'permissions violation for subscription to "_inbox', re.IGNORECASE)

T = TypeVar("T")


class Lost(Exception):
    """No answer: the connection broke, nobody listens, or time was up. Whether the question was heard is unknown."""


class Refused(Exception):
    """JetStream answered with an error. `code` is its `err_code`, `status` the HTTP-like class of it."""

    def __init__(self, *, code: int, status: int, description: str) -> None:
        super().__init__(f"{description} (NATS error {code})")
        self.code, self.status, self.description = code, status, description

    @property
    def passing(self) -> bool:
        """Whether it may be accepted later: the server is busy, starting or without a leader, or its like in flight."""
        return self.status >= 500 or self.status in (IN_FLIGHT, TOO_MANY_REQUESTS) or self.code == BATCH_CUT


class _LeanClient(SafeClient):
    """Leaves the headers of facts alone but for the trace: to take them apart is half the cost of a replay.

    Should nats-py one day call this method by another name, replays are slower and nothing else.
    """

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        """The headers of status messages (`NATS/1.0 100 Idle Heartbeat`); of all others the trace, None without one."""
        if headers and (begin := headers.find(_TRACE)) >= 0:
            value = headers[begin + len(_TRACE) :][:TRACE_BYTES_MAX].partition(b"\r\n")[0]
            return {HEADER: value.strip().decode(errors="replace")}
        if not headers or not headers.startswith(STATUS_START):
            return None
        return await super()._process_headers(headers)

    def forget_unsent(self) -> None:
        """Drop what waits to be sent. After a reconnect it would be: minutes after whoever sent it was told `Lost`.

        Subscriptions are made again by themselves.
        """
        self._pending, self._pending_data_size = [], 0


class _Question(NamedTuple):
    subject: str
    answer: "asyncio.Future[Msg]"


class Link:
    """A connection that comes back by itself, for ever, until `close`; `gone` when the server sent us away for good."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self.on_change: list[Callable[[], None]] = []
        self.connected = asyncio.Event()
        self.trouble = ""
        self.gone = False
        self._client = _LeanClient()
        self._numbers = itertools.count()
        self._waiting: dict[str, _Question] = {}
        self._inbox = ""

    @classmethod
    async def open(cls, access: Access, *, patience_s: float) -> "Link":
        """Connect, waiting for a server that is just starting. Raises `Unavailable`."""
        link = cls(access)
        connecting = asyncio.create_task(link._connect())
        try:
            await asyncio.wait({connecting}, timeout=patience_s)
        finally:
            await _end(connecting)
        try:
            connecting.result()
        except asyncio.CancelledError:
            await link.close()
            why = f": {link.trouble}" if link.trouble else ""
            raise Unavailable(
                f"no NATS server answers at {access.shown}{why}; start it (`tenure up` does) or name another"
            ) from None
        except NatsError as error:
            await link.close()
            raise Unavailable(f"the NATS server at {access.shown} does not let us in: {error}") from error
        return link

    async def _connect(self) -> None:
        self._client.encrypted = self.access.encrypted
        await self._client.connect(
            **self.access.options(),
            max_reconnect_attempts=-1,
            reconnect_time_wait=RECONNECT_WAIT_S,  # type: ignore[arg-type]  # seconds, fractions work
            connect_timeout=CONNECT_TIMEOUT_S,
            ping_interval=PING_INTERVAL_S,
            error_cb=self._on_error,
            disconnected_cb=self._on_lost,
            reconnected_cb=self._on_return,
            closed_cb=self._on_closed,
        )
        self._inbox = self._client.new_inbox()
        await self._client.subscribe(f"{self._inbox}.*", cb=self._on_answer)
        self.connected.set()

    @property
    def payload_max(self) -> int:
        """The largest message the server takes, headers included, in bytes."""
        return self._client.max_payload

    async def close(self) -> None:
        """Disconnect; questions under way are `Lost`."""
        self.on_change.clear()
        self.gone = True
        self._abandon("the connection was closed")
        await self._client.close()

    async def wait_connected(self, *, timeout_s: float | None) -> None:
        """Wait until the server is there, for ever if None. Raises `Unavailable`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.connected.wait()
        except TimeoutError:
            raise Unavailable(f"the log's server at {self.access.shown} is away") from None
        if self.gone:
            raise Unavailable(f"the connection to {self.access.shown} is closed {self.trouble}".rstrip())

    async def say(
        self, subject: str, payload: bytes, *, reply: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a message that has no answer of its own. Raises `Lost`."""
        if not self._client.is_connected:
            raise Lost("not connected")  # nats-py would keep it and send it when the server is back
        try:
            await self._client.publish(subject, payload, reply=reply, headers=dict(headers) if headers else None)
        except NatsError as error:
            raise Lost(str(error)) from error

    async def ask(
        self, subject: str, payload: bytes, *, headers: Mapping[str, str] | None = None, timeout_s: float
    ) -> dict[str, Any]:
        """Send a message and return its answer, a JSON object. Raises `Lost` and `Refused`."""
        if self.gone or not self.connected.is_set():
            raise Lost("not connected")
        token = str(next(self._numbers))
        answer: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._waiting[token] = _Question(subject, answer)
        try:
            await self.say(subject, payload, reply=f"{self._inbox}.{token}", headers=headers)
            async with asyncio.timeout(timeout_s):
                message = await answer
        except TimeoutError:
            hint = self.trouble or "if the server is up, its disk may be full: see its log"
            raise Lost(f"no answer within {timeout_s:g} s ({hint})") from None
        finally:
            del self._waiting[token]
            answer.cancel()
        return _opened(message)

    async def api(self, verb: str, question: Mapping[str, Any] | None = None, *, timeout_s: float) -> dict[str, Any]:
        """Ask the JetStream API, as in `STREAM.INFO.<stream>`. Raises `Lost` and `Refused`."""
        payload = json.dumps(question).encode() if question is not None else b""
        return await self.ask(f"{API}.{verb}", payload, timeout_s=timeout_s)

    async def patiently(self, attempt: Callable[[], Awaitable[T]], *, what: str, patience_s: float) -> T:
        """The result of `attempt`, made again while the server is away or busy. Raises `Unavailable` in the end."""
        deadline = time.monotonic() + patience_s
        delay = RETRY_FIRST_S
        while True:
            try:
                await self.wait_connected(timeout_s=max(0.0, deadline - time.monotonic()))
                return await attempt()
            except (Lost, Refused) as trouble:
                if time.monotonic() + delay > deadline or (isinstance(trouble, Refused) and not trouble.passing):
                    raise Unavailable(f"{what}: {trouble}") from trouble
                logger.debug("trying again, %s: %s", what, trouble)
            await asyncio.sleep(delay)
            delay = min(delay * 2, RETRY_LONGEST_S)

    def new_inbox(self) -> str:
        """A subject of our own that nobody else uses."""
        return self._client.new_inbox()

    async def listen(self, subject: str, hear: Callable[[Msg], Awaitable[None]]) -> Subscription:
        """Call `hear` for each message on a subject, across outages, until the subscription is ended. Raises `Lost`."""
        try:
            return await self._client.subscribe(subject, cb=hear)
        except NatsError as error:
            raise Lost(str(error)) from error

    async def _on_answer(self, message: Msg) -> None:
        question = self._waiting.get(message.subject.rpartition(".")[2])
        if question is not None and not question.answer.done():
            question.answer.set_result(message)

    async def _on_error(self, error: Exception) -> None:
        """NATS says what is wrong (also a denied permission) only here, not to the question that it concerns."""
        self.trouble = str(error) or type(error).__name__
        if _UNHEARD.search(self.trouble):  # whatever is asked, no answer will come
            self.trouble = f"--nats-key-file: not the key of {self.access.client}; give the one that was made for it"
        denied = _DENIED.search(self.trouble)
        logger.log(logging.WARNING if denied else logging.DEBUG, "the log's server: %s", self.trouble)
        for question in self._waiting.values():
            if denied and question.subject.lower() == denied[1].lower() and not question.answer.done():
                question.answer.set_exception(Refused(code=0, status=FORBIDDEN, description=self.trouble))

    async def _on_lost(self) -> None:
        if not self.gone:
            logger.warning("lost the log's server at %s", self.access.shown)
        self.connected.clear()
        self._client.forget_unsent()
        self._abandon("the connection broke")

    async def _on_return(self) -> None:
        logger.info("the log's server is back")
        self.trouble = ""
        self.connected.set()
        self._tell()

    async def _on_closed(self) -> None:
        """The client gave up (the server sent it away): whoever waits for the connection must not wait for ever."""
        if self._client.last_error is not None:
            self.trouble = f"({self._client.last_error})"
        self.gone = True
        self.connected.set()
        self._tell()

    def _tell(self) -> None:
        for listener in self.on_change:
            listener()

    def _abandon(self, why: str) -> None:
        for question in self._waiting.values():
            if not question.answer.done():
                question.answer.set_exception(Lost(why))


async def _end(task: "asyncio.Task[None]") -> None:
    """Cancel it until it has ended: nats-py, sent away by a server in just this moment, overlooks one and goes on."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=RETRY_FIRST_S)


def _opened(message: Msg) -> dict[str, Any]:
    if not message.data:
        status = (message.headers or {}).get("Status", "")
        raise Lost("nobody answers: JetStream is not ready" if status == NO_RESPONDERS else f"empty answer {status}")
    answer: dict[str, Any] = json.loads(message.data)
    error = answer.get("error")
    if error is not None:
        raise Refused(
            code=error.get("err_code", 0), status=error.get("code", 0), description=error.get("description", "refused")
        )
    return answer
