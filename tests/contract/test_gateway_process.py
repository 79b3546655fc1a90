"""The gateway as a process on a real log: it starts, answers, stops in time, and starts again where it was."""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from tenure.runtime.nats_server import NatsServer
from tenure.v1 import jobs_pb2, jobs_pb2_grpc
from tests.contract.conftest import JetStreamUnderTest
from tests.contract.gateway_rig import Rig, good_job, play

READY_S = 20.0


class GatewayProcess:
    """`python -m services gateway`, which its test may kill."""

    def __init__(self, server: NatsServer, *, cluster: str, data: Path) -> None:
        self.ready = data / "ready.json"
        self.command = [sys.executable, "-m", "services", "gateway", "--nats", server.url, "--cluster", cluster]
        self.command += ["--data", str(data), "--ready-file", str(self.ready)]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, listen: str = "127.0.0.1:0") -> str:
        self.ready.unlink(missing_ok=True)
        self.process = subprocess.Popen([*self.command, "--listen", listen], stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + READY_S
        while not self.ready.exists():
            assert self.process.poll() is None, "the gateway ended while it was starting"
            assert time.monotonic() < deadline, "the gateway does not become ready"
            time.sleep(0.01)
        details = json.loads(self.ready.read_text())
        assert details["pid"] == self.process.pid
        address: str = details["address"]
        return address

    def end(self, number: int) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(10)


@pytest.fixture
def gateway(nats_server: NatsServer, tmp_path: Path) -> Iterator[GatewayProcess]:
    """A gateway on a log that knows a small cluster."""
    under_test = JetStreamUnderTest(nats_server)

    async def scenario(rig: Rig) -> None:
        assert rig.loop.state.hosts

    play(under_test, scenario)
    process = GatewayProcess(nats_server, cluster=under_test.cluster, data=tmp_path)
    yield process
    if process.process is not None and process.process.poll() is None:
        process.end(signal.SIGKILL)


def submit(address: str, key: str) -> str:
    with grpc.insecure_channel(address) as channel:
        request = jobs_pb2.SubmitRequest(job=good_job(), idempotency_key=key)
        job: str = jobs_pb2_grpc.JobsStub(channel).Submit(request, timeout=10).job_id
        return job


def test_it_stops_within_two_seconds_and_goes_on_from_its_snapshot(gateway: GatewayProcess) -> None:
    address = gateway.start()
    job = submit(address, "k")
    with grpc.insecure_channel(address) as channel:
        watch = iter(jobs_pb2_grpc.JobsStub(channel).Watch(jobs_pb2.WatchJobRequest(job_id=job)))
        assert next(watch).job.state == "submitted"
        began = time.monotonic()
        assert gateway.end(signal.SIGTERM) == 0
        assert time.monotonic() - began < 2.0
        with pytest.raises(grpc.RpcError) as caught:
            next(watch)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert (gateway.ready.parent / "snapshots" / "gateway.snapshot").exists()
    assert submit(gateway.start(), "k") == job


def test_what_was_acknowledged_is_there_after_a_kill(gateway: GatewayProcess) -> None:
    job = submit(gateway.start(), "k")
    gateway.end(signal.SIGKILL)
    address = gateway.start()
    assert submit(address, "k") == job
    with grpc.insecure_channel(address) as channel:
        answer = jobs_pb2_grpc.JobsStub(channel).List(jobs_pb2.ListJobsRequest(), timeout=10)
    assert [each.job_id for each in answer.jobs] == [job]


@pytest.mark.parametrize("listen", ["busy", "nowhere", "127.0.0.1:", "127.0.0.1:99999", "192.0.2.1:5005"])
def test_an_unusable_address_is_said_in_one_line(gateway: GatewayProcess, listen: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}" if listen == "busy" else listen
        ended = subprocess.run(
            [*gateway.command, "--listen", address], capture_output=True, text=True, timeout=20, check=False
        )
    assert ended.returncode == 1
    lines = [line for line in ended.stderr.splitlines() if line.startswith("tenure serve gateway:")]
    assert len(lines) == 1, ended.stderr
    assert "--listen" in lines[0]
    assert "Traceback" not in ended.stderr
