"""How the gateway asks for a forecast: one question, one answer, over NATS beside the log. Data, never decisions.

gateway --request(`subject`, `encode_question`)--> the process `forecast` --reply(`encode_forecast`)--> gateway

Nothing depends on an answer: without one people read that there is no forecast.
"""

import zlib
from collections.abc import Mapping
from typing import TypeVar

import msgspec
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError

from tenure.domain.ids import JobId, Position
from tenure.domain.units import Millis
from tenure.runtime.log_stream import Requester

JOBS_MAX = 10_000
"""An answer tells of so many jobs, those that start first: it must fit into one message."""
QUESTION_BYTES_MAX = 1_000
BYTES_MAX = 16 << 20
"""What an answer may unpack to."""
FORECAST_TIMEOUT_S = 30.0
OUTLOOK_TIMEOUT_S = 2.0
NOBODY = "no forecast is available: its process does not answer"


class Question(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`job`: what would make this job start earlier; None: when each queued job starts."""

    job: JobId | None = None


class JobForecast(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """When a queued job starts, in several futures: in the first, in half and in nine of ten of them, in the last.

    `followed`: the futures were followed until it started; otherwise it is from the rate of its budget.
    """

    job: JobId
    earliest: Millis
    p50: Millis
    p90: Millis
    latest: Millis
    followed: bool

    @property
    def basis(self) -> str:
        """`followed` in a word."""
        return "followed" if self.followed else "rate"


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """Of all queued jobs at one instant and position. `draws` futures were followed until `followed_until` at least.

    `jobs_finished`: so many finished jobs told how long jobs last.
    """

    made_at: Millis
    position: Position
    draws: int
    followed_until: Millis
    jobs_finished: int
    jobs: tuple[JobForecast, ...]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Another job in its place. `field`, `value`: of the request, as the command line takes it; `change` in words.

    `starts_at`: the instant of the question for at once, a later one, or None: no sooner than as it is.
    """

    change: str
    field: str
    value: str
    starts_at: Millis | None


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """What would change a queued job's start, looked at one instant and position."""

    at: Millis
    position: Position
    changes: tuple[Change, ...]


class NoForecast(Exception):
    """There is no forecast now: one line that says why."""


A = TypeVar("A", Forecast, Outlook)
_question = msgspec.json.Decoder(Question)


def subject(*, cluster: str) -> str:
    """Where the forecast listens."""
    return f"tenure-data.{cluster}.forecast"


def encode_question(question: Question) -> bytes:
    """The question as JSON."""
    return msgspec.json.encode(question)


def decode_question(data: bytes) -> Question:
    """The inverse of `encode_question`. Raises ValueError on damage."""
    if len(data) > QUESTION_BYTES_MAX:
        raise ValueError("not a question: it is too long")
    try:
        return _question.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not a question: {error}") from error


def encode_answer(answer: Forecast | Outlook) -> bytes:
    """The body of a reply, packed."""
    if isinstance(answer, Forecast):
        answer = msgspec.structs.replace(answer, jobs=answer.jobs[:JOBS_MAX])
    return zlib.compress(msgspec.msgpack.encode(answer), level=1)


def encode_trouble(line: str) -> dict[str, str]:
    """The headers of a reply that has no body but one line that says why."""
    return {"error": " ".join(line.split())[:400]}


def decode_answer(data: bytes, headers: Mapping[str, str] | None, *, kind: type[A]) -> A:
    """The inverse. Raises `NoForecast` with the other side's line, or for an answer that makes no sense."""
    if headers and "error" in headers:
        raise NoForecast(headers["error"])
    try:
        return msgspec.msgpack.decode(zlib.decompressobj().decompress(data, BYTES_MAX), type=kind)
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NoForecast(f"the answer of the forecast makes no sense: {error}") from error


async def ask(connection: Requester, question: Question, *, cluster: str, kind: type[A], timeout_s: float) -> A:
    """Ask, and wait for the answer. Raises `NoForecast`."""
    try:
        reply = await connection.request(subject(cluster=cluster), encode_question(question), timeout_s)
    except NoRespondersError as error:
        raise NoForecast(NOBODY) from error
    except NatsTimeoutError as error:
        raise NoForecast(f"no forecast is available: none came within {timeout_s:g} s") from error
    except NatsError as error:
        raise NoForecast(f"no forecast is available: {error}") from error
    return decode_answer(reply.data, reply.headers, kind=kind)
