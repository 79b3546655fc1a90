"""Every role alone, as a platform team runs them: `tenure serve ROLE`, a NATS server and ClickHouse of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.sdk.client import Client
from tenure.v1.budgets_pb2 import Budget
from tenure.v1.jobs_pb2 import Job, JobSpec
from tests.e2e.roles import Roles
from tests.e2e.system import FINAL


@pytest.fixture
def roles(tmp_path: Path) -> Iterator[Roles]:
    """All roles; one agent speaks for two hosts."""
    with Roles(tmp_path, knobs=["heartbeat=500ms"]) as roles:
        roles.start_deciders()
        roles.start("agent", "--hosts", "2x4")
        yield roles


def over(client: Client, job_id: str) -> Job:
    """The job when it is over."""
    return next(job for job in client.watch(job_id) if job.state in FINAL)


def test_a_gang_goes_through_separate_roles(roles: Roles) -> None:
    client = roles.client()
    client.set_shares([Budget(path="lab", share_percent=100)], user="ana", merge=False)
    spec = JobSpec(
        budget="lab", gpus_per_replica=4, replicas=2, min_runtime_ms=60_000, command=["/bin/sh", "-c", "echo $RANK"]
    )
    job = over(client, client.submit(spec))
    assert (job.state, len(job.runs[0].hosts)) == ("completed", 2)
    assert b"".join(client.output(job.job_id, replica=1)) == b"1\n"

    def whole_story() -> list[str] | None:
        story = client.explain(job.job_id)
        return [step.kind for step in story.steps] if story.position >= story.last_position else None

    kinds = roles.until(whole_story, what="the whole story")
    assert kinds[0] == "JobSubmitted" and "RunAssigned" in kinds
