"""Who asks a process `forecast`, and what it answers."""

import asyncio
from dataclasses import dataclass, field

import pytest
from nats.aio.msg import Msg

from simulator.live.answers import Answers
from simulator.live.state import State, role
from tenure.domain.ids import JobId
from tenure.domain.units import HOUR, MINUTE, Millis
from tenure.log.permissions import FORECAST, GRANTS, may_publish
from tenure.runtime.forecasts import Forecast, NoForecast, Outlook, Question, decode_answer, encode_question
from tests.unit.simulator.live.present import FOLDING, POLICY, Present, a_job

ASKER = "_INBOX_gateway"


@dataclass
class Folded:
    """The loop, as far as it is asked."""

    state: State
    caught_up: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Clock:
    at: Millis

    def now(self) -> Millis:
        return self.at


@dataclass
class Line:
    """The connection: what was published on it, and where."""

    said: list[tuple[str, bytes, dict[str, str] | None]] = field(default_factory=list)
    subscribed: list[tuple[str, str]] = field(default_factory=list)

    async def subscribe(self, subject: str, *, queue: str, cb: object, pending_msgs_limit: int) -> None:
        assert cb is not None and pending_msgs_limit > 0
        self.subscribed.append((subject, queue))

    async def publish(self, subject: str, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.said.append((subject, body, headers))


class Answering:
    """A process that has folded a busy host: `holds` runs, `waits` waits."""

    def __init__(self, *, caught_up: bool = True) -> None:
        present = Present(hosts="1x8")
        present.submit("holds", a_job(gpus=4, contract=8 * HOUR), minutes=600)
        present.submit("waits", a_job(gpus=8, contract=HOUR), minutes=10, at=1)
        present.until(2)
        folded = Folded(present.state)
        if caught_up:
            folded.caught_up.set()
        self.line, self.clock = Line(), Clock(2 * MINUTE)
        self.answers = Answers(folded, FOLDING, self.clock, policy=POLICY, asker=ASKER)  # type: ignore[arg-type]

    async def ask(self, data: bytes, *, reply: str = f"{ASKER}.1") -> None:
        await self.answers.listen(self.line, cluster="lab")  # type: ignore[arg-type]
        await self.answers._hear(Msg(_client=None, subject="s", reply=reply, data=data))  # type: ignore[arg-type]
        await asyncio.gather(*self.answers._answering)


def asked(answering: Answering, question: Question) -> tuple[bytes, dict[str, str] | None]:
    asyncio.run(answering.ask(encode_question(question)))
    (said,) = answering.line.said
    assert said[0] == f"{ASKER}.1"
    return said[1], said[2]


def test_when_jobs_start() -> None:
    answering = Answering()
    body, headers = asked(answering, Question())
    made = decode_answer(body, headers, kind=Forecast)
    assert [each.job for each in made.jobs] == ["waits"]
    assert made.made_at == 2 * MINUTE and made.jobs[0].p50 > made.made_at
    assert answering.line.subscribed == [("tenure-data.lab.forecast", "forecast")], "several share the questions"


def test_what_would_change_a_start() -> None:
    body, headers = asked(Answering(), Question(job=JobId("waits")))
    told = decode_answer(body, headers, kind=Outlook)
    assert told.changes[0].change == "4 GPUs instead of 8"


def test_a_forecast_is_told_again_for_a_while() -> None:
    async def scenario() -> None:
        answering = Answering()
        first, second = await asyncio.gather(*(answering.answers.answer(Question()) for _ in range(2)))
        assert first is second
        answering.answers._until_s = 0.0
        answering.clock.at += MINUTE
        assert decode_answer(await answering.answers.answer(Question()), None, kind=Forecast).made_at == 3 * MINUTE

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("answering", "question", "line"),
    [
        (Answering(caught_up=False), Question(), "still reading the log"),
        (Answering(), Question(job=JobId("holds")), "holds does not wait"),
        (Answering(), Question(job=JobId("nobody")), "nobody does not wait"),
    ],
)
def test_what_cannot_be_told_is_a_line(answering: Answering, question: Question, line: str) -> None:
    body, headers = asked(answering, question)
    with pytest.raises(NoForecast, match=line):
        decode_answer(body, headers, kind=Forecast)


def test_what_is_no_question_is_answered_so() -> None:
    answering = Answering()
    asyncio.run(answering.ask(b"what"))
    assert answering.line.said[0][2] is not None and "not a question" in answering.line.said[0][2]["error"]


def test_a_future_that_breaks_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> Forecast:
        raise AssertionError("I1")

    monkeypatch.setattr("simulator.live.answers.forecast", broken)
    body, headers = asked(Answering(), Question())
    with pytest.raises(NoForecast, match="could not be worked out"):
        decode_answer(body, headers, kind=Forecast)


def test_whoever_asks_beyond_the_bound_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.live.answers.AT_A_TIME", 0)
    body, headers = asked(Answering(), Question())
    with pytest.raises(NoForecast, match="too many ask at once"):
        decode_answer(body, headers, kind=Forecast)


def test_what_it_cannot_fold_concerns_nobody_else() -> None:
    assert not role(POLICY).condemns and not GRANTS[FORECAST].condemns
    assert "tenure-dead.lab.unreadable.*" in may_publish(GRANTS[FORECAST], cluster="lab")


def test_nobody_but_a_gateway_is_answered() -> None:
    answering = Answering()
    asyncio.run(answering.ask(encode_question(Question()), reply="tenure.lab.place.runs.RunEnded"))
    assert answering.line.said == []
