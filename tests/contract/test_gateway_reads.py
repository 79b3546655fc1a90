"""What people look at through the gateway: jobs, lists, watches, stories, output, budgets, hosts, health."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import msgspec
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tenure.domain.host import HostState
from tenure.domain.ids import FactId, HostId, JobId, Position
from tenure.domain.reasons import EndCause, JobState, Reason, Why
from tenure.domain.severity import Severity
from tenure.events.budgets import JobAdmitted, RunCharged
from tenure.events.fact import Fact
from tenure.events.hosts import HostStateChanged
from tenure.events.placing import (
    JobFinished,
    PlacementDeferred,
    ReservationMade,
    RunEnded,
    RunPreemptionRequested,
    RunStarted,
)
from tenure.events.ranking import RankingPublished, Standing
from tenure.events.reports import HealthSignal, Heartbeat, HostBeat, HostSignal
from tenure.runtime.log_stream import LogPiece, decode_request, encode_piece, encode_trouble
from tenure.runtime.nats_server import NatsServer
from tenure.v1 import budgets_pb2, hosts_pb2, jobs_pb2
from tests.contract.conftest import JetStreamUnderTest, LogUnderTest, MemoryUnderTest
from tests.contract.gateway_rig import NOW, WHY, LogHistory, Rig, assigned, good_job, place, play, refused

FULL = Why(rule="P6", reason=Reason.DEFER_NO_ROOM, numbers={"gpus_asked": 8, "gpus_free": 0})


async def admit(rig: Rig, *jobs: str) -> None:
    state = rig.loop.state
    await rig.write(
        *(JobAdmitted(at=NOW, job=JobId(job), spec=state.jobs[JobId(job)].spec, submitted_at=NOW) for job in jobs)
    )


async def start(rig: Rig, job: str, host: str = "h000", *, at: int = NOW) -> None:
    await rig.write(assigned(rig.loop.state, job, place(host), at=at), started(job, at=at))


def started(job: str, *, at: int = NOW) -> RunStarted:
    return RunStarted(at=at, run=f"{job}.1", job=JobId(job), protected_until=at + 900_000, charged=True, hosts={})


def ending(job: str, *, at: int = NOW) -> list[Fact]:
    run = f"{job}.1"
    done = Why(rule="P10", reason=Reason.END_COMPLETED, numbers={"exit_code": 0})
    return [
        RunEnded(at=at, run=run, job=JobId(job), cause_of_end=EndCause.COMPLETED, exit_code=0, why=done),
        JobFinished(at=at, job=JobId(job), state=JobState.COMPLETED, exit_code=0, why=done),
    ]


async def get(rig: Rig, job: str) -> jobs_pb2.Job:
    return (await rig.jobs.Get(jobs_pb2.GetJobRequest(job_id=job))).job


async def listed(rig: Rig, **fields: object) -> list[str]:
    return [job.job_id for job in (await rig.jobs.List(jobs_pb2.ListJobsRequest(**fields))).jobs]


# --- jobs ----------------------------------------------------------------------------------------------------------


def test_a_job_is_shown_with_its_runs_reason_rank_and_charge(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        job, now = await rig.submit(environment={"A": "1"}), rig.gateway.now()
        await admit(rig, job)
        await rig.write(
            RankingPublished(at=NOW, order=(JobId("j0"), JobId(job)), standings=(), basis=Position(1)),
            PlacementDeferred(at=NOW, job=JobId(job), why=FULL),
            ReservationMade(
                at=NOW, job=JobId(job), placement=place("h000"), latest_start=NOW + 9, waits_for=(), why=FULL
            ),
        )
        shown = await get(rig, job)
        assert (shown.state, shown.rank, shown.latest_start_ms) == ("queued", 2, NOW + 9)
        assert (shown.why.rule, shown.why.reason, shown.why.numbers["gpus_free"]) == ("P6", "defer_no_room", "0")
        assert shown.spec == good_job(environment={"A": "1"}, grace_ms=30_000, topology="any")
        await start(rig, job, at=now - 10_000)
        shown = await get(rig, job)
        (run,) = shown.runs
        assert (shown.state, run.state, run.run_id, run.number) == ("running", "running", f"{job}.1", 1)
        assert [(host.host, list(host.gpus)) for host in run.hosts] == [("h000", list(range(8)))]
        assert 8 * 10_000 <= shown.charged_gpu_ms < 8 * 60_000
        charged = RunCharged(
            at=now, run=run.run_id, job=JobId(job), budget="science/chem", user="ana", charged_gpu_ms=77, why=WHY
        )
        await rig.write(*ending(job, at=now), charged)
        shown = await get(rig, job)
        assert (shown.state, shown.charged_gpu_ms, shown.runs[0].exit_code) == ("completed", 77, 0)

    play(log_under_test, scenario)


def test_an_unknown_job_is_not_found() -> None:
    async def scenario(rig: Rig) -> None:
        await refused(rig.jobs.Get(jobs_pb2.GetJobRequest(job_id="j1\n2")), "NOT_FOUND", "job_id")
        await refused(rig.jobs.Get(jobs_pb2.GetJobRequest()), "NOT_FOUND", "job_id")

    play(MemoryUnderTest(), scenario)


def test_a_list_is_running_then_the_queue_by_rank_then_over_newest_first(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        jobs = [await rig.submit(user="ana" if n % 2 else "ben") for n in range(6)]
        a, b, c, d, e, f = jobs
        await admit(rig, a, b, c, d, e)
        await rig.write(
            RankingPublished(at=NOW, order=(JobId(d), JobId(b)), standings=(), basis=Position(1)),
            *(JobFinished(at=NOW, job=JobId(job), state=JobState.CANCELLED, why=WHY) for job in (e, a)),
        )
        await start(rig, c)
        assert await listed(rig) == [c, d, b, f, a, e]
        assert await listed(rig, limit=2) == [c, d]
        assert await listed(rig, states=["queued", "cancelled"]) == [d, b, a, e]
        assert await listed(rig, user="ana") == [d, b, f]
        assert await listed(rig, user="ana", limit=1) == [d]
        assert await listed(rig, budget="science") == [c, d, b, f, a, e]
        assert await listed(rig, budget="science/bio") == []
        answer = await rig.jobs.List(jobs_pb2.ListJobsRequest(limit=1))
        assert dict(answer.counts) == {"submitted": 1, "queued": 2, "running": 1, "cancelled": 2}
        answer = await rig.jobs.List(jobs_pb2.ListJobsRequest(user="ana"))
        assert dict(answer.counts) == {"submitted": 1, "queued": 2}
        cluster = answer.cluster
        assert (cluster.gpus, cluster.gpus_available, cluster.gpus_allocated, cluster.gpus_free) == (32, 32, 8, 24)

    play(log_under_test, scenario)


def test_bad_filters_are_refused() -> None:
    async def scenario(rig: Rig) -> None:
        await refused(listed(rig, states=["runing"]), "INVALID_ARGUMENT", "states", "did you mean running")
        await refused(listed(rig, limit=-1), "INVALID_ARGUMENT", "limit", "out of range")
        await refused(listed(rig, limit=100_001), "INVALID_ARGUMENT", "limit", "out of range")
        await refused(listed(rig, budget="science/chm"), "NOT_FOUND", "budget", "did you mean science/chem")

    play(MemoryUnderTest(), scenario)


# --- watch ---------------------------------------------------------------------------------------------------------


async def next_state(stream: AsyncIterator[jobs_pb2.WatchJobResponse]) -> str:
    return (await asyncio.wait_for(anext(stream), 10)).job.state


def test_a_watch_shows_each_change_until_the_job_is_over(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        job = await rig.submit()
        stream = aiter(rig.jobs.Watch(jobs_pb2.WatchJobRequest(job_id=job)))
        assert await next_state(stream) == "submitted"
        await admit(rig, job)
        assert await next_state(stream) == "queued"
        await rig.write(assigned(rig.loop.state, job, place("h000")))
        assert await next_state(stream) == "starting"
        await rig.write(started(job))
        assert await next_state(stream) == "running"
        await rig.write(RunPreemptionRequested(at=NOW, run=f"{job}.1", job=JobId(job), by="j9", why=WHY))
        assert await next_state(stream) == "stopping"
        await rig.write(*ending(job))
        state = await next_state(stream)
        while state == "stopping":  # facts written together may be shown one by one
            state = await next_state(stream)
        assert state == "completed"
        assert [answer async for answer in stream] == []

    play(log_under_test, scenario)


def test_a_watch_of_a_job_that_is_over_shows_it_once_and_ends() -> None:
    async def scenario(rig: Rig) -> None:
        job = await rig.submit()
        await admit(rig, job)
        await rig.write(JobFinished(at=NOW, job=JobId(job), state=JobState.CANCELLED, why=WHY))
        states = [a.job.state async for a in rig.jobs.Watch(jobs_pb2.WatchJobRequest(job_id=job))]
        assert states == ["cancelled"]
        with_unknown = aiter(rig.jobs.Watch(jobs_pb2.WatchJobRequest(job_id="jx")))
        await refused(anext(with_unknown), "NOT_FOUND", "job_id")

    play(MemoryUnderTest(), scenario)


def test_a_hundred_watchers_hear_one_change() -> None:
    async def scenario(rig: Rig) -> None:
        job = await rig.submit()
        streams = [aiter(rig.jobs.Watch(jobs_pb2.WatchJobRequest(job_id=job))) for _ in range(100)]
        assert set(await asyncio.gather(*map(next_state, streams))) == {"submitted"}
        await admit(rig, job)
        assert set(await asyncio.gather(*map(next_state, streams))) == {"queued"}

    play(MemoryUnderTest(), scenario)


def test_a_watcher_that_goes_away_is_forgotten() -> None:
    async def scenario(rig: Rig) -> None:
        job = await rig.submit()
        call = rig.jobs.Watch(jobs_pb2.WatchJobRequest(job_id=job))
        assert await next_state(aiter(call)) == "submitted"
        assert rig.gateway.progress.watched == 1
        call.cancel()
        deadline = time.monotonic() + 10
        while rig.gateway.progress.watched:
            assert time.monotonic() < deadline, "it is still watched"
            await asyncio.sleep(0.01)

    play(MemoryUnderTest(), scenario)


# --- stories -------------------------------------------------------------------------------------------------------


def test_a_story_tells_each_fact_in_a_sentence_with_reason_and_numbers(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        job = await rig.submit(replicas=1, resumable=True)
        await admit(rig, job)
        await rig.write(PlacementDeferred(at=NOW, job=JobId(job), why=FULL))
        await start(rig, job)
        await rig.write(*ending(job))
        answer = await rig.jobs.Explain(jobs_pb2.ExplainJobRequest(job_id=job))
        assert [step.kind for step in answer.steps] == [
            "JobSubmitted",
            "JobAdmitted",
            "PlacementDeferred",
            "RunAssigned",
            "RunStarted",
            "RunEnded",
            "JobFinished",
        ]
        waits = answer.steps[2]
        assert waits.text == "It waits: it asks for 8 GPUs and 0 are free."
        assert (waits.why.reason, waits.why.numbers["gpus_free"]) == ("defer_no_room", "0")
        assert '"type":"PlacementDeferred"' in waits.fact_json
        assert answer.position >= answer.steps[-1].position
        await refused(rig.jobs.Explain(jobs_pb2.ExplainJobRequest(job_id="jx")), "NOT_FOUND", "job_id")

    play(log_under_test, scenario, history_of=LogHistory)


def test_without_the_database_a_story_is_unavailable() -> None:
    async def scenario(rig: Rig) -> None:
        job = await rig.submit()
        await refused(rig.jobs.Explain(jobs_pb2.ExplainJobRequest(job_id=job)), "UNAVAILABLE", "ClickHouse")
        await refused(rig.budgets.Report(budgets_pb2.BudgetReportRequest()), "UNAVAILABLE", "ClickHouse")

    play(MemoryUnderTest(), scenario)


# --- output --------------------------------------------------------------------------------------------------------


class Agent:
    """Stands for the agent at the other end: output that grows, in pieces of a few bytes."""

    def __init__(self) -> None:
        self.text, self.over, self.away, self.asked = b"", False, False, []  # type: ignore[var-annotated]

    async def request(self, subject: str, payload: bytes = b"", timeout: float = 1.0) -> "Agent.Reply":
        request = decode_request(payload)
        self.asked.append((subject, request))
        if self.away:
            return Agent.Reply(*encode_trouble("restarting"))
        offset = max(0, len(self.text) - request.tail_bytes) if request.tail_bytes else request.offset
        data = self.text[offset : offset + 4]
        end = offset + len(data)
        eof = self.over and end == len(self.text)
        return Agent.Reply(*encode_piece(LogPiece(data=data, offset=offset, next_offset=end, oldest_offset=0, eof=eof)))

    class Reply:
        def __init__(self, data: bytes, headers: dict[str, str]) -> None:
            self.data, self.headers = data, headers


def logs(rig: Rig, job: str, **fields: object) -> AsyncIterator[jobs_pb2.JobLogsResponse]:
    return aiter(rig.jobs.Logs(jobs_pb2.JobLogsRequest(job_id=job, **fields)))


def test_output_is_followed_through_an_agents_restart_until_all_is_sent() -> None:
    agent = Agent()

    async def scenario(rig: Rig) -> None:
        job = await rig.submit()
        stream = logs(rig, job, follow=True)
        first = asyncio.ensure_future(anext(stream))
        await admit(rig, job)
        await start(rig, job)
        agent.text = b"one "
        assert (await asyncio.wait_for(first, 10)).data == b"one "
        agent.away = True
        asked = len(agent.asked)
        second, written_at = asyncio.ensure_future(anext(stream)), 0.0
        while len(agent.asked) < asked + 2:
            await asyncio.sleep(0.01)
        agent.away, agent.text, written_at = False, b"one two!", time.monotonic()
        answer = await asyncio.wait_for(second, 10)
        assert (answer.data, answer.offset) == (b"two!", 4)
        assert time.monotonic() - written_at < 0.5
        agent.text, agent.over = b"one two!end", True
        await rig.write(*ending(job))
        assert [answer.data async for answer in stream] == [b"end"]
        assert agent.asked[0][0] == "tenure-data.test.logs.h000"

    play(MemoryUnderTest(), scenario, agents=agent)


def test_output_is_read_to_its_present_end_or_only_its_tail() -> None:
    agent = Agent()
    agent.text = b"abc"

    async def scenario(rig: Rig) -> None:
        job = await rig.submit()
        await refused(anext(logs(rig, job)), "FAILED_PRECONDITION", "has not run")
        await admit(rig, job)
        await start(rig, job)
        assert [answer.data async for answer in logs(rig, job)] == [b"abc"]
        assert [answer.data async for answer in logs(rig, job, tail_bytes=1)] == [b"c"]
        assert [answer.data async for answer in logs(rig, job, offset=1, stream="stderr")] == [b"bc"]
        await refused(anext(logs(rig, job, stream="log")), "INVALID_ARGUMENT", "stream", "stdout or stderr")
        await refused(anext(logs(rig, job, replica=1)), "INVALID_ARGUMENT", "replica", "use 0 to 0")
        await refused(anext(logs(rig, job, run=2)), "NOT_FOUND", "run", "has no run 2")
        await refused(anext(logs(rig, job, offset=-1)), "INVALID_ARGUMENT", "offset")
        agent.away = True
        await refused(anext(logs(rig, job)), "UNAVAILABLE", "restarting")

    play(MemoryUnderTest(), scenario, agents=agent)


# --- budgets and hosts ---------------------------------------------------------------------------------------------


def test_the_tree_shows_standings_jobs_and_gpus_with_all_below(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        running_job, queued_job = await rig.submit(), await rig.submit(budget="science/bio")
        await admit(rig, running_job, queued_job)
        await start(rig, running_job)
        standing = Standing(path="science", charged_gpu_ms=5, commitment_gpu_ms=6, entitlement_gpu_ms=7)
        await rig.write(RankingPublished(at=NOW, order=(), standings=(standing,), basis=Position(1)))
        answer = await rig.budgets.GetTree(budgets_pb2.GetTreeRequest())
        shown = {budget.path: budget for budget in answer.budgets}
        science, chem, robotics = shown["science"], shown["science/chem"], shown["robotics"]
        assert (science.leaf, science.jobs_running, science.jobs_queued, science.gpus_allocated) == (False, 1, 1, 8)
        assert (science.charged_gpu_ms, science.commitment_gpu_ms, science.entitlement_gpu_ms) == (5, 6, 7)
        assert (chem.leaf, chem.jobs_running, chem.jobs_queued, chem.share_percent) == (True, 1, 0, 50)
        assert abs(chem.fraction - 0.3) < 1e-9
        assert (robotics.jobs_running, robotics.gpus_allocated) == (0, 0)

    play(log_under_test, scenario)


def test_bad_questions_about_budgets_are_refused() -> None:
    async def scenario(rig: Rig) -> None:
        history = rig.budgets.History(budgets_pb2.BudgetHistoryRequest(path="scince"))
        await refused(history, "NOT_FOUND", "path", "did you mean science")
        report = rig.budgets.Report(budgets_pb2.BudgetReportRequest(since_ms=5, until_ms=5))
        await refused(report, "INVALID_ARGUMENT", "until_ms")
        report = rig.budgets.Report(budgets_pb2.BudgetReportRequest(since_ms=5, until_ms=2**62))
        await refused(report, "INVALID_ARGUMENT", "until_ms", "after the year 2100")

    play(MemoryUnderTest(), scenario)


def test_a_report_on_hosts_ends_when_it_is_told_to() -> None:
    async def scenario(rig: Rig) -> None:
        now = rig.gateway.now()
        asked = hosts_pb2.HostReportRequest(since_ms=now - 20_000, until_ms=now - 10_000)
        told = await rig.hosts.Report(asked)
        assert (told.since_ms, told.until_ms) == (asked.since_ms, asked.until_ms)
        for until in (now - 20_000, now + 3_600_000, -1):
            bad = rig.hosts.Report(hosts_pb2.HostReportRequest(since_ms=now - 20_000, until_ms=until))
            await refused(bad, "INVALID_ARGUMENT", "until_ms", "or 0 for now")

    play(MemoryUnderTest(), scenario)


def test_a_draining_host_says_when_it_will_be_empty_and_what_it_waits_for(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        job, now = await rig.submit(), rig.gateway.now()
        await admit(rig, job)
        await start(rig, job, "h001", at=now)
        drains = HostStateChanged(
            at=now, host=HostId("h001"), state=HostState.DRAINING, previous=HostState.HEALTHY, last_seen=now, why=WHY
        )
        await rig.write(drains)
        answer = await rig.hosts.List(hosts_pb2.ListHostsRequest(states=["draining"]))
        (host,) = answer.hosts
        assert (host.host, host.gpus, host.gpus_held, list(host.runs)) == ("h001", 8, 8, [f"{job}.1"])
        assert (host.empty_at_ms, host.waits_for) == (now + 900_000, f"{job}.1")
        assert host.last_seen_ms == now
        everything = await rig.hosts.List(hosts_pb2.ListHostsRequest())
        assert [h.host for h in everything.hosts] == ["h000", "h001", "h002", "h003"]
        assert everything.hosts[0].empty_at_ms == 0
        await refused(rig.hosts.List(hosts_pb2.ListHostsRequest(states=["up"])), "INVALID_ARGUMENT", "states")

    play(log_under_test, scenario)


def test_a_host_is_listed_with_its_last_heartbeat(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        at = rig.gateway.now() + 5_000
        for beat in (at, at - 1_000):
            fact = Heartbeat(at=beat, agent="a0", hosts=(HostBeat(host=HostId("h001"), gpus=8),))
            await rig.log.append([msgspec.structs.replace(fact, id=FactId(f"beat-{beat}"), cluster="test")])
        async with asyncio.timeout(10):
            while True:
                hosts = (await rig.hosts.List(hosts_pb2.ListHostsRequest())).hosts
                if hosts[1].last_seen_ms == at:
                    break
                await asyncio.sleep(0.05)
        assert all(host.last_seen_ms < at for host in hosts if host.host != "h001")

    play(log_under_test, scenario)


def test_a_host_is_listed_with_the_incidents_that_are_not_over(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        now = rig.gateway.now()

        async def say(*signals: HealthSignal) -> list[tuple[str, str, int]]:
            await rig.write(HostSignal(at=now, host=HostId("h001"), signals=signals))
            answer = await rig.hosts.List(hosts_pb2.ListHostsRequest())
            assert not any(host.signals for host in answer.hosts if host.host != "h001")
            return [(one.code, one.severity, one.count) for one in answer.hosts[1].signals]

        hot = HealthSignal(
            device="gpu1", source="nvml", code="hot", severity=Severity.WATCH, text="t", first_at=now, last_at=now
        )
        lost = msgspec.structs.replace(hot, code="gpu_lost", severity=Severity.FATAL)
        assert await say(hot, lost) == [("gpu_lost", "fatal", 1), ("hot", "watch", 1)]
        assert await say(msgspec.structs.replace(hot, count=3)) == [("gpu_lost", "fatal", 1), ("hot", "watch", 3)]
        assert await say(msgspec.structs.replace(lost, over=True)) == [("hot", "watch", 3)]

    play(log_under_test, scenario)


# --- health and reflection -----------------------------------------------------------------------------------------


async def health(rig: Rig, service: str = "") -> int:
    stub = health_pb2_grpc.HealthStub(rig.channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
    status: int = answer.status
    return status


async def until_health(rig: Rig, wanted: int) -> None:
    deadline = time.monotonic() + 15
    while await health(rig) != wanted:
        assert time.monotonic() < deadline, f"health does not become {wanted}"
        await asyncio.sleep(0.02)


def test_an_outage_of_the_log_shows_in_health_and_answers_and_passes(own_nats_server: NatsServer) -> None:
    serving, not_serving = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING

    async def scenario(rig: Rig) -> None:
        await until_health(rig, serving)
        assert await health(rig, "tenure.v1.Jobs") == serving
        job = await rig.submit()
        own_nats_server.kill()
        await until_health(rig, not_serving)
        submit = rig.jobs.Submit(jobs_pb2.SubmitRequest(job=good_job(), idempotency_key="k"))
        await refused(submit, "UNAVAILABLE", "the log cannot be reached")
        assert (await get(rig, job)).state == "submitted"  # what is known is still told
        own_nats_server.start()
        await until_health(rig, serving)
        answer = await rig.jobs.Submit(jobs_pb2.SubmitRequest(job=good_job(), idempotency_key="k"))
        assert (await get(rig, answer.job_id)).state == "submitted"

    play(JetStreamUnderTest(own_nats_server, patience_s=0.5), scenario)


def test_until_the_log_is_read_nothing_is_answered() -> None:
    async def scenario(rig: Rig) -> None:
        rig.loop.caught_up.clear()
        await refused(get(rig, "j1"), "UNAVAILABLE", "still reading the log")
        await refused(rig.jobs.Submit(jobs_pb2.SubmitRequest(job=good_job())), "UNAVAILABLE", "still reading the log")
        await until_health(rig, health_pb2.HealthCheckResponse.NOT_SERVING)
        rig.loop.caught_up.set()
        await until_health(rig, health_pb2.HealthCheckResponse.SERVING)

    play(MemoryUnderTest(), scenario)


def test_reflection_names_the_services() -> None:
    async def scenario(rig: Rig) -> None:
        stub = reflection_pb2_grpc.ServerReflectionStub(rig.channel)
        question = reflection_pb2.ServerReflectionRequest(list_services="")
        call: grpc.aio.StreamStreamCall[Any, Any] = stub.ServerReflectionInfo(iter([question]))
        answer = await anext(aiter(call))
        names = {service.name for service in answer.list_services_response.service}
        assert {"tenure.v1.Jobs", "tenure.v1.Budgets", "tenure.v1.Hosts", "grpc.health.v1.Health"} <= names

    play(MemoryUnderTest(), scenario)
