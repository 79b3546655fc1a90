"""Every role exactly as its container or unit starts it, with keys, TLS and certificates, runs a job."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from services.__main__ import SERVED
from tenure.v1.budgets_pb2 import Budget
from tenure.v1.jobs_pb2 import JobSpec
from tests.e2e import shipped_chart, shipped_compose, shipped_units
from tests.e2e.deployed import Deployed, Process, make_secrets
from tests.e2e.system import FINAL

Form = tuple[Callable[[Path], list[Process]], Callable[[Path], Process]]
SHIPPED: dict[str, Form] = {
    "compose": (shipped_compose.processes, shipped_compose.maker_of_the_log),
    "chart": (shipped_chart.processes, shipped_chart.maker_of_the_log),
    "systemd": (shipped_units.processes, shipped_compose.maker_of_the_log),
}
"""What each form of shipping starts: the roles, and what makes the log before them."""


@pytest.mark.parametrize("form", SHIPPED)
def test_every_role_starts_as_it_is_shipped_and_a_job_runs(form: str, tmp_path: Path) -> None:
    secrets = make_secrets(tmp_path / "secrets")
    roles_of, maker_of = SHIPPED[form]
    processes = roles_of(secrets)
    assert sorted(process.name for process in processes) == sorted(set(SERVED) - {"clickhouse"})
    with Deployed(tmp_path, secrets) as deployed:
        deployed.run(maker_of(secrets))
        for process in processes:
            deployed.start(process)
        deployed.wait_until_healthy()
        client = deployed.client()
        assert client.whoami().user == "admin"
        client.set_shares([Budget(path="lab", share_percent=100)], user="admin", merge=False)
        command = ["/bin/sh", "-c", "echo $RANK"]
        spec = JobSpec(budget="lab", gpus_per_replica=8, replicas=2, min_runtime_ms=60_000, command=command)
        console = deployed.console("/health")
        assert json.loads(console) == {"gateway": "serving"}
        assert b"Paste a token" in deployed.console("/")
        job = next(job for job in client.watch(client.submit(spec)) if job.state in FINAL)
        assert (job.state, len(job.runs[0].hosts)) == ("completed", 2), job
        assert b"".join(client.output(job.job_id, replica=1)) == b"1\n"
