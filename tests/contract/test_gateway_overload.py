"""A client with more calls than it may have under way at a time waits itself; others are answered meanwhile."""

import asyncio

import grpc
import pytest

from services.gateway.server import CALLS_MAX
from tenure.log.memory import MemoryLog
from tenure.sdk.client import Client
from tenure.sdk.errors import ServerUnreachable
from tenure.v1 import jobs_pb2, jobs_pb2_grpc
from tests.contract.gateway_rig import Rig, a_cluster, running

SOON_S = 20.0


def test_a_connection_has_so_many_calls_under_way_and_another_one_is_answered() -> None:
    async def scenario(rig: Rig) -> None:
        job = await rig.submit()
        request = jobs_pb2.WatchJobRequest(job_id=job)
        watching = [rig.jobs.Watch(request) for _ in range(CALLS_MAX)]
        for call in watching:
            await asyncio.wait_for(call.read(), SOON_S)  # type: ignore[attr-defined]
        one_more = asyncio.ensure_future(rig.jobs.Get(jobs_pb2.GetJobRequest(job_id=job)))  # type: ignore[arg-type]
        async with grpc.aio.insecure_channel(rig.address) as other:
            stub: jobs_pb2_grpc.JobsAsyncStub = jobs_pb2_grpc.JobsStub(other)  # type: ignore[assignment]
            answer = await asyncio.wait_for(stub.Get(jobs_pb2.GetJobRequest(job_id=job)), SOON_S)
            assert answer.job.job_id == job and not one_more.done()
        watching[0].cancel()  # type: ignore[attr-defined]
        assert (await asyncio.wait_for(one_more, SOON_S)).job.job_id == job
        for call in watching[1:]:
            call.cancel()  # type: ignore[attr-defined]

    async def run() -> None:
        async with running(MemoryLog()) as rig:
            await rig.write(*a_cluster(4))
            await scenario(rig)

    asyncio.run(run())


class Late(jobs_pb2_grpc.JobsServicer):
    """A gateway that notices first that time is up."""

    async def Get(self, request, context):  # type: ignore[no-untyped-def]  # noqa: N802
        await context.abort(grpc.StatusCode.CANCELLED, "CANCELLED")


def test_time_is_up_whoever_says_so() -> None:
    async def run() -> None:
        server = grpc.aio.server()
        jobs_pb2_grpc.add_JobsServicer_to_server(Late(), server)  # type: ignore[abstract]
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            said = "did not answer within 5 s; see whether it is overloaded"
            with Client(f"127.0.0.1:{port}", deadline_s=5) as client, pytest.raises(ServerUnreachable, match=said):
                await asyncio.to_thread(client.job, "j")
        finally:
            await server.stop(0)

    asyncio.run(run())
