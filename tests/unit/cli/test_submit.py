"""`tenure submit`: what goes over the wire, what comes out, and what is a usage error."""

import getpass
import os
from pathlib import Path

import grpc
import pytest

from tenure.v1 import jobs_pb2
from tests.unit.cli.canned import Canned
from tests.unit.cli.conftest import Run

BASE = ("submit", "--budget", "science/chem", "--min-runtime", "15m")


def test_the_id_is_alone_on_stdout(tenure: Run) -> None:
    result = tenure(*BASE, "--gpus", "8", "--", "true")
    assert (result.status, result.out, result.err) == (0, "j1\n", "")


def test_every_option_reaches_the_gateway(tenure: Run, gateway: Canned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_OF_MINE", "xyz")
    tenure(
        *BASE,
        *("--gpus", "8", "--replicas", "4", "--resumable", "--priority", "-1", "--name", "fold"),
        *(
            "--gpu-type",
            "H100",
            "--topology",
            "one-block",
            "--grace",
            "45s",
            "--env",
            "A=1=2",
            "--env",
            "TOKEN_OF_MINE",
        ),
        *("--host", "h001,h002", "--host", "h003", "--exclude-host", "h009, h010"),
        *("--workdir", "/data", "--idempotency-key", "k1", "--user", "ana"),
        *("--", "torchrun", "--nnodes=4", "train.py", "--gpus", "9"),
    )
    request = gateway.last(jobs_pb2.SubmitRequest)
    assert request.idempotency_key == "k1"
    assert request.job == jobs_pb2.JobSpec(
        budget="science/chem",
        user="ana",
        replicas=4,
        gpus_per_replica=8,
        min_runtime_ms=15 * 60_000,
        resumable=True,
        priority=-1,
        name="fold",
        gpu_type="H100",
        topology="one-block",
        command=["torchrun", "--nnodes=4", "train.py", "--gpus", "9"],
        working_directory="/data",
        environment={"A": "1=2", "TOKEN_OF_MINE": "xyz"},
        grace_ms=45_000,
        hosts=["h001", "h002", "h003"],
        hosts_excluded=["h009", "h010"],
    )


def test_defaults_are_one_replica_of_the_caller_here(tenure: Run, gateway: Canned) -> None:
    tenure(*BASE, "--gpus", "1", "true")
    request = gateway.last(jobs_pb2.SubmitRequest)
    assert (request.job.replicas, request.job.user) == (1, getpass.getuser())
    assert Path(request.job.working_directory).samefile(".")
    assert not request.job.environment


def test_a_key_is_made_up_so_that_a_retry_is_safe(tenure: Run, gateway: Canned) -> None:
    tenure(*BASE, "--gpus", "1", "true")
    tenure(*BASE, "--gpus", "1", "true")
    keys = [request.idempotency_key for request in gateway.requests]
    assert len(set(keys)) == 2 and all(len(key) == 32 for key in keys)


def test_many_are_submitted_in_one_batch(tenure: Run, gateway: Canned) -> None:
    result = tenure(*BASE, "--gpus", "1", "--count", "300", "--", "true")
    assert result.out.split() == [f"j{n}" for n in range(300)]
    assert len(gateway.last(jobs_pb2.SubmitBatchRequest).jobs) == 300


@pytest.mark.parametrize("gpus", ["nan", "1.5", "x", "", "1e3", str(2**70)])
def test_what_is_no_whole_number_is_a_usage_error(tenure: Run, gateway: Canned, gpus: str) -> None:
    result = tenure(*BASE, "--gpus", gpus, "--", "true")
    assert result.status == 2
    assert "--gpus" in result.err and len(result.err.splitlines()) == 1
    assert not gateway.requests


def test_numbers_out_of_reason_are_the_gateway_s_to_refuse(tenure: Run, gateway: Canned) -> None:
    gateway.refusals["Submit"] = (grpc.StatusCode.INVALID_ARGUMENT, "gpus_per_replica: -1; give 1 to 16")
    for gpus in ("-1", str(2**62)):
        result = tenure(*BASE, f"--gpus={gpus}", "--", "true")
        assert (result.status, result.out) == (1, "")
        assert result.err == "tenure: gpus_per_replica: -1; give 1 to 16\n"
        assert gateway.last(jobs_pb2.SubmitRequest).job.gpus_per_replica == int(gpus)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--gpus", "1", "--min-runtime", "5 parsecs", "--budget", "a", "true"), "--min-runtime"),
        (("--gpus", "1", "--min-runtime", "-5m", "--budget", "a", "true"), "--min-runtime"),
        (("--gpus", "1", "--budget", "a", "true"), "--min-runtime"),
        (("--gpus", "1", "--min-runtime", "5m", "true"), "--budget"),
        (("--gpus", "1", "--min-runtime", "5m", "--budget", "a"), "CMD"),
        (("--gpus", "1", "--min-runtime", "5m", "--budget", "a", "--env", "=x", "true"), "--env"),
        (("--gpus", "1", "--min-runtime", "5m", "--budget", "a", "--count", "10001", "true"), "--count"),
        (("--gpus", "1", "--min-runtime", "5m", "--budget", "a", "--topology", "rack", "true"), "--topology"),
        (("--gpus", "1", "--min-runtime", "5m", "--budget", "a", "--nonsense", "true"), "--nonsense"),
    ],
)
def test_a_usage_error_names_the_option(tenure: Run, gateway: Canned, arguments: tuple[str, ...], named: str) -> None:
    result = tenure("submit", *arguments)
    assert result.status == 2
    assert named in result.err and len(result.err.splitlines()) == 1
    assert not gateway.requests


def test_bytes_that_are_no_text_are_refused(tenure: Run, gateway: Canned) -> None:
    result = tenure(*BASE, "--gpus", "1", "--name", os.fsdecode(b"\xff[red]"), "--", "true")
    assert (result.status, result.out) == (1, "")
    assert result.err == "tenure: '\\udcff[red]' is not UTF-8; what is submitted and shown has to be\n"
    assert not gateway.requests


def test_wait_ends_with_the_job(tenure: Run, gateway: Canned) -> None:
    gateway.jobs = [jobs_pb2.Job(job_id="j1", state="completed")]
    assert tenure(*BASE, "--gpus", "1", "--wait", "--", "true").status == 0


def test_wait_fails_with_the_job_and_says_why(tenure: Run, gateway: Canned) -> None:
    gateway.jobs = [jobs_pb2.Job(job_id="j1", state="failed", why=jobs_pb2.Why(reason="end_failed", rule="P10"))]
    result = tenure(*BASE, "--gpus", "1", "--wait", "--", "false")
    assert (result.status, result.out) == (1, "j1\n")
    assert "j1 ended as failed" in result.err and len(result.err.splitlines()) == 1
