"""The gRPC service Jobs: submit, look at, explain, cancel, read output."""

import asyncio
from contextlib import aclosing

from services.gateway.answering import Context, Stream, answering, streaming
from services.gateway.budgets import visible_from
from services.gateway.convert import from_cluster, from_job, to_job_states, to_spec
from services.gateway.decider import cancel, no_such_job
from services.gateway.entries import JobEntry
from services.gateway.explaining import Explaining
from services.gateway.forecasts import Forecasts, Told, add_forecast, from_told
from services.gateway.gateway import Gateway
from services.gateway.history import History, job_from_story
from services.gateway.identity.asking import allowed, require
from services.gateway.intake import Intake, check_batch
from services.gateway.output import Output
from services.gateway.policy.discretion import HIDDEN, whose
from services.gateway.policy.listing import count_jobs, list_jobs
from services.gateway.policy.meanwhile import with_policy_changes
from services.gateway.policy.totals import cluster_total
from services.gateway.refusals import Away, NotFound
from services.gateway.state import State
from services.gateway.story import unit_of
from tenure.domain.ids import BudgetPath, JobId, UserName
from tenure.domain.job import JobSpec
from tenure.domain.nearest import did_you_mean, shown
from tenure.domain.reasons import JobState
from tenure.domain.refusal import Refusal
from tenure.domain.rights import Right
from tenure.domain.units import Millis
from tenure.events.fact import Fact
from tenure.runtime.tracing import answering as answering_call
from tenure.v1 import jobs_pb2, jobs_pb2_grpc

# ruff: noqa: N802, ARG002 - gRPC names the methods and what they are given

LISTED, LISTED_MAX = 100, 100_000
_TURN = 500
"""Jobs turned into messages before other calls have their turn."""


class Jobs(jobs_pb2_grpc.JobsServicer):
    """See `proto/tenure/v1/jobs.proto`."""

    def __init__(self, gateway: Gateway, history: History, output: Output, forecasts: Forecasts) -> None:
        self._gateway, self._history, self._output, self._forecasts = gateway, history, output, forecasts
        self._intake = Intake(gateway)

    @answering
    async def Submit(self, request: jobs_pb2.SubmitRequest, context: Context) -> jobs_pb2.SubmitResponse:
        """One job; durable when this returns."""
        with answering_call("tenure.v1.Jobs/Submit", context.invocation_metadata()):
            (job,) = await self._intake.submit([to_spec(request.job)], key=request.idempotency_key)
        return jobs_pb2.SubmitResponse(job_id=job)

    @answering
    async def SubmitBatch(self, request: jobs_pb2.SubmitBatchRequest, context: Context) -> jobs_pb2.SubmitBatchResponse:
        """Many jobs, all or none."""
        specs: list[JobSpec] = []
        previous: jobs_pb2.JobSpec | None = None
        for number, job in enumerate(request.jobs):
            same = job == previous  # an array of equal jobs is read once
            specs.append(specs[-1] if same else to_spec(job, field=f"jobs[{number}]."))
            previous = job
            if number % _TURN == _TURN - 1:
                await asyncio.sleep(0)
        check_batch(specs)
        with answering_call("tenure.v1.Jobs/SubmitBatch", context.invocation_metadata()):
            ids = await self._intake.submit(specs, key=request.idempotency_key)
        return jobs_pb2.SubmitBatchResponse(job_ids=ids)

    @answering
    async def Get(self, request: jobs_pb2.GetJobRequest, context: Context) -> jobs_pb2.GetJobResponse:
        """The job as it is now."""
        told = await self._forecasts.latest() if request.forecast else None
        state = await self._gateway.read()
        entry = await self._find(state, request.job_id)
        return jobs_pb2.GetJobResponse(job=_shown(entry, state, now=self._gateway.now(), told=told))

    @answering
    async def List(self, request: jobs_pb2.ListJobsRequest, context: Context) -> jobs_pb2.ListJobsResponse:
        """Jobs in order, how many there are, and the cluster."""
        states, limit = to_job_states(request.states), request.limit or LISTED
        if not 1 <= limit <= LISTED_MAX:
            raise Refusal(field="limit", problem=f"{limit} is out of range", fix=f"use 1 to {LISTED_MAX}")
        told = await self._forecasts.latest() if request.forecast else None
        state, now = await self._gateway.read(), self._gateway.now()
        _check_budget(state, request.budget)
        answer = jobs_pb2.ListJobsResponse(
            counts={
                phase.value: number
                for phase, number in count_jobs(state, budget=request.budget, user=request.user).items()
            },
            cluster=from_cluster(cluster_total(state), now=now),
            forecast=None if told is None else from_told(told),
        )
        entries = list_jobs(state, states=states, budget=request.budget, user=request.user, limit=limit)
        for begin in range(0, len(entries), _TURN):
            answer.jobs.extend(_shown(entry, state, now=now, told=told) for entry in entries[begin : begin + _TURN])
            await asyncio.sleep(0)
        return answer

    @streaming
    async def Watch(self, request: jobs_pb2.WatchJobRequest, context: Context) -> Stream[jobs_pb2.WatchJobResponse]:
        """The job now, and at each change; changes that come together are shown as one."""
        gateway = self._gateway
        state = await gateway.read()
        entry = await self._find(state, request.job_id)
        with gateway.progress.watching(entry.job) as changed:
            while not gateway.progress.stopping:
                changed.clear()
                over = entry.state.final
                yield jobs_pb2.WatchJobResponse(job=_shown(entry, state, now=gateway.now()))
                if over:
                    return
                await changed.wait()
        raise Away("the gateway is stopping; watch again in a moment")

    @answering
    async def Cancel(self, request: jobs_pb2.CancelJobRequest, context: Context) -> jobs_pb2.CancelJobResponse:
        """Ask for the job's end."""
        gateway = self._gateway
        state = await gateway.read()
        entry = await self._find(state, request.job_id)
        require(Right.CANCEL, tree=state.tree, budget=entry.spec.budget, owner=entry.spec.user)
        fact = cancel(entry, gateway.order(user=request.user, fact_id=f"cancel-{entry.job}"))
        if fact is not None:
            await gateway.folded((await gateway.append([fact])).last)
        return jobs_pb2.CancelJobResponse(job=_shown(entry, state, now=gateway.now()))

    @answering
    async def Explain(self, request: jobs_pb2.ExplainJobRequest, context: Context) -> jobs_pb2.ExplainJobResponse:
        """The job's facts from the database, each as a sentence, with its reason and as it was written."""
        state = await self._gateway.read()
        known = await self._gateway.job(JobId(request.job_id))
        if known is None and not state.forgotten:
            raise no_such_job(request.job_id)
        last = state.position if known is None else known.position
        position = await visible_from(self._history, last)
        facts = await self._history.story(JobId(request.job_id))
        if known is None and not facts:
            raise no_such_job(request.job_id)
        is_over = known is None or known.state.final
        told = with_policy_changes(facts, state.policy_facts, is_over=is_over)
        entry, now = known or job_from_story(facts, JobId(request.job_id)), self._gateway.now()
        unit = unit_of(None if entry is None else entry.spec)
        explaining = Explaining(state, now=now, policy=self._gateway.policy)
        answer = jobs_pb2.ExplainJobResponse(
            steps=[
                explaining.step(each, to=JobId(request.job_id), unit=unit, sees_inside=_may_see(state, each.fact))
                for each in told
            ],
            position=position,
            last_position=last,
            job=None if known is None else _shown(known, state, now=now),
        )
        if entry is not None:
            explaining.fill(answer, entry, facts)
        if request.forecast and known is not None and known.state is JobState.QUEUED:
            await self._forecasts.fill(answer, known.job)
        return answer

    @streaming
    async def Logs(self, request: jobs_pb2.JobLogsRequest, context: Context) -> Stream[jobs_pb2.JobLogsResponse]:
        """What a replica wrote."""
        state = await self._gateway.read()
        entry = await self._find(state, request.job_id)
        require(Right.READ_OUTPUT, tree=state.tree, budget=entry.spec.budget, owner=entry.spec.user)
        async with aclosing(self._output.read(entry, request)) as pieces:
            async for piece in pieces:
                yield jobs_pb2.JobLogsResponse(data=piece.data, offset=piece.offset)

    async def _find(self, state: State, job_id: str) -> JobEntry:
        """The job, from the read model or, when it was over long ago, from its story. Raises `NotFound` or `Away`."""
        entry = await self._gateway.job(JobId(job_id))
        if entry is None and state.forgotten and job_id:
            await visible_from(self._history, state.position)
            entry = job_from_story(await self._history.story(JobId(job_id)), JobId(job_id))
            if entry is not None and not entry.state.final:  # only jobs that are over are no longer kept
                raise Away("the database lags behind the log; try again in a moment")
        if entry is None:
            raise no_such_job(job_id)
        return entry


def _shown(entry: JobEntry, state: State, *, now: Millis, told: Told | None = None) -> jobs_pb2.Job:
    """The job as the caller may see it."""
    job, spec = add_forecast(from_job(entry, state, now=now), told, now=now), entry.spec
    if spec.launch.environment and not _sees_inside(state, spec.budget, spec.user):
        job.spec.environment.update(dict.fromkeys(spec.launch.environment, HIDDEN))
    return job


def _sees_inside(state: State, budget: BudgetPath, owner: UserName) -> bool:
    """Whether the caller may see what only those see who may read the job's output."""
    return allowed(Right.READ_OUTPUT, tree=state.tree, budget=budget, owner=owner)


def _may_see(state: State, fact: Fact) -> bool:
    """Whether the caller may see the values of a fact."""
    inside = whose(fact)
    return inside is None or _sees_inside(state, *inside)


def _check_budget(state: State, path: str) -> None:
    """A filter by a budget that never was is a typing error, not an empty list."""
    if not path or path in state.tree.by_path or any(budget == path for budget, _ in state.counts):
        return
    near = did_you_mean(path, state.tree.by_path)
    raise NotFound(field="budget", problem=f"there is no budget {shown(path)}", fix=f"{near}see `tenure budget show`")
