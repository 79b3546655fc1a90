"""Every role alone, as a platform team runs them: `tenure serve ROLE`, a NATS server and ClickHouse of their own."""

from collections.abc import Iterator

import pytest

from tenure.sdk.client import Client
from tenure.v1.budgets_pb2 import Budget
from tenure.v1.jobs_pb2 import Job, JobSpec
from tests.e2e.roles import Roles
from tests.e2e.system import FINAL


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a gateway behind which one agent speaks for two hosts."""
    with Roles(tmp_path_factory.mktemp("roles"), knobs=["heartbeat=500ms"]) as roles:
        roles.start_deciders()
        roles.start("agent", "--hosts", "2x4")
        yield roles.client()


def over(client: Client, job_id: str) -> Job:
    """The job when it is over."""
    return next(job for job in client.watch(job_id) if job.state in FINAL)


def test_a_gang_goes_through_separate_roles(client: Client) -> None:
    client.set_shares([Budget(path="lab", share_percent=100)], user="ana", merge=False)
    spec = JobSpec(
        budget="lab", gpus_per_replica=4, replicas=2, min_runtime_ms=60_000, command=["/bin/sh", "-c", "echo $RANK"]
    )
    job = over(client, client.submit(spec))
    assert (job.state, len(job.runs[0].hosts)) == ("completed", 2)
    assert b"".join(client.output(job.job_id, replica=1)) == b"1\n"
    kinds = [step.kind for step in client.explain(job.job_id).steps]
    assert kinds[0] == "JobSubmitted" and "RunAssigned" in kinds
