"""kill -9 of each part while jobs run: nothing acknowledged is lost, nothing starts twice, no contract is broken.

S57 (two jobs own one host) and S59 (a run that cannot be owned again is killed, or owned twice) of the field cases: the
log is checked after every kill, and each job's process counts its own starts.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tenure.events.placing import RunAssigned
from tenure.events.reports import ReplicasStarted
from tenure.sdk.errors import ServerError
from tests.e2e.system import System, is_running, running

SCRIPTS = Path(__file__).parents[2] / "examples" / "scripts"


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """Four hosts of four GPUs."""
    with running(tmp_path_factory.mktemp("faults")) as system:
        yield system
        system.check()


def sh(text: str) -> list[str]:
    return ["/bin/sh", "-c", text]


def burst(system: System, count: int, command: list[str], **more: object) -> list[str]:
    """Submit many small jobs, whatever is killed meanwhile; returns those that were acknowledged."""
    acknowledged: list[str] = []
    deadline = time.monotonic() + 60
    while len(acknowledged) < count and time.monotonic() < deadline:
        try:
            acknowledged.append(system.submit("abc"[len(acknowledged) % 2], command, **more))  # type: ignore[arg-type]
        except ServerError:
            continue  # not acknowledged: may be sent again
    assert len(acknowledged) == count
    return acknowledged


def all_completed(system: System, jobs: list[str]) -> None:
    for job_id in jobs:
        assert system.wait(job_id, timeout_s=60).state == "completed"


def started_once(system: System, jobs: list[str]) -> None:
    """No run was assigned twice, no replica was launched twice, and each job needed one run."""
    recorded = system.check()
    runs = [entry.fact.run for entry in recorded if isinstance(entry.fact, RunAssigned)]
    assert len(runs) == len(set(runs))
    launched = [
        (entry.fact.run, start.replica)
        for entry in recorded
        if isinstance(entry.fact, ReplicasStarted)
        for start in entry.fact.replicas
    ]
    assert len(launched) == len(set(launched))
    assert all(runs.count(f"{job_id}.1") == 1 for job_id in jobs)  # type: ignore[arg-type]


@pytest.mark.parametrize("role", ["placer", "ranker", "budget", "health", "gateway", "journal", "clickhouse"])
def test_a_role_is_killed_under_load(system: System, role: str, tmp_path: Path) -> None:
    command = sh(f"echo $TENURE_RUN_ID >> {tmp_path}/ran; sleep 0.2")
    jobs = burst(system, 10, command, seconds=1)
    system.kill_role(role)
    jobs += burst(system, 10, command, seconds=1)
    system.kill_role(role)
    all_completed(system, jobs)
    started_once(system, jobs)
    ran = (tmp_path / "ran").read_text().split()
    assert sorted(ran) == sorted(f"{job_id}.1" for job_id in jobs), "each job's process ran exactly once"


def test_clickhouse_has_every_fact_once_after_the_journal_was_killed(system: System) -> None:
    jobs = burst(system, 30, sh("true"), seconds=1)
    for _ in range(3):
        system.kill_role("journal")
        jobs += burst(system, 10, sh("true"), seconds=1)
    all_completed(system, jobs)
    for job_id in jobs:
        steps = system.until(partial(whole_story, system, job_id), what=f"the story of {job_id}")
        assert len(steps) == len(set(steps))


def whole_story(system: System, job_id: str) -> list[int] | None:
    """Positions of the story's facts once the journal has brought its end to ClickHouse."""
    steps = system.client.explain(job_id).steps
    kinds = [step.kind for step in steps]
    return [step.position for step in steps] if {"JobFinished", "RunCharged"} <= set(kinds) else None


def test_runs_survive_their_agent(system: System, tmp_path: Path) -> None:
    go = tmp_path / "go"
    long = system.submit(
        "a", sh(f"echo $$ > {tmp_path}/pid; while [ ! -e {go} ]; do sleep 0.05; done; exit 0"), seconds=20
    )
    system.wait(long, "running")
    pid = int(
        system.until(lambda: (tmp_path / "pid").read_text().strip() or None if (tmp_path / "pid").exists() else None)
    )
    short = system.submit("b", sh("sleep 0.5; exit 9"), seconds=20)
    system.wait(short, "running")
    system.kill_role("agent")
    assert is_running(pid), "the job outlives its agent"
    ended = system.wait(short)
    assert (ended.state, ended.runs[0].exit_code) == ("failed", 9), "an exit nobody was there to see is reported"
    go.touch()
    job = system.wait(long)
    assert job.state == "completed" and len(job.runs) == 1
    system.check()


def test_nats_is_killed_and_nothing_acknowledged_is_lost(system: System, tmp_path: Path) -> None:
    command = sh(f"echo $TENURE_RUN_ID >> {tmp_path}/ran; sleep 0.1")
    jobs = burst(system, 20, command, seconds=1)
    system.kill_role("nats")
    jobs += burst(system, 20, command, seconds=1)
    all_completed(system, jobs)
    started_once(system, jobs)
    assert sorted((tmp_path / "ran").read_text().split()) == sorted(f"{job_id}.1" for job_id in jobs)


def test_a_silent_host_comes_back_with_its_runs_alive(system: System) -> None:
    job_id = system.submit("a", [sys.executable, str(SCRIPTS / "counter.py"), "90"], seconds=20)
    system.wait(job_id, "running")
    agent = system.children()["agent"]
    os.kill(agent, signal.SIGSTOP)
    try:
        system.until(
            lambda: True if any(host.state == "suspect" for host in system.client.hosts().hosts) else None,
            what="suspicion",
        )
        assert system.client.job(job_id).state == "running", "suspicion is not failure"
    finally:
        os.kill(agent, signal.SIGCONT)
    system.until(
        lambda: True if all(host.state == "healthy" for host in system.client.hosts().hosts) else None, what="health"
    )
    job = system.wait(job_id)
    assert job.state == "completed" and len(job.runs) == 1


def test_everything_is_killed_and_started_again(tmp_path: Path) -> None:
    with running(tmp_path) as system:
        over = system.wait(system.submit("a", sh("true"), seconds=1))
        long = system.submit("a", sh(f"sleep 4; echo $TENURE_RUN_ID >> {tmp_path}/ran"), seconds=20)
        system.wait(long, "running")
        queued = [
            system.submit("b", sh(f"echo $TENURE_RUN_ID >> {tmp_path}/ran"), gpus=4, seconds=1) for _ in range(40)
        ]
        system.kill_everything()
        system.start()
        all_completed(system, [long, *queued])
        started_once(system, [long, *queued, over.job_id])
        again = system.client.job(over.job_id)
        assert (again.state, len(again.runs)) == ("completed", 1), "finished is finished (S45)"
        ran = (tmp_path / "ran").read_text().split()
        assert sorted(ran) == sorted(f"{job_id}.1" for job_id in [long, *queued])


def test_ctrl_c_stops_the_jobs_too_and_leaves_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as system:
        job_id = system.submit("a", sh(f"echo $$ > {tmp_path}/pid; sleep 100"), seconds=20, resumable=True)
        system.wait(job_id, "running")
        pid = int(
            system.until(
                lambda: (tmp_path / "pid").read_text().strip() or None if (tmp_path / "pid").exists() else None
            )
        )
        assert system.stop() == 0
        assert not is_running(pid)
        system.start()
        job = system.wait(job_id, "running")
        assert len(job.runs) == 2 and job.runs[0].state == "host_lost", "its host ended it, so it is queued again"
