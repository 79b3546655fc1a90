"""Every role alone, as a platform team runs them: `tenure serve ROLE`, a NATS server and ClickHouse of their own."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tenure.runtime.nats_server import NatsServer
from tenure.sdk.client import Client
from tenure.v1.budgets_pb2 import Budget
from tenure.v1.jobs_pb2 import Job, JobSpec
from tests.contract.own_clickhouse import Server
from tests.e2e.system import FINAL, TENURE

ROLES = ("budget", "ranker", "placer", "health", "journal", "agent", "gateway")


def ready(path: Path, process: "subprocess.Popen[bytes]") -> dict[str, object]:
    """What the role's ready file says, once it is there."""
    deadline = time.monotonic() + 30
    while not path.exists():
        assert process.poll() is None, f"{path.stem} ended with status {process.returncode}"
        assert time.monotonic() < deadline, f"{path.stem} is not ready"
        time.sleep(0.02)
    return dict(json.loads(path.read_text()))


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the gateway answers; each role has a folder of its own and knows the others by NATS alone."""
    folder = tmp_path_factory.mktemp("roles")
    with ExitStack() as stack:
        nats = NatsServer(folder / "nats")
        nats.start()
        stack.callback(nats.stop)
        database = Server(data=folder / "clickhouse")
        database.start()
        stack.callback(database.kill)
        answers: dict[str, dict[str, object]] = {}
        for role in ROLES:
            own = {"gateway": ["--listen", "127.0.0.1:0"], "agent": ["--hosts", "2x4"]}.get(role, [])
            command = [str(TENURE), "serve", role, "--nats", nats.url, "--data", str(folder / role), *own]
            command += ["--clickhouse", database.url, "--clickhouse-token-file", str(database.token_file)]
            command += ["--ready-file", str(folder / f"{role}.json"), "--set", "heartbeat=500ms"]
            with (folder / f"{role}.log").open("wb") as log:
                process = subprocess.Popen(command, stdout=log, stderr=log)
            stack.callback(end, process)
            answers[role] = ready(folder / f"{role}.json", process)
        yield str(answers["gateway"]["address"])


def end(process: "subprocess.Popen[bytes]") -> None:
    """SIGTERM; a role ends in order with status 0."""
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 0


def over(client: Client, job_id: str) -> Job:
    """The job when it is over."""
    return next(job for job in client.watch(job_id) if job.state in FINAL)


def test_a_gang_goes_through_separate_roles(address: str) -> None:
    with Client(address) as client:
        client.set_shares([Budget(path="lab", share_percent=100)], user="ana", merge=False)
        spec = JobSpec(
            budget="lab", gpus_per_replica=4, replicas=2, min_runtime_ms=60_000, command=["/bin/sh", "-c", "echo $RANK"]
        )
        job = over(client, client.submit(spec))
        assert (job.state, len(job.runs[0].hosts)) == ("completed", 2)
        assert b"".join(client.output(job.job_id, replica=1)) == b"1\n"
        kinds = [step.kind for step in client.explain(job.job_id).steps]
        assert kinds[0] == "JobSubmitted" and "RunAssigned" in kinds
