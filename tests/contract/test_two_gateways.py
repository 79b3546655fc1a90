"""Two gateways on one log: what was said to one holds at the other, at once, and never twice."""

import asyncio
from collections.abc import Awaitable, Callable

import grpc

from tenure.events.budgets import BudgetTreeChanged
from tenure.events.intake import JobCancelRequested, JobSubmitted
from tenure.log.port import Log
from tenure.v1 import budgets_pb2, jobs_pb2
from tests.contract.conftest import LogUnderTest
from tests.contract.gateway_rig import Rig, a_cluster, good_job, refused, running


def play(log_under_test: LogUnderTest, scenario: Callable[[Rig, Rig], Awaitable[None]]) -> None:
    async def on(log: Log) -> None:
        other = await log_under_test.connect()
        async with running(log) as one, running(other) as two:
            position = await one.write(*a_cluster())
            await two.gateway.folded(position)
            await scenario(one, two)

    log_under_test.run(on)


def submit(rig: Rig, *, key: str = "", **fields: object) -> "asyncio.Future[jobs_pb2.SubmitResponse]":
    request = jobs_pb2.SubmitRequest(job=good_job(**fields), idempotency_key=key)
    return asyncio.ensure_future(rig.jobs.Submit(request))


async def count(rig: Rig, kind: type) -> int:
    return sum(isinstance(recorded.fact, kind) for recorded in await rig.recorded())


def test_a_job_of_one_gateway_is_found_and_cancelled_at_the_other(log_under_test: LogUnderTest) -> None:
    async def scenario(one: Rig, two: Rig) -> None:
        for _ in range(20):
            job = (await submit(one)).job_id
            with two.loop.held():  # it reads nothing new by itself, as if it were slow
                asking = asyncio.ensure_future(two.jobs.Get(jobs_pb2.GetJobRequest(job_id=job)))
                await asyncio.wait({asking}, timeout=0.02)
            assert (await asking).job.job_id == job
        answer = await two.jobs.Cancel(jobs_pb2.CancelJobRequest(job_id=(await submit(one)).job_id, user="ana"))
        again = await one.jobs.Cancel(jobs_pb2.CancelJobRequest(job_id=answer.job.job_id, user="ana"))
        assert again.job.job_id == answer.job.job_id
        assert await count(one, JobCancelRequested) == 1
        await refused(two.jobs.Get(jobs_pb2.GetJobRequest(job_id="j0000000000aaaa")), "NOT_FOUND", "there is no job")

    play(log_under_test, scenario)


def test_one_idempotency_key_at_both_is_one_job(log_under_test: LogUnderTest) -> None:
    async def scenario(one: Rig, two: Rig) -> None:
        for number in range(10):
            asked = [submit(rig, key=f"key{number}") for rig in (one, two, one, two)]
            answers = await asyncio.gather(*asked)
            assert len({answer.job_id for answer in answers}) == 1
        assert await count(one, JobSubmitted) == 10

    play(log_under_test, scenario)


def test_edits_of_the_tree_through_both_lose_none(log_under_test: LogUnderTest) -> None:
    async def scenario(one: Rig, two: Rig) -> None:
        def add(rig: Rig, path: str) -> "asyncio.Future[budgets_pb2.SetSharesResponse]":
            budget = budgets_pb2.Budget(path=path, share_percent=1)
            request = budgets_pb2.SetSharesRequest(budgets=[budget], user="mia", merge=True)
            return asyncio.ensure_future(rig.budgets.SetShares(request))

        paths = [f"robotics/r{number}" for number in range(6)]
        await asyncio.gather(*(add((one, two)[number % 2], path) for number, path in enumerate(paths)))
        for rig in (one, two):
            await rig.gateway.catch_up()
            tree = await rig.budgets.GetTree(budgets_pb2.GetTreeRequest())
            assert set(paths) <= {budget.path for budget in tree.budgets}
        assert await count(one, BudgetTreeChanged) == 1 + len(paths)
        stale = budgets_pb2.SetSharesRequest(
            budgets=[budgets_pb2.Budget(path="robotics/late", share_percent=1)],
            merge=True,
            user="mia",
            expected_position=1,
        )
        error = await refused(two.budgets.SetShares(stale), "ABORTED", "read the tree again")
        assert error.code() is grpc.StatusCode.ABORTED

    play(log_under_test, scenario)
