"""The question of the gateway and the answers of the forecast as bytes."""

import asyncio
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import pytest
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError

from tenure.domain.ids import JobId, Position
from tenure.runtime.forecasts import (
    JOBS_MAX,
    NOBODY,
    Change,
    Forecast,
    JobForecast,
    NoForecast,
    Outlook,
    Question,
    ask,
    decode_answer,
    decode_question,
    encode_answer,
    encode_question,
    encode_trouble,
)

OUTLOOK = Outlook(
    at=5,
    position=Position(7),
    changes=(Change(change="4 GPUs instead of 8", field="gpus_per_replica", value="4", starts_at=None),),
)


def a_forecast(jobs: int = 2) -> Forecast:
    return Forecast(
        made_at=5,
        position=Position(7),
        draws=5,
        followed_until=9,
        jobs_finished=3,
        jobs=tuple(
            JobForecast(job=JobId(f"j-{n:06}"), earliest=n, p50=n, p90=n + 1, latest=n + 1, followed=n % 2 == 0)
            for n in range(jobs)
        ),
    )


@dataclass
class Reply:
    data: bytes = b""
    headers: Mapping[str, str] | None = None


@dataclass
class Line:
    """A connection on which one thing is answered."""

    reply: Reply | Exception
    asked: list[tuple[str, bytes]] = field(default_factory=list)

    async def request(self, subject: str, payload: bytes = b"", timeout: float = 1.0) -> Reply:
        assert timeout > 0
        self.asked.append((subject, payload))
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


def asked(line: Line) -> Forecast:
    return asyncio.run(ask(line, Question(), cluster="lab", kind=Forecast, timeout_s=1.0))


def test_answers_come_back_as_they_were() -> None:
    assert decode_answer(encode_answer(a_forecast()), None, kind=Forecast) == a_forecast()
    assert decode_answer(encode_answer(OUTLOOK), None, kind=Outlook) == OUTLOOK
    assert [each.basis for each in a_forecast().jobs] == ["followed", "rate"]


def test_questions_come_back_as_they_were() -> None:
    for question in (Question(), Question(job=JobId("j-1"))):
        assert decode_question(encode_question(question)) == question


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"job": 3}', b"\xff", b'{"job": "' + b"j" * 2_000 + b'"}'])
def test_what_is_no_question_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a question"):
        decode_question(data)


def test_an_answer_fits_into_one_message() -> None:
    body = encode_answer(a_forecast(3 * JOBS_MAX))
    assert len(body) < 1_000_000
    assert [each.job for each in decode_answer(body, None, kind=Forecast).jobs] == [
        each.job for each in a_forecast(JOBS_MAX).jobs
    ]


@pytest.mark.parametrize(
    "body",
    [b"", b"what", zlib.compress(b"what"), zlib.compress(msgspec.msgpack.encode({"made_at": "soon"}))],
)
def test_an_answer_that_makes_no_sense_is_none(body: bytes) -> None:
    with pytest.raises(NoForecast, match="makes no sense"):
        decode_answer(body, None, kind=Forecast)


def test_an_answer_is_not_unpacked_without_end() -> None:
    with pytest.raises(NoForecast, match="makes no sense"):
        decode_answer(zlib.compress(bytes(1 << 28)), None, kind=Forecast)


def test_the_other_side_s_line_is_told() -> None:
    with pytest.raises(NoForecast, match=r"^still reading the log$"):
        asked(Line(Reply(headers=encode_trouble("still\nreading the log"))))


@pytest.mark.parametrize(
    ("error", "line"), [(NoRespondersError(), NOBODY), (NatsTimeoutError(), "none came within 1 s")]
)
def test_nobody_answers(error: Exception, line: str) -> None:
    with pytest.raises(NoForecast, match=line):
        asked(Line(error))


def test_it_is_asked_under_the_cluster_s_name() -> None:
    line = Line(Reply(encode_answer(a_forecast())))
    assert asked(line) == a_forecast()
    assert line.asked == [("tenure-data.lab.forecast", b"{}")]
