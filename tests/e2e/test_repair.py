"""A GPU falls off the bus while a protected job runs: from the kernel's line to a repaired host, with nobody's help.

Every role is a process of its own. The repair plug is a command; it fails once with "try again", and notes what it
was told. The job goes on elsewhere, its budget gets its time back, and the report says that no person was needed.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.events.budgets import RunCharged
from tenure.events.hosts import HostStateChanged
from tenure.v1.budgets_pb2 import Budget
from tenure.v1.jobs_pb2 import JobSpec
from tests.checks.invariants import check_log
from tests.e2e.roles import Roles
from tests.e2e.system import FINAL

GRAVE = "NVRM: Xid (PCI:0000:0a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
PLUG = """
import json, os, pathlib, sys
told = json.load(sys.stdin)
folder = pathlib.Path(sys.argv[1])
with (folder / "told").open("a") as file:
    print(json.dumps({**told, "env": os.environ["TENURE_KEY"]}), file=file)
if told["step"] == "repair" and len((folder / "told").read_text().splitlines()) == 1:
    sys.exit(75)
print("done:", told["step"])
"""
WORK = 'until [ -e "$0/go" ]; do sleep 0.1; done'


@pytest.fixture
def roles(tmp_path: Path) -> Iterator[Roles]:
    (tmp_path / "plug.py").write_text(PLUG)
    knobs = ["heartbeat=500ms", "suspect_after=3s", f"repair.command={sys.executable} {tmp_path}/plug.py {tmp_path}"]
    with Roles(tmp_path, knobs=knobs) as roles:
        roles.start_deciders()
        yield roles


def test_a_job_that_dies_of_its_gpu_has_not_failed(roles: Roles, tmp_path: Path) -> None:
    """S62: the process is gone before anybody has read of the GPU. Its run is lost with the host, and refunded."""
    (tmp_path / "kmsg").touch()
    sources = ["--set", "signals.kernel=30s", "--set", f"signals.kernel_log={tmp_path}/kmsg"]
    roles.start("agent", "--hosts", "2x2", *sources)
    client = roles.client()
    client.set_shares([Budget(path="lab", share_percent=100)], user="ana", merge=False)
    work = 'if [ "$TENURE_RESUME_COUNT" = 1 ]; then exit 0; fi; sleep 1; echo "$1" >> "$0/kmsg"; exit 1'
    command = ["/bin/sh", "-c", work, str(tmp_path), GRAVE.strip()]
    spec = JobSpec(budget="lab", replicas=1, gpus_per_replica=2, min_runtime_ms=600_000, command=command)
    job_id = client.submit(spec)
    job = next(job for job in client.watch(job_id) if job.state in FINAL)
    assert [(run.state, [held.host for held in run.hosts]) for run in job.runs] == [
        ("host_lost", ["h000"]),
        ("completed", ["h001"]),
    ]
    assert job.state == "completed"
    recorded = roles.recorded()
    check_log(recorded)
    (first,) = [
        entry.fact for entry in recorded if isinstance(entry.fact, RunCharged) and entry.fact.run.endswith(".1")
    ]
    assert first.charged_gpu_ms == 0 < first.refunded_gpu_ms


def test_a_lost_gpu_is_repaired_without_a_person(roles: Roles, tmp_path: Path) -> None:
    (tmp_path / "kmsg").touch()
    sources = ["--set", "signals.kernel=100ms", "--set", f"signals.kernel_log={tmp_path}/kmsg"]
    roles.start("agent", "--hosts", "2x2", *sources)
    client = roles.client()
    client.set_shares([Budget(path="lab", share_percent=100)], user="ana", merge=False)
    spec = JobSpec(
        budget="lab",
        replicas=1,
        gpus_per_replica=2,
        min_runtime_ms=600_000,
        command=["/bin/sh", "-c", WORK, str(tmp_path)],
    )
    job_id = client.submit(spec)
    roles.until(lambda: client.job(job_id).state == "running" or None, what="the job to run")
    with (tmp_path / "kmsg").open("a") as log:
        log.write(GRAVE)
    roles.until(lambda: len(client.job(job_id).runs) == 2 or None, what="the job to go on elsewhere")

    def back() -> bool | None:
        host = client.hosts().hosts[0]
        return (host.comment.startswith("it passed its acceptance test") and host.state == "healthy") or None

    roles.until(back, what="the host to be back", timeout_s=60)
    (tmp_path / "go").touch()
    job = next(job for job in client.watch(job_id) if job.state in FINAL)
    assert job.state == "completed"
    first = job.runs[0]
    assert first.state == "host_lost"
    assert [[held.host for held in run.hosts] for run in job.runs] == [["h000"], ["h001"]]
    recorded = roles.recorded()
    check_log(recorded)
    facts = [entry.fact for entry in recorded]
    states = [fact.state for fact in facts if isinstance(fact, HostStateChanged) and fact.host == "h000"]
    assert states == ["healthy", "draining", "drained", "repairing", "probation", "healthy"]
    (lost,) = [fact for fact in facts if isinstance(fact, RunCharged) and fact.run == first.run_id]
    assert lost.charged_gpu_ms == 0 < lost.refunded_gpu_ms
    told = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]
    assert [each["step"] for each in told] == ["repair", "repair", "test"]
    assert told[0] == told[1] and told[0]["env"] == told[0]["key"], "the same thing, once for each key"
    assert "xid_79" in told[0]["evidence"][0]
    report = client.host_report()
    (incident,) = report.incidents
    assert (incident.ending, incident.reason, report.automatic_share) == ("automatic", "host_signal_fatal", 1)
    assert report.refunded_gpu_ms == lost.refunded_gpu_ms
