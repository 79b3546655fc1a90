"""Stories and reports through the gateway, from a real ClickHouse that the journal writes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from clickhouse_connect.driver import Client

from services.gateway import state as state_module
from services.gateway.clickhouse_history import ClickHouseHistory
from services.journal.journal import Journal
from tenure.domain.ids import JobId
from tenure.domain.reasons import EndCause, JobState, Reason, Why
from tenure.events.budgets import JobAdmitted, RunCharged
from tenure.events.placing import JobFinished, RunEnded, RunPreemptionRequested, RunStarted
from tenure.log.memory import MemoryLog
from tenure.log.port import Log
from tenure.v1 import budgets_pb2, jobs_pb2
from tests.contract.conftest import MemoryUnderTest
from tests.contract.gateway_rig import NOW, Rig, assigned, place, play, refused
from tests.contract.own_clickhouse import Server, clickhouse, client

__all__ = ["clickhouse", "client"]

GAVE_WAY = Why(rule="P5", reason=Reason.DISRUPT_UNALLOCATED, numbers={"victim_budget": "science/chem"})
DONE = Why(rule="P10", reason=Reason.END_COMPLETED, numbers={"exit_code": 0})


@asynccontextmanager
async def journal_of(log: Log, server: Server, folder: Path) -> AsyncIterator[Journal]:
    """The journal of the log, writing while the block runs."""
    stop = asyncio.Event()
    journal = Journal(log, server.client, progress_file=folder / "progress.json")
    running = asyncio.create_task(journal.run(stop))
    try:
        yield journal
    finally:
        stop.set()
        await running


def play_with_database(
    server: Server, folder: Path, scenario: Callable[[Rig], object], *, journal_runs: bool = True
) -> None:
    """A gateway whose history is the server, and a journal that fills it."""

    async def with_journal(rig: Rig) -> None:
        if not journal_runs:
            await scenario(rig)  # type: ignore[misc]
            return
        async with journal_of(rig.log, server, folder):
            await scenario(rig)  # type: ignore[misc]

    under_test = MemoryUnderTest()
    under_test.log = MemoryLog()
    play(under_test, with_journal, history_of=lambda _: ClickHouseHistory(server.url, server.token_file))


async def run_and_finish(rig: Rig, job: str, host: str) -> None:
    spec = rig.loop.state.jobs[JobId(job)].spec
    run = f"{job}.1"
    await rig.write(JobAdmitted(at=NOW, job=JobId(job), spec=spec, submitted_at=NOW))
    await rig.write(assigned(rig.loop.state, job, place(host)))
    await rig.write(
        RunStarted(at=NOW, run=run, job=JobId(job), protected_until=NOW, charged=True, hosts={}),
        RunEnded(at=NOW, run=run, job=JobId(job), cause_of_end=EndCause.COMPLETED, exit_code=0, why=DONE),
        JobFinished(at=NOW, job=JobId(job), state=JobState.COMPLETED, exit_code=0, why=DONE),
        RunCharged(
            at=NOW, run=run, job=JobId(job), budget="science/chem", user="ana", charged_gpu_ms=3_600_000, why=DONE
        ),
    )


def test_a_story_holds_all_that_was_written_a_moment_ago(clickhouse: Server, client: Client, tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        victim, asker = await rig.submit(), await rig.submit()
        spec = rig.loop.state.jobs[JobId(victim)].spec
        await rig.write(JobAdmitted(at=NOW, job=JobId(victim), spec=spec, submitted_at=NOW))
        await rig.write(assigned(rig.loop.state, victim, place("h000")))
        await rig.write(
            RunPreemptionRequested(
                at=NOW, run=f"{victim}.1", job=JobId(victim), by=asker, why=GAVE_WAY, escrow=place("h000")
            )
        )
        last = rig.loop.state.position
        answer = await rig.jobs.Explain(jobs_pb2.ExplainJobRequest(job_id=victim))
        kinds = [step.kind for step in answer.steps]
        assert kinds == ["JobSubmitted", "JobAdmitted", "RunAssigned", "RunPreemptionRequested"]
        assert (answer.steps[-1].position, answer.position) == (last, last)
        assert answer.steps[-1].text.startswith(f"Run 1 is to stop for {asker}: it runs unallocated")
        answer = await rig.jobs.Explain(jobs_pb2.ExplainJobRequest(job_id=asker))
        assert answer.steps[-1].text.startswith(f"Job {victim}: run 1 is to stop for {asker}")

    play_with_database(clickhouse, tmp_path, scenario)


def test_a_job_no_longer_kept_is_told_by_the_database(
    clickhouse: Server, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "OVER_KEPT", 1)

    async def scenario(rig: Rig) -> None:
        old, new = await rig.submit(name="old"), await rig.submit()
        await run_and_finish(rig, old, "h000")
        await run_and_finish(rig, new, "h001")
        assert list(rig.loop.state.jobs) == [new]
        job = (await rig.jobs.Get(jobs_pb2.GetJobRequest(job_id=old))).job
        assert (job.state, job.spec.name, job.charged_gpu_ms) == ("completed", "old", 3_600_000)
        assert [run.state for run in job.runs] == ["completed"]
        await refused(rig.jobs.Cancel(jobs_pb2.CancelJobRequest(job_id=old)), "FAILED_PRECONDITION", "over already")
        await refused(rig.jobs.Get(jobs_pb2.GetJobRequest(job_id="jx")), "NOT_FOUND", "job_id")
        await refused(rig.jobs.Explain(jobs_pb2.ExplainJobRequest(job_id="jx")), "NOT_FOUND", "job_id")

    play_with_database(clickhouse, tmp_path, scenario)


def test_a_report_covers_the_budgets_at_and_below_a_path(clickhouse: Server, client: Client, tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        report = await rig.budgets.Report(budgets_pb2.BudgetReportRequest())
        assert [row.path for row in report.rows] == ["robotics", "science", "science/bio", "science/chem"]
        assert [row.leaf for row in report.rows] == [True, False, True, True]
        assert report.until_ms - report.since_ms == 7 * 86_400_000
        assert report.position == rig.loop.state.position
        long = await rig.budgets.Report(budgets_pb2.BudgetReportRequest(since_ms=1))
        assert long.until_ms - long.since_ms == 3_653 * 86_400_000, "no more hours than the database can bear"
        assert not report.users, "who used it is told when it is asked"
        await run_and_finish(rig, await rig.submit(), "h000")
        told = await rig.budgets.Report(budgets_pb2.BudgetReportRequest(since_ms=1, users=True))
        delivered = {row.path: row.delivered_gpu_ms for row in told.rows}
        assert sum(one.delivered_gpu_ms for one in told.users) == delivered["science"]
        report = await rig.budgets.Report(budgets_pb2.BudgetReportRequest(path="science/bio"))
        assert [row.path for row in report.rows] == ["science/bio"]
        assert report.rows[0].entitlement_gpu_ms > 0

    play_with_database(clickhouse, tmp_path, scenario)


def test_a_database_that_is_away_is_said_and_asked_again_later(
    clickhouse: Server, client: Client, tmp_path: Path
) -> None:
    if clickhouse.process is None:
        pytest.skip("the server is not ours to kill")

    async def scenario(rig: Rig) -> None:
        job = await rig.submit()
        clickhouse.kill()
        request = jobs_pb2.ExplainJobRequest(job_id=job)
        await refused(rig.jobs.Explain(request), "UNAVAILABLE", "ClickHouse", clickhouse.url, "tenure doctor")
        clickhouse.start()
        assert (await rig.jobs.Explain(request)).position == 0  # nobody fills it, and that is said

    play_with_database(clickhouse, tmp_path, scenario, journal_runs=False)
