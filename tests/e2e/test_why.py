"""`tenure why` on a real system: who gave way to whom, what stands before a job, and all of it decided again."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.domain.ids import FactId, JobId
from tenure.domain.reasons import Reason, Why
from tenure.events.placing import PlacementDeferred
from tenure.log.access import Access
from tenure.log.jetstream import JetStreamLog
from tenure.runtime.data_dir import DataDir, Endpoint
from tests.e2e.command_line import CommandLine, until

SLEEP = ("--", "sleep", "1000")


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    system = CommandLine(tmp_path_factory.mktemp("why"))
    try:
        system.start()
        yield system
    finally:
        system.close()


@pytest.fixture(scope="module")
def jobs(system: CommandLine) -> dict[str, str]:
    """An unallocated job that gave way to a paid one, and a gang that waits for that."""
    free = system.submit("--replicas", "2", "--resumable", "--name", "sweep", *SLEEP, min_runtime="0", gpus=4)
    until(lambda: system.state(free) == "running", "the unallocated job to run")
    paid = system.submit("--name", "train", *SLEEP, gpus=4)
    until(lambda: system.state(paid) == "running", "the paid job to run")
    gang = system.submit("--replicas", "2", *SLEEP, gpus=4)
    until(lambda: all(_was_told(system, job) for job in (free, gang)), "both to be told why they wait")
    return {"free": free, "paid": paid, "gang": gang}


def test_who_gave_way_reads_to_whom_and_why(system: CommandLine, jobs: dict[str, str]) -> None:
    told = system.ask("why", jobs["free"])
    assert told.startswith("Run 1 had to give way at ") and f"to job {jobs['paid']} (train, " in told.splitlines()[0]
    assert "it runs unallocated (budget default), and such runs give way at once" in told
    document = system.json("why", jobs["free"])
    assert [gone["by"] for gone in document["gave_way"]] == [jobs["paid"]]
    assert {run["kept"] for run in document["before"]["runs"]} == {"keep_asker_unallocated"}


def test_who_waits_reads_what_stands_before(system: CommandLine, jobs: dict[str, str]) -> None:
    document = system.json("why", jobs["gang"])
    runs = {run["job"]: run for run in document["before"]["runs"]}
    paid = runs[jobs["paid"]]
    assert (paid["kept"], paid["sides"]["same_budget"], paid["name"]) == ("keep_protected", True, "train")
    assert document["before"]["room"][0]["largest_hole"] == 4
    told = system.ask("why", jobs["gang"])
    assert "is protected by contract until" in told and "RUNS ON HOSTS IT COULD USE" in told


def test_every_decision_comes_out_the_same_again(system: CommandLine, jobs: dict[str, str]) -> None:
    for name, kinds in {
        "free": {"JobAdmitted", "RunAssigned", "RunPreemptionRequested", "RunEnded", "JobRequeued"},
        "paid": {"JobAdmitted", "RunAssigned", "RunPreemptionRequested", "RankingPublished"},
        "gang": {"JobAdmitted", "PlacementDeferred", "RankingPublished"},
    }.items():
        document = system.json("why", jobs[name], "--replay")
        assert document["same"] and kinds <= {one["kind"] for one in document["decisions"]}
        assert all(one["policy_position"] for one in document["decisions"]), "the log has its policy from the start"
    told = system.ask("why", jobs["paid"], "--replay").splitlines()
    assert told[-1].endswith("were decided again from the log: the same, to the byte.")


def test_a_job_that_is_over_is_decided_again_to_its_end(system: CommandLine, jobs: dict[str, str]) -> None:
    short = system.submit("--name", "short", "--", "true", gpus=1)
    assert system.run("job", short, "--wait").returncode == 0
    until(lambda: "RunCharged" in _kinds(system, short), "its books to be closed")
    document = system.json("why", short, "--replay")
    assert document["same"] and {"RunStarted", "RunEnded", "JobFinished"} <= _kinds(system, short)


def test_of_an_unknown_job_it_is_said_that_there_is_none(system: CommandLine) -> None:
    for arguments in (("why", "nope"), ("why", "nope", "--replay")):
        done = system.run(*arguments)
        assert (done.returncode, done.stdout) == (1, "") and "there is no job 'nope'" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_what_was_not_decided_so_is_shown(system: CommandLine, jobs: dict[str, str]) -> None:
    """Somebody writes in the placer's name."""
    asyncio.run(_forge(system, JobId(jobs["gang"])))
    done = system.run("why", jobs["gang"], "--replay")
    assert done.returncode == 1 and "come out differently" in done.stderr
    assert any("PlacementDeferred" in line and "DIFFERENT" in line for line in done.stdout.splitlines())
    document = json.loads(system.run("why", jobs["gang"], "--replay", "--json").stdout)
    (other,) = (one for one in document["decisions"] if not one["same"])
    assert not document["same"] and other["written"]["why"]["reason"] == "defer_no_such_hosts"


def _was_told(system: CommandLine, job: str) -> bool:
    why = system.json("job", job)["why"]
    return why is not None and why["reason"].startswith("defer_")


def _kinds(system: CommandLine, job: str) -> set[str]:
    return {one["kind"] for one in system.json("why", job, "--replay")["decisions"]}


async def _forge(system: CommandLine, job: JobId) -> None:
    endpoint = DataDir(system.data).endpoint()
    assert isinstance(endpoint, Endpoint)
    log = await JetStreamLog.connect(_placer(endpoint), cluster=endpoint.cluster)
    try:
        assumed = await log.head()
        why = Why(rule="P6", reason=Reason.DEFER_NO_SUCH_HOSTS)
        fact = PlacementDeferred(at=1, id=FactId(f"placer-{assumed}-0"), cluster=endpoint.cluster, job=job, why=why)
        await log.append([fact])
    finally:
        await log.close()


def _placer(endpoint: Endpoint) -> Access:
    reader = Path(endpoint.nats_key_file or "")
    return Access(
        url=endpoint.nats, client="placer", seed_file=reader.with_name(reader.name.replace("reader", "placer"))
    )
