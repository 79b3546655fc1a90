"""When queued jobs will start, as the gateway tells it: asked of a process `forecast` that is made up here."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from nats.errors import NoRespondersError

from services.gateway.forecasts import Forecasts
from tenure.domain.ids import JobId, Position
from tenure.events.budgets import JobAdmitted
from tenure.runtime.forecasts import (
    Change,
    Forecast,
    JobForecast,
    Outlook,
    Question,
    decode_question,
    encode_answer,
    encode_trouble,
)
from tenure.v1 import jobs_pb2
from tests.contract.conftest import MemoryUnderTest
from tests.contract.gateway_rig import NOW, LogHistory, Rig, play


@dataclass
class Reply:
    data: bytes = b""
    headers: Mapping[str, str] | None = None


CHANGES = (
    Change(change="4 GPUs instead of 8", field="gpus_per_replica", value="4", starts_at=NOW),
    Change(change="min-runtime 1h instead of 4h", field="min_runtime_ms", value="1h", starts_at=NOW + 60_000),
    Change(change="accept A100", field="gpu_type", value="A100", starts_at=None),
)


@dataclass
class Forecaster:
    """The process `forecast` as the gateway meets it: it says one thing of all jobs, after a while."""

    in_s: int = 3_600
    done: asyncio.Event | None = None
    """It answers when this is set; None: at once."""
    trouble: str = ""
    away: bool = False
    jobs: list[JobId] = field(default_factory=list)
    asked: list[Question] = field(default_factory=list)

    async def request(self, subject: str, payload: bytes = b"", timeout: float = 1.0) -> Reply:
        assert subject == "tenure-data.test.forecast" and timeout > 0
        question = decode_question(payload)
        self.asked.append(question)
        if self.done is not None:
            await self.done.wait()
        if self.away:
            raise NoRespondersError
        if self.trouble:
            return Reply(headers=encode_trouble(self.trouble))
        if question.job is not None:
            return Reply(encode_answer(Outlook(at=NOW, position=Position(3), changes=CHANGES)))
        at = time.time_ns() // 1_000_000 + self.in_s * 1_000
        jobs = [
            JobForecast(job=job, earliest=at, p50=at, p90=at + 1, latest=at + 1, followed=True) for job in self.jobs
        ]
        made = Forecast(
            made_at=NOW, position=Position(3), draws=5, followed_until=at, jobs_finished=9, jobs=tuple(jobs)
        )
        return Reply(encode_answer(made))


async def queued(rig: Rig, told: Forecaster) -> JobId:
    """A job that waits, and that the forecast knows of."""
    job = JobId(await rig.submit())
    await rig.write(JobAdmitted(at=NOW, job=job, spec=rig.loop.state.jobs[job].spec, submitted_at=NOW))
    told.jobs.append(job)
    return job


async def listed(rig: Rig, *, forecast: bool = True) -> jobs_pb2.ListJobsResponse:
    answer: jobs_pb2.ListJobsResponse = await rig.jobs.List(jobs_pb2.ListJobsRequest(forecast=forecast))
    return answer


def test_a_queued_job_has_a_forecast_for_those_who_ask() -> None:
    told = Forecaster()

    async def scenario(rig: Rig) -> None:
        job, other = await queued(rig, told), await rig.submit()
        answer = await listed(rig)
        by_job = {each.job_id: each for each in answer.jobs}
        assert by_job[job].forecast_start_p90_ms == by_job[job].forecast_start_p50_ms + 1 > answer.cluster.now_ms
        assert by_job[job].forecast_basis == "followed"
        assert by_job[other].forecast_start_p50_ms == 0 and by_job[other].forecast_basis == ""
        assert (answer.forecast.draws, answer.forecast.position, answer.forecast.jobs_finished) == (5, 3, 9)
        assert answer.forecast.made_at_ms == NOW and answer.forecast.trouble == ""
        one = await rig.jobs.Get(jobs_pb2.GetJobRequest(job_id=job, forecast=True))
        assert one.job.forecast_start_p50_ms == by_job[job].forecast_start_p50_ms
        assert told.asked == [Question()], "told again for some seconds"

    play(MemoryUnderTest(), scenario, agents=told)


def test_who_does_not_ask_costs_nothing() -> None:
    told = Forecaster()

    async def scenario(rig: Rig) -> None:
        job = await queued(rig, told)
        answer = await listed(rig, forecast=False)
        assert not answer.HasField("forecast") and answer.jobs[0].forecast_start_p50_ms == 0
        assert (await rig.jobs.Get(jobs_pb2.GetJobRequest(job_id=job))).job.forecast_basis == ""
        assert told.asked == []

    play(MemoryUnderTest(), scenario, agents=told)


def test_an_instant_that_has_passed_is_now() -> None:
    told = Forecaster(in_s=-3_600)

    async def scenario(rig: Rig) -> None:
        await queued(rig, told)
        answer = await listed(rig)
        assert answer.jobs[0].forecast_start_p50_ms == answer.jobs[0].forecast_start_p90_ms == answer.cluster.now_ms

    play(MemoryUnderTest(), scenario, agents=told)


def test_without_a_forecast_the_list_is_as_it_was_and_says_why() -> None:
    told = Forecaster(away=True)

    async def scenario(rig: Rig) -> None:
        job = await queued(rig, told)
        answer = await listed(rig)
        assert [each.job_id for each in answer.jobs] == [job] and answer.jobs[0].forecast_start_p50_ms == 0
        assert answer.forecast.made_at_ms == 0
        assert answer.forecast.trouble == "no forecast is available: its process does not answer"
        told.away, told.trouble = False, "still reading the log"
        assert (await listed(rig)).forecast.trouble == "still reading the log"
        told.trouble = ""
        answer = await listed(rig)
        assert answer.forecast.trouble == "" and answer.jobs[0].forecast_start_p50_ms

    play(MemoryUnderTest(), scenario, agents=told)


def test_a_list_does_not_wait_for_a_forecast_that_takes_long() -> None:
    told = Forecaster()

    async def scenario(rig: Rig) -> None:
        told.done = asyncio.Event()
        await queued(rig, told)
        answer = await asyncio.wait_for(listed(rig), 10)
        assert "worked out" in answer.forecast.trouble and answer.jobs[0].forecast_start_p50_ms == 0
        told.done.set()
        answer = await listed(rig)
        assert answer.forecast.trouble == "" and answer.jobs[0].forecast_start_p50_ms
        assert told.asked == [Question()], "one question, however many lists"

    play(MemoryUnderTest(), scenario, agents=told)


def test_an_explanation_says_when_a_queued_job_starts_and_what_would_change_it() -> None:
    told = Forecaster()

    async def scenario(rig: Rig) -> None:
        job = await queued(rig, told)
        answer = await rig.jobs.Explain(jobs_pb2.ExplainJobRequest(job_id=job, forecast=True))
        assert [(each.change, each.outcome, each.start_ms) for each in answer.alternatives] == [
            ("4 GPUs instead of 8", "now", 0),
            ("min-runtime 1h instead of 4h", "at", NOW + 60_000),
            ("accept A100", "not", 0),
        ]
        assert answer.forecast.p90_at_ms == answer.forecast.p50_at_ms + 1
        assert answer.forecast.basis == "5 futures from now on, with lengths of 9 finished jobs"
        assert (answer.forecast.position, answer.forecast.at_ms) == (3, NOW)
        unasked = await rig.jobs.Explain(jobs_pb2.ExplainJobRequest(job_id=job))
        assert not unasked.HasField("forecast") and not unasked.alternatives, "nobody waits for what was not asked for"
        assert answer.alternatives_trouble == unasked.alternatives_trouble == ""

    play(MemoryUnderTest(), scenario, agents=told, history_of=LogHistory)


def test_without_a_forecast_a_story_is_told_all_the_same() -> None:
    told = Forecaster(away=True)

    async def scenario(rig: Rig) -> None:
        job = await queued(rig, told)
        answer = await rig.jobs.Explain(jobs_pb2.ExplainJobRequest(job_id=job, forecast=True))
        assert [step.kind for step in answer.steps] == ["JobSubmitted", "JobAdmitted"]
        assert not answer.HasField("forecast") and not answer.alternatives
        assert answer.alternatives_trouble == "no forecast is available: its process does not answer"

    play(MemoryUnderTest(), scenario, agents=told, history_of=LogHistory)


def test_two_first_questions_at_once_connect_once() -> None:
    """An explanation asks for the forecast and for what would change it."""
    told, connections = Forecaster(), 0

    async def connect() -> Forecaster:
        nonlocal connections
        connections += 1
        await asyncio.sleep(0)
        return told

    async def scenario() -> None:
        forecasts = Forecasts(cluster="test", connect=connect)
        answer = jobs_pb2.ExplainJobResponse()
        await forecasts.fill(answer, JobId("j"))
        assert len(answer.alternatives) == len(CHANGES) and len(told.asked) == 2

    asyncio.run(scenario())
    assert connections == 1
