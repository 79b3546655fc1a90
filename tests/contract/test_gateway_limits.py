"""Too much at once: refused politely, with the time to come again; what was accepted stays, others are not held up."""

import asyncio
import re
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from services.gateway import limits
from services.gateway.identity import guard
from services.gateway.limits import Limits
from services.gateway.refusals import Limited
from services.gateway.state import State
from tenure.domain.ids import UserName
from tenure.domain.policy import Policy
from tenure.log.memory import MemoryLog
from tenure.sdk.client import Client
from tenure.sdk.errors import ServerRefused
from tenure.v1 import jobs_pb2, jobs_pb2_grpc
from tests.contract.gateway_rig import Rig, a_cluster, good_job, running
from tests.contract.test_gateway_identity import NO_OS_USERS, People

ANA, BEN = UserName("ana"), UserName("ben")
TIGHT = Policy(submissions_per_user=3, queued_per_user=20, submissions_at_once=50)


def play(scenario, policy: Policy = TIGHT) -> None:  # type: ignore[no-untyped-def]
    async def run() -> None:
        async with running(MemoryLog(), policy=policy) as rig:
            await rig.write(*a_cluster(4))
            await scenario(rig)

    asyncio.run(run())


async def refusal(rig: Rig, request: jobs_pb2.SubmitRequest | jobs_pb2.SubmitBatchRequest) -> grpc.aio.AioRpcError:
    call = rig.jobs.SubmitBatch if isinstance(request, jobs_pb2.SubmitBatchRequest) else rig.jobs.Submit
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call(request)  # type: ignore[operator]
    return error.value


def test_a_refusal_says_when_to_come_again_in_both_standard_places() -> None:
    async def scenario(rig: Rig) -> None:
        for _ in range(3):
            await rig.submit()
        error = await refusal(rig, jobs_pb2.SubmitRequest(job=good_job()))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "more than 3 submissions of ana in 10 s" in (error.details() or "")
        trailing = dict(error.trailing_metadata() or ())
        assert 1 <= int(trailing["retry-after"]) <= limits.WINDOW_S
        status, retry = status_pb2.Status.FromString(trailing["grpc-status-details-bin"]), error_details_pb2.RetryInfo()
        assert any(detail.Unpack(retry) for detail in status.details)
        assert 0 < retry.retry_delay.ToMilliseconds() <= limits.WINDOW_S * 1000

    play(scenario)


def test_others_and_repeated_keys_are_not_held_up() -> None:
    async def scenario(rig: Rig) -> None:
        request = jobs_pb2.SubmitRequest(job=good_job(), idempotency_key="k")
        first = await rig.jobs.Submit(request)
        for _ in range(2):
            await rig.submit()
        await rig.gateway.read()
        assert (await rig.jobs.Submit(request)).job_id == first.job_id
        assert (await refusal(rig, jobs_pb2.SubmitRequest(job=good_job()))).code().name == "RESOURCE_EXHAUSTED"
        await rig.submit(user="ben")

    play(scenario)


def test_a_user_s_queue_is_bounded_also_for_batches_that_come_together() -> None:
    async def scenario(rig: Rig) -> None:
        batch = jobs_pb2.SubmitBatchRequest(jobs=[good_job()] * 12)
        answers = await asyncio.gather(*(rig.jobs.SubmitBatch(batch) for _ in range(2)), return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, grpc.aio.AioRpcError)]
        assert len(refused) == 1
        said = refused[0].details() or ""  # the first job of the other batch may be folded before its rest is written
        assert re.search("(12|13) jobs of ana wait already, 20 may; submit at most (8|7) more", said), said
        await rig.gateway.read()
        await rig.jobs.SubmitBatch(jobs_pb2.SubmitBatchRequest(jobs=[good_job()] * 8))
        assert (await rig.gateway.read()).waiting[ANA] == 20
        assert (await refusal(rig, jobs_pb2.SubmitRequest(job=good_job()))).code().name == "RESOURCE_EXHAUSTED"

    play(scenario, Policy(queued_per_user=20))


def test_a_batch_of_ten_thousand_and_bursts_pass_the_defaults() -> None:
    async def scenario() -> None:
        counted = Limits(Policy)
        with counted.writing(State(), ANA, 10_000):
            pass
        for _ in range(2_000):  # ten seconds of 200 a second
            await counted.count(ANA)

    asyncio.run(scenario())


def test_so_many_submissions_are_under_way_at_most() -> None:
    counted, state = Limits(lambda: Policy(submissions_at_once=2)), State()
    with ExitStack() as under_way:
        for user in (ANA, BEN):
            under_way.enter_context(counted.writing(state, user, 1))
        with pytest.raises(Limited, match="in a moment"), counted.writing(state, ANA, 1):
            pass
    with counted.writing(state, ANA, 1):
        pass


def test_no_limit_is_zero() -> None:
    async def scenario() -> None:
        counted = Limits(lambda: Policy(submissions_per_user=0, queued_per_user=0, submissions_at_once=0))
        for _ in range(50):
            await counted.count(ANA)
            with counted.writing(State(), ANA, 10**6):
                pass

    asyncio.run(scenario())


def test_the_client_comes_again_when_it_is_told_and_gives_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WINDOW_S", 2)

    async def scenario(rig: Rig) -> None:
        def submit(deadline_s: float) -> str:
            with Client(rig.address, deadline_s=deadline_s) as client:
                return client.submit(good_job())

        for _ in range(3):
            await asyncio.to_thread(submit, 10)
        with pytest.raises(ServerRefused, match="submissions of ana") as refused:
            await asyncio.to_thread(submit, 0.5)
        assert refused.value.code == "RESOURCE_EXHAUSTED"
        assert await asyncio.to_thread(submit, 30)

    play(scenario)


def test_orders_are_bounded_by_user_also_those_without_the_right(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(guard, "ORDERS_MAX", 3)
    people = People(tmp_path)

    async def run() -> None:
        async with running(MemoryLog(), identity=NO_OS_USERS, local_key=people.key) as rig:
            await rig.write(*a_cluster(4))
            ana, ben = people.called("ana"), people.called("ben")
            job = (await rig.jobs.Submit(jobs_pb2.SubmitRequest(job=good_job(user="")), **ana)).job_id
            cancel = jobs_pb2.CancelJobRequest(job_id=job)

            async def code(caller: Any) -> str:
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await rig.jobs.Cancel(cancel, **caller)
                return str(refused.value.code().name)

            assert [await code(ben) for _ in range(4)] == ["PERMISSION_DENIED"] * 3 + ["RESOURCE_EXHAUSTED"]
            for _ in range(3):
                await rig.jobs.Cancel(cancel, **ana)
            assert await code(ana) == "RESOURCE_EXHAUSTED"
            await rig.jobs.Get(jobs_pb2.GetJobRequest(job_id=job), **ana)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_one_user_s_streams_are_bounded_over_all_connections(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(limits, "STREAMS_MAX", 3)
    people = People(tmp_path)

    async def run() -> None:
        async with running(MemoryLog(), identity=NO_OS_USERS, local_key=people.key) as rig:
            await rig.write(*a_cluster(4))
            ana, ben = people.called("ana"), people.called("ben")
            job = (await rig.jobs.Submit(jobs_pb2.SubmitRequest(job=good_job(user="")), **ana)).job_id
            request = jobs_pb2.WatchJobRequest(job_id=job)
            watching: list[Any] = [rig.jobs.Watch(request, **ana) for _ in range(3)]
            for call in watching:
                await call.read()
            async with grpc.aio.insecure_channel(rig.address) as other:
                stub: Any = jobs_pb2_grpc.JobsStub(other)
                with pytest.raises(grpc.aio.AioRpcError, match="3 streams of ana") as refused:
                    await stub.Watch(request, **ana).read()
                assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                assert int(dict(refused.value.trailing_metadata() or ())["retry-after"]) == limits.LATER_S
                assert (await stub.Watch(request, **ben).read()).job.job_id == job
                await stub.Get(jobs_pb2.GetJobRequest(job_id=job), **ana)
                watching.pop().cancel()
                while len(watching) < 3:  # the gateway hears of it in a moment
                    call = stub.Watch(request, **ana)
                    with suppress(grpc.aio.AioRpcError):
                        await call.read()
                        watching.append(call)
                for call in watching:
                    call.cancel()

    asyncio.run(asyncio.wait_for(run(), 60))
