"""A host that goes silent for good (P2): suspect, lost, its runs refunded and run again elsewhere, and then it is back.

Four agents of two hosts each. One is suspended (SIGSTOP) while a gang has a replica on it and a job runs there: to the
others it is a dead machine, though its processes live on. When it is resumed nothing of those runs may stay.
"""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.domain.reasons import EndCause
from tenure.events.budgets import RunCharged
from tenure.events.fact import Recorded
from tenure.events.placing import JobRequeued, RunEnded, RunStopRequested
from tenure.events.reports import Heartbeat, ReplicasStarted
from tenure.sdk.client import Client
from tenure.v1.budgets_pb2 import Budget
from tenure.v1.jobs_pb2 import Job, JobSpec
from tests.checks.invariants import check_log, check_segments
from tests.e2e.roles import Roles
from tests.e2e.system import FINAL, is_running

AGENTS = ("a0", "a1", "a2", "a3")
KNOBS = ("heartbeat=500ms", "suspect_after=3s", "lost_after=6s")
GANG_REPLICAS = 3
WORK = 'echo $$ > "$0/$TENURE_RUN_ID.$RANK"; until [ -e "$0/go" ]; do sleep 0.1; done'
"""Writes down its pid, and ends well when it may."""


class Scene:
    """The roles, a client, and what the jobs wrote down."""

    def __init__(self, roles: Roles, written: Path) -> None:
        self.roles, self.written = roles, written
        self.client: Client = roles.client()

    def submit(self, *, replicas: int, gpus: int) -> str:
        """Work that is protected, and so charged, in budget `lab`."""
        command = ["/bin/sh", "-c", WORK, str(self.written)]
        return self.client.submit(
            JobSpec(budget="lab", replicas=replicas, gpus_per_replica=gpus, min_runtime_ms=60_000, command=command)
        )

    def job_in(self, job_id: str, state: str, *, runs: int) -> Job:
        """The job once it is in this state with so many runs."""

        def probe() -> Job | None:
            job = self.client.job(job_id)
            return job if job.state == state and len(job.runs) == runs else None

        return self.roles.until(probe, what=f"{job_id} to be {state} in run {runs}")

    def pids(self, job_id: str, *, run: int, replicas: int) -> dict[str, int]:
        """Pids of a run's processes by `<run>.<replica>`, once all of them have written theirs."""
        names = [f"{job_id}.{run}.{number}" for number in range(replicas)]

        def probe() -> dict[str, int] | None:
            texts = {name: self.written.joinpath(name) for name in names}
            found = {name: path.read_text().strip() for name, path in texts.items() if path.exists()}
            return {name: int(found[name]) for name in names} if all(found.get(name) for name in names) else None

        return self.roles.until(probe, what=f"the processes of {job_id}.{run}")

    def hosts_in(self, agent: str, state: str) -> None:
        """Wait until both hosts of an agent are in this state."""
        self.roles.until(
            lambda: (
                [host.state for host in self.client.hosts().hosts if host.host.startswith(agent)] == [state] * 2 or None
            ),
            what=f"{agent} to be {state}",
        )

    def until_reported(self, *jobs: str) -> None:
        """Wait until heartbeats have told of the first run of each job on each of its hosts."""
        runs = [self.client.job(job).runs[0] for job in jobs]
        wanted = {(run.run_id, host.host) for run in runs for host in run.hosts}

        def probe() -> bool | None:
            beats = [entry.fact for entry in self.roles.recorded() if isinstance(entry.fact, Heartbeat)]
            told = {(each.run, on.host) for beat in beats for on in beat.hosts for each in on.segments}
            return True if wanted <= told else None

        self.roles.until(probe, what="heartbeats about the runs")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """Eight hosts of four GPUs behind four agents; nothing that was started is left afterwards."""
    written = tmp_path / "written"
    written.mkdir()
    with Roles(tmp_path, knobs=KNOBS) as roles:
        roles.start_deciders()
        for agent in AGENTS:
            file = tmp_path / f"{agent}.yaml"
            hosts = [f"  - {{name: {agent}-h{number}, gpus: 4, gpu_type: H100, block: {agent}}}\n" for number in (0, 1)]
            file.write_text("hosts:\n" + "".join(hosts))
            roles.start("agent", "--cluster-file", str(file), "--on-exit", "stop", name=agent)
        try:
            yield Scene(roles, written)
        finally:
            (written / "go").touch()


def test_runs_of_a_lost_host_are_refunded_and_run_elsewhere_and_nothing_runs_twice(scene: Scene) -> None:
    client, roles = scene.client, scene.roles
    client.set_shares([Budget(path="lab", share_percent=100)], user="ana", merge=False)
    for agent in AGENTS:
        scene.hosts_in(agent, "healthy")
    gang = scene.submit(replicas=GANG_REPLICAS, gpus=3)
    scene.job_in(gang, "running", runs=1)
    single = scene.submit(replicas=1, gpus=1)  # best fit: on a host of the gang
    sizes = {gang: GANG_REPLICAS, single: 1}
    first = {job: scene.job_in(job, "running", runs=1).runs[0] for job in sizes}
    silent = first[single].hosts[0].host.partition("-")[0]
    on_silent = {host.host for host in first[gang].hosts if host.host.startswith(silent)}
    assert 0 < len(on_silent) < GANG_REPLICAS, "the gang is on the silent agent and on another one"
    old = {name: pid for job in sizes for name, pid in scene.pids(job, run=1, replicas=sizes[job]).items()}
    scene.until_reported(*sizes)

    os.kill(roles.processes[silent].pid, signal.SIGSTOP)
    scene.hosts_in(silent, "suspect")
    assert [client.job(job).state for job in sizes] == ["running"] * 2, "suspicion is not failure (S64)"
    scene.hosts_in(silent, "lost")
    again = {job: scene.job_in(job, "running", runs=2) for job in sizes}
    for requeued in again.values():
        assert requeued.runs[0].state == "host_lost" and requeued.resume_count == 1
        assert not [host.host for host in requeued.runs[1].hosts if host.host.startswith(silent)]
    new = {name: pid for job in sizes for name, pid in scene.pids(job, run=2, replicas=sizes[job]).items()}
    assert is_running(old[f"{single}.1.0"]), "its machine is silent, not dead"

    os.kill(roles.processes[silent].pid, signal.SIGCONT)
    scene.hosts_in(silent, "healthy")
    roles.until(lambda: not any(map(is_running, old.values())) or None, what="the end of the old processes")
    assert all(map(is_running, new.values())), "only the old runs are stopped"
    (scene.written / "go").touch()
    for job in sizes:
        assert next(now for now in client.watch(job) if now.state in FINAL).state == "completed"
    ran = {path.name for path in scene.written.iterdir()} - {"go"}
    assert ran == {*old, *new}, "no process but those of the two runs of each job"
    _check_books(scene, sizes)


def _check_books(scene: Scene, jobs: dict[str, int]) -> None:
    """What the log says of the loss, and that log, budget report and heartbeats say the same of GPU time."""
    client, roles = scene.client, scene.roles

    def whole() -> list[Recorded] | None:
        log = roles.recorded()
        closed = [entry for entry in log if isinstance(entry.fact, RunCharged)]
        return log if len(closed) == 2 * len(jobs) else None

    facts = [entry.fact for entry in roles.until(whole, what="closed books")]
    lost = [fact for fact in facts if isinstance(fact, RunEnded) and fact.cause_of_end is EndCause.HOST_LOST]
    assert sorted(fact.job for fact in lost) == sorted(jobs)
    assert sorted(fact.job for fact in facts if isinstance(fact, JobRequeued)) == sorted(jobs)
    charges = [fact for fact in facts if isinstance(fact, RunCharged)]
    refunded = {fact.run: fact.refunded_gpu_ms for fact in charges}
    assert all((refunded[run] > 0) is run.endswith(".1") for run in refunded)
    starts = Counter(
        (fact.run, start.replica) for fact in facts if isinstance(fact, ReplicasStarted) for start in fact.replicas
    )
    assert set(starts.values()) == {1} and len(starts) == 2 * sum(jobs.values())
    told = [fact for fact in facts if isinstance(fact, RunStopRequested)]
    assert all(fact.cause_of_end is EndCause.HOST_LOST for fact in told), "the rest of the gang was told to stop"

    def reported() -> bool | None:
        (row,) = [row for row in client.budget_report().rows if row.path == "lab"]
        charged = sum(fact.charged_gpu_ms for fact in charges)
        return (row.delivered_gpu_ms, row.refunded_gpu_ms) == (charged, sum(refunded.values())) or None

    roles.until(reported, what="a report of what was charged and refunded", timeout_s=10)
    log = roles.recorded()
    check_log(log)
    check_segments([entry.fact for entry in log], complete=True)
