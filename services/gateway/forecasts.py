"""When queued jobs will start, as the process `forecast` says: asked for when somebody looks, kept for some seconds."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tenure.domain.ids import JobId
from tenure.domain.units import Millis
from tenure.runtime.forecasts import (
    FORECAST_TIMEOUT_S,
    OUTLOOK_TIMEOUT_S,
    Change,
    Forecast,
    JobForecast,
    NoForecast,
    Outlook,
    Question,
    ask,
)
from tenure.runtime.log_stream import LogsAway, Requester
from tenure.v1 import jobs_pb2

FRESH_S = 5.0
"""A forecast is told again for so long before another is asked for ..."""
KEPT_S = 120.0
"""... and, while none comes, for so long at all."""
WAIT_S = 1.0
"""How long a listing waits for a fresh one."""
EXPLAIN_WAIT_S = 0.1
"""The same of an explanation, which has more to say than that."""
WORKING = "the forecast is being worked out: look again in a moment"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The newest forecast, if any is recent enough, and why there is no fresher one (empty: it is fresh)."""

    made: Forecast | None = None
    by_job: dict[JobId, JobForecast] = field(default_factory=dict)
    trouble: str = ""


class Forecasts:
    """Asks for one gateway. `connect` is called when the first question comes."""

    def __init__(self, *, cluster: str, connect: Callable[[], Awaitable[Requester]]) -> None:
        self._cluster, self._connect = cluster, connect
        self._connection: Requester | None = None
        self._connecting = asyncio.Lock()
        """Whoever asks first connects, and the others wait for that: a second connection would be nobody's to close."""
        self._told, self._heard_at = Told(trouble=WORKING), float("-inf")
        self._asking: asyncio.Task[None] | None = None

    async def latest(self, *, wait_s: float = WAIT_S) -> Told:
        """The forecast of all queued jobs; waits so long for a fresh one, which is worked out meanwhile in any case."""
        if time.monotonic() - self._heard_at < FRESH_S:
            return self._told
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask_all())
        await asyncio.wait({self._asking}, timeout=wait_s)
        age_s = time.monotonic() - self._heard_at
        if age_s < FRESH_S:
            return self._told
        if self._told.made is None or age_s > KEPT_S:
            return Told(trouble=self._told.trouble or WORKING)
        return Told(made=self._told.made, by_job=self._told.by_job, trouble=self._told.trouble or WORKING)

    async def fill(self, answer: jobs_pb2.ExplainJobResponse, job: JobId) -> None:
        """Add to the explanation of a queued job when it will start and what would change that, or why nobody says."""
        told, outlook = await asyncio.gather(self.latest(wait_s=EXPLAIN_WAIT_S), self._outlook(job))
        found = told.by_job.get(job)
        if found is not None and told.made is not None:
            answer.forecast.CopyFrom(_start_forecast(found, told.made))
        if isinstance(outlook, NoForecast):
            answer.alternatives_trouble = str(outlook)
        else:
            answer.alternatives.extend(_alternative(change, at=outlook.at) for change in outlook.changes)

    async def _outlook(self, job: JobId) -> Outlook | NoForecast:
        try:
            connection = await self._connected()
            question = Question(job=job)
            return await ask(connection, question, cluster=self._cluster, kind=Outlook, timeout_s=OUTLOOK_TIMEOUT_S)
        except NoForecast as trouble:
            return trouble

    async def _ask_all(self) -> None:
        try:
            connection = await self._connected()
            made = await ask(connection, Question(), cluster=self._cluster, kind=Forecast, timeout_s=FORECAST_TIMEOUT_S)
        except NoForecast as trouble:
            self._told = Told(made=self._told.made, by_job=self._told.by_job, trouble=str(trouble))
            return
        self._told, self._heard_at = Told(made=made, by_job={each.job: each for each in made.jobs}), time.monotonic()

    async def _connected(self) -> Requester:
        async with self._connecting:
            if self._connection is None:
                try:
                    self._connection = await self._connect()
                except LogsAway as trouble:
                    raise NoForecast(f"no forecast is available: {trouble}") from trouble
            return self._connection


def add_forecast(job: jobs_pb2.Job, told: Told | None, *, now: Millis) -> jobs_pb2.Job:
    """The job with its forecast, if it waits and has one: never earlier than now, as it has not started."""
    found = None if told is None or job.state != "queued" else told.by_job.get(JobId(job.job_id))
    if found is not None:
        job.forecast_start_p50_ms, job.forecast_start_p90_ms = max(found.p50, now), max(found.p90, now)
        job.forecast_basis = found.basis
    return job


def _start_forecast(found: JobForecast, made: Forecast) -> jobs_pb2.StartForecast:
    lengths = f"lengths of {made.jobs_finished} finished jobs" if made.jobs_finished else "the contracts' lengths"
    basis = f"{made.draws} futures from now on, with {lengths}"
    if not found.followed:
        basis += ", followed for a while, and then by the rate at which its budget's jobs start in them"
    return jobs_pb2.StartForecast(
        earliest_at_ms=found.earliest,
        p50_at_ms=found.p50,
        p90_at_ms=found.p90,
        latest_at_ms=found.latest,
        basis=basis,
        position=made.position,
        at_ms=made.made_at,
    )


def _alternative(change: Change, *, at: Millis) -> jobs_pb2.Alternative:
    starts_at = change.starts_at
    outcome = "not" if starts_at is None else "now" if starts_at <= at else "at"
    return jobs_pb2.Alternative(
        change=change.change,
        field=change.field,
        value=change.value,
        outcome=outcome,
        start_ms=starts_at or 0 if outcome == "at" else 0,
    )


def from_told(told: Told) -> jobs_pb2.ForecastSummary:
    """What the jobs' forecasts were made of."""
    made = told.made
    if made is None:
        return jobs_pb2.ForecastSummary(trouble=told.trouble)
    return jobs_pb2.ForecastSummary(
        made_at_ms=made.made_at,
        position=made.position,
        draws=made.draws,
        followed_until_ms=made.followed_until,
        jobs_finished=made.jobs_finished,
        trouble=told.trouble,
    )
