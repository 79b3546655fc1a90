"""A host that does not release GPUs in time (P7, S25): its agent is suspended, so the victim on it is never told.

The escrow ends at its deadline, nothing starts on that host although one of its GPUs is free, and it is called suspect
long before its silence would be; when the agent goes on, the victim goes, and the host takes runs again.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.domain.host import HostState
from tenure.domain.ids import HostId
from tenure.domain.reasons import Reason
from tenure.events.hosts import HostStateChanged
from tenure.events.placing import PlacementDeferred, RunAssigned, RunEnded
from tenure.sdk.client import Client
from tenure.v1.budgets_pb2 import Budget
from tenure.v1.jobs_pb2 import Job, JobSpec
from tests.checks.invariants import check_log
from tests.e2e.roles import Roles

AGENTS = ("a0", "a1")
KNOBS = ("heartbeat=500ms", "suspect_after=30s", "lost_after=60s", "escrow_slack=1s")


@pytest.fixture
def roles(tmp_path: Path) -> Iterator[Roles]:
    """Two hosts of four GPUs, each with an agent of its own."""
    with Roles(tmp_path, knobs=KNOBS) as roles:
        roles.start_deciders()
        for agent in AGENTS:
            file = tmp_path / f"{agent}.yaml"
            file.write_text(f"hosts:\n  - {{name: {agent}-h, gpus: 4, gpu_type: H100, block: {agent}}}\n")
            roles.start("agent", "--cluster-file", str(file), "--on-exit", "stop", name=agent)
        yield roles


def submit(client: Client, gpus: int, *, seconds: float) -> str:
    """A job of one replica that sleeps; unallocated without `seconds`."""
    command = ["/bin/sh", "-c", "exec sleep 300"]
    spec = JobSpec(budget="lab", replicas=1, gpus_per_replica=gpus, grace_ms=1_000, command=command)
    spec.min_runtime_ms = int(seconds * 1000)
    return client.submit(spec)


def job_in(roles: Roles, client: Client, job_id: str, state: str) -> Job:
    """The job once it is in this state."""

    def probe() -> Job | None:
        job = client.job(job_id)
        return job if job.state == state else None

    return roles.until(probe, what=f"{job_id} to be {state}")


def host_in(roles: Roles, client: Client, host: str, state: str) -> None:
    """Wait until the host is in this state."""
    states = lambda: {each.host: each.state for each in client.hosts().hosts}  # noqa: E731
    roles.until(lambda: states().get(host) == state or None, what=f"{host} to be {state}")


def test_a_host_that_does_not_release_is_suspect_and_not_free(roles: Roles) -> None:
    client = roles.client()
    client.set_shares([Budget(path="lab", share_percent=100)], user="ana", merge=False)
    for name in AGENTS:
        host_in(roles, client, f"{name}-h", "healthy")
    kept = submit(client, 4, seconds=60)
    job_in(roles, client, kept, "running")
    victim = submit(client, 3, seconds=0)
    host = job_in(roles, client, victim, "running").runs[0].hosts[0].host
    agent = roles.processes[host.partition("-")[0]]

    os.kill(agent.pid, signal.SIGSTOP)
    asker = submit(client, 4, seconds=60)
    host_in(roles, client, host, "suspect")
    small = submit(client, 1, seconds=60)
    job_in(roles, client, small, "queued")
    roles.until(lambda: client.explain(small).steps or None, what="why it waits")
    assert client.job(asker).state == "queued" and client.job(victim).state == "stopping"
    os.kill(agent.pid, signal.SIGCONT)
    job_in(roles, client, victim, "preempted")
    host_in(roles, client, host, "healthy")
    roles.until(
        lambda: "running" in (client.job(asker).state, client.job(small).state) or None, what="a start on the host"
    )
    _check_story(roles, asker, host)


def _check_story(roles: Roles, asker: str, host: str) -> None:
    """What the log says of the host, in this order."""
    log = roles.recorded()
    check_log(log)
    facts = [entry.fact for entry in log]
    (expired,) = [fact for fact in facts if isinstance(fact, PlacementDeferred) and fact.overdue]
    (ended,) = [fact for fact in facts if isinstance(fact, RunEnded)]
    assert (expired.job, expired.why.reason) == (asker, Reason.DEFER_ESCROW_EXPIRED)
    assert expired.overdue == {HostId(host): (ended.run,)}
    changes = [fact for fact in facts if isinstance(fact, HostStateChanged) and fact.host == host]
    said = [(change.state, change.why.reason) for change in changes[1:]]
    assert said == [(HostState.SUSPECT, Reason.HOST_OVERDUE), (HostState.HEALTHY, Reason.HOST_RELEASED)]
    between = facts[facts.index(expired) : facts.index(ended)]
    assert not [fact for fact in between if isinstance(fact, RunAssigned)]
