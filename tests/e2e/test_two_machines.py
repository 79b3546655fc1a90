"""Two machines are given one host name: the second agent ends with a reason, and each job is started once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.events.reports import HostRegistered
from tenure.v1.budgets_pb2 import Budget
from tenure.v1.jobs_pb2 import JobSpec
from tests.checks.invariants import check_log
from tests.e2e.roles import Roles
from tests.e2e.system import FINAL


@pytest.fixture
def roles(tmp_path: Path) -> Iterator[Roles]:
    with Roles(tmp_path, knobs=["heartbeat=500ms", "suspect_after=5s"]) as roles:
        roles.start_deciders()
        yield roles


def test_the_second_machine_of_a_name_is_refused_and_starts_nothing(roles: Roles, tmp_path: Path) -> None:
    roles.start("agent", "--hosts", "1x2")
    client = roles.client()
    client.set_shares([Budget(path="lab", share_percent=100)], user="ana", merge=False)
    command = ["/bin/sh", "-c", 'echo ran >> "$0/ran"; until [ -e "$0/go" ]; do sleep 0.1; done', str(tmp_path)]
    spec = JobSpec(budget="lab", gpus_per_replica=2, replicas=1, min_runtime_ms=60_000, command=command)
    job_id = client.submit(spec)
    roles.until(lambda: client.job(job_id).state == "running" or None, what="the job to run")
    roles.start("agent", "--hosts", "1x2", name="another", status=1)
    status = roles.until(lambda: roles.processes["another"].poll(), what="the second agent to end")
    assert status == 1
    assert "speaks for h000; give this one another name" in roles.said("another")
    (tmp_path / "go").touch()
    job = next(job for job in client.watch(job_id) if job.state in FINAL)
    assert job.state == "completed" and (tmp_path / "ran").read_text() == "ran\n"
    recorded = roles.recorded()
    check_log(recorded)
    assert sum(isinstance(entry.fact, HostRegistered) for entry in recorded) == 1
    assert client.hosts().hosts[0].state == "healthy"
