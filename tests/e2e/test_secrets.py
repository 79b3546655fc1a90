"""A whole system that has secrets, looked through for them: logs, the log, the database, processes, a job."""

import gzip
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import psutil
import pytest

from tenure.clickhouse.connect import connect
from tenure.log.codec import encode
from tenure.runtime.data_dir import DataDir
from tenure.v1 import jobs_pb2, jobs_pb2_grpc
from tests.e2e.system import TENURE, System, running

FALSE_TOKEN = "eyJhbGciOiJFZERTQSJ9.bWFya2VkLXNlY3JldC10b2tlbg.c2lnbmF0dXJlLW9mLXRoZS10b2tlbg"
"""Looks like a JWT, and is no good one."""


def secrets_of(data: Path) -> dict[str, str]:
    """Every secret of the system by where it came from."""
    files = [*(data / "keys").glob("*.seed"), data / "keys" / "runs.key", data / "run" / "clickhouse.token"]
    files.append(data / "identity" / "key.pem")
    found = {file.name: max(file.read_text().split("\n"), key=len) for file in files}
    assert len(found) > 9 and all(len(secret) > 40 for secret in found.values())
    return {**found, "a false token": FALSE_TOKEN, "its false signature": FALSE_TOKEN.rpartition(".")[2]}


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    """What a call shows for who it is from."""
    return (("authorization", f"Bearer {token}"),)


def told(system: System) -> Iterator[tuple[str, str]]:
    """Everything that a system tells anybody who asks, by where."""
    for file in (system.data / "log").rglob("*"):
        raw = file.read_bytes()
        text = gzip.decompress(raw) if file.suffix == ".gz" else raw
        yield f"log of {file.name}", text.decode(errors="replace")
    yield "what up said", system.output.read_text()
    yield "the log", "\n".join(encode(recorded.fact).decode() for recorded in system.recorded())
    endpoint = DataDir(system.data).endpoint()
    assert endpoint is not None and endpoint.clickhouse_token_file is not None
    client = connect(endpoint.clickhouse, Path(endpoint.clickhouse_token_file))
    tables = client.query(
        "SELECT name FROM system.tables WHERE database = currentDatabase() AND engine LIKE '%MergeTree'"
    ).result_columns[0]
    assert "events" in tables
    for table in tables:
        yield f"table {table}", str(client.query(f"SELECT * FROM {table}").result_rows)
    yield "the endpoint", (system.data / "endpoint.json").read_text()


def command_lines(system: System) -> dict[str, str]:
    """The command lines of a system and of all that came from it."""
    assert system.process is not None
    family = [psutil.Process(system.process.pid), *psutil.Process(system.process.pid).children(recursive=True)]
    names = {process.pid: " ".join(process.cmdline()) for process in family}
    assert len(names) > 8
    return {f"command line of {pid}": line for pid, line in names.items()}


def test_no_secret_is_told(tmp_path: Path) -> None:
    with running(tmp_path) as system:
        make = [str(TENURE), "token", "create", "--user", "tester", "--data", str(system.data)]
        token = subprocess.run(make, capture_output=True, text=True, check=True).stdout.strip()
        look = "env; cat /proc/[0-9]*/cmdline | tr '\\0' ' '"
        job = system.submit("a", ["/bin/sh", "-c", look])
        with grpc.insecure_channel(system.address) as channel:
            stub = jobs_pb2_grpc.JobsStub(channel)
            assert stub.List(jobs_pb2.ListJobsRequest(), metadata=bearer(token)).jobs[0].job_id == job
            with pytest.raises(grpc.RpcError) as refused:
                stub.List(jobs_pb2.ListJobsRequest(), metadata=bearer(FALSE_TOKEN))
        assert system.wait(job).state == "completed"
        steps = "\n".join(step.fact_json for step in system.story_of(job))
        places = {
            **dict(told(system)),
            **command_lines(system),
            "the job": system.output_of(job),
            "its story": steps,
            "a refusal": str(refused.value),
        }
        assert "--nats-key-file" in places["the job"], "the job saw the command lines of the others"
        closed = [system.data, system.data / "keys", system.data / "run", *(system.data / "keys").glob("*.seed")]
        closed += [system.data / "keys" / "runs.key", system.data / "run" / "clickhouse.token"]
        assert [path for path in closed if path.stat().st_mode & 0o077] == []
        secrets = {**secrets_of(system.data), "token": token, "its signature": token.rpartition(".")[2]}
        for name, secret in secrets.items():
            assert not [where for where, text in places.items() if secret in text], f"{name} is told"
