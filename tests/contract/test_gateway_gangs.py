"""What the gateway shows of gangs that wait: their reservations, how large a gang could be placed, and the metrics."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc

from services.gateway.metrics import Measuring
from tenure.domain.ids import JobId, RunId
from tenure.domain.reasons import EndCause, Reason, Why
from tenure.events.budgets import JobAdmitted
from tenure.events.placing import ReservationDropped, ReservationMade, RunEnded, RunStarted
from tenure.runtime import telemetry
from tenure.v1 import hosts_pb2, jobs_pb2
from tests.contract.conftest import LogUnderTest, MemoryUnderTest
from tests.contract.gateway_rig import NOW, WHY, LogHistory, NoHistory, Rig, assigned, place, play

HOUR = 3_600_000


async def admitted(rig: Rig, **fields: object) -> str:
    job = await rig.submit(**fields)
    spec = rig.loop.state.jobs[JobId(job)].spec
    await rig.write(JobAdmitted(at=NOW, job=JobId(job), spec=spec, submitted_at=NOW))
    return job


async def running(rig: Rig, *hosts: str, protected_until: int = 0, budget: str = "science/bio", gpus: int = 8) -> str:
    """The id of a job with a run on these hosts; unallocated without a protection."""
    runtime = 900_000 if protected_until else 0
    fields = {"budget": budget, "replicas": len(hosts), "gpus_per_replica": gpus, "min_runtime_ms": runtime}
    job = await admitted(rig, **fields)
    fact = assigned(rig.loop.state, job, place(*hosts, gpus=gpus))
    until, charged = protected_until or NOW, bool(protected_until)
    start = RunStarted(at=NOW, run=fact.run, job=fact.job, protected_until=until, charged=charged, hosts={})
    await rig.write(fact, start)
    return job


def reserved(job: str, latest_start: int, *hosts: str, waits_for: tuple[str, ...] = ()) -> ReservationMade:
    return ReservationMade(
        at=NOW,
        job=JobId(job),
        placement=place(*hosts),
        latest_start=latest_start,
        waits_for=tuple(RunId(f"{one}.1") for one in waits_for),
        why=Why(rule="P8", reason=Reason.RESERVE_EARLIEST),
    )


async def get(rig: Rig, job: str) -> jobs_pb2.Job:
    return (await rig.jobs.Get(jobs_pb2.GetJobRequest(job_id=job))).job


def test_a_blocked_gang_is_shown_with_its_hosts_and_the_runs_in_its_way(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        now = rig.gateway.now()
        first = await running(rig, "h000", protected_until=now + HOUR)
        second = await running(rig, "h001", "h002", protected_until=now + 2 * HOUR, budget="robotics")
        gang = await admitted(rig, replicas=2)
        await rig.write(reserved(gang, now + 3 * HOUR, "h000", "h003", waits_for=(first,)))
        await rig.write(reserved(gang, now + 2 * HOUR, "h000", "h001", waits_for=(first, second)))
        shown = await get(rig, gang)
        assert shown.latest_start_ms == now + 2 * HOUR
        assert [(host.host, len(host.gpus)) for host in shown.reservation.hosts] == [("h000", 8), ("h001", 8)]
        assert [(run.run_id, run.budget, run.gpus, run.state) for run in shown.reservation.waits_for] == [
            (f"{first}.1", "science/bio", 8, "running"),
            (f"{second}.1", "robotics", 16, "running"),
        ]
        assert [run.protected_until_ms for run in shown.reservation.waits_for] == [now + HOUR, now + 2 * HOUR]
        (listed,) = (await rig.jobs.List(jobs_pb2.ListJobsRequest(states=["queued"]))).jobs
        assert listed == shown
        told = await rig.jobs.Explain(jobs_pb2.ExplainJobRequest(job_id=gang))
        assert told.job == shown
        assert f"when what is in its way will have ended: {first}.1, {second}.1" in told.steps[-1].text
        end = RunEnded(at=now, run=f"{first}.1", job=JobId(first), cause_of_end=EndCause.COMPLETED, why=WHY)
        await rig.write(end)
        assert [run.job_id for run in (await get(rig, gang)).reservation.waits_for] == [second]
        gone = Why(rule="P8", reason=Reason.RESERVE_HOST_GONE, numbers={"host": "h001"})
        await rig.write(ReservationDropped(at=NOW, job=JobId(gang), why=gone))
        shown = await get(rig, gang)
        assert (shown.latest_start_ms, shown.HasField("reservation")) == (0, False)
        assert shown.why.reason == "reserve_host_gone"

    play(log_under_test, scenario, history_of=LogHistory)


def test_how_large_a_gang_could_be_placed_now_and_at_each_expiry(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        now = rig.gateway.now()
        await running(rig, "h000", gpus=6, protected_until=now + HOUR)
        await running(rig, "h001")
        await running(rig, "h002", protected_until=now - HOUR)
        answer = await rig.hosts.Fragmentation(hosts_pb2.FragmentationRequest())
        (pool,) = answer.pools
        assert now <= answer.now_ms < now + HOUR
        assert (pool.cluster, pool.gpu_type, pool.hosts, pool.gpus) == ("test", "H100", 4, 32)
        assert (pool.gpus_free, pool.hosts_with_gpus_free, pool.largest_hole, pool.hosts_wholly_free) == (10, 2, 8, 1)
        assert (pool.gpus_giving_way, pool.gpus_past_protection) == (8, 8)
        first, second = pool.prospects
        assert (first.at_ms, second.at_ms) == (answer.now_ms, now + HOUR)
        assert (first.placeable.gpus, first.placeable.whole_hosts, first.if_p5_gives.whole_hosts) == (18, 2, 3)
        assert (second.placeable.gpus, second.placeable.whole_hosts, second.if_p5_gives.whole_hosts) == (24, 3, 4)
        largest = {gang.gpus_per_replica: gang.replicas for gang in first.placeable.largest}
        assert largest == {1: 18, 2: 9, 4: 4, 8: 2}

    play(log_under_test, scenario)


@dataclass
class Collector(metrics_service_pb2_grpc.MetricsServiceServicer):
    """An OpenTelemetry endpoint that keeps the values of gauges by name."""

    values: dict[str, list[int]] = field(default_factory=dict)

    def Export(  # noqa: N802
        self, request: metrics_service_pb2.ExportMetricsServiceRequest, context: grpc.ServicerContext
    ) -> metrics_service_pb2.ExportMetricsServiceResponse:
        for of_resource in request.resource_metrics:
            for of_scope in of_resource.scope_metrics:
                for metric in of_scope.metrics:
                    self.values[metric.name] = [point.as_int for point in metric.gauge.data_points]
        return metrics_service_pb2.ExportMetricsServiceResponse()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    endpoint, server = Collector(), grpc.server(ThreadPoolExecutor(max_workers=2))
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(endpoint, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    monkeypatch.setenv(telemetry.ENDPOINT, f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    telemetry.provider.cache_clear()
    yield endpoint
    provider = telemetry.provider()
    assert provider is not None
    provider.shutdown()
    telemetry.provider.cache_clear()
    server.stop(None).wait()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(15):
        while not holds():
            await asyncio.sleep(0.02)


def test_the_figures_are_metrics_of_the_gateway(collector: Collector) -> None:
    async def scenario(rig: Rig) -> None:
        measuring = asyncio.create_task(Measuring(rig.gateway, NoHistory(rig.log), None).run(every_s=0.05))
        try:
            await until(lambda: collector.values.get("tenure.gpus.free") == [32])
            await running(rig, "h000", gpus=6, protected_until=rig.gateway.now() + HOUR)
            await until(lambda: collector.values["tenure.gpus.free"] == [26])
            await until(lambda: collector.values["tenure.hosts.wholly_free"] == [3])
            assert collector.values["tenure.placeable.whole_hosts"][:2] == [3, 3]
        finally:
            measuring.cancel()

    play(MemoryUnderTest(), scenario)


def test_nothing_is_measured_where_nobody_is_told() -> None:
    async def scenario(rig: Rig) -> None:
        await asyncio.wait_for(Measuring(rig.gateway, NoHistory(rig.log), None).run(), 5)

    play(MemoryUnderTest(), scenario)
