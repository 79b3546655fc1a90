"""The clickhouse role as a process of its own, for tests that need the real engine."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import clickhouse_connect
from clickhouse_connect.driver.client import Client

ROOT = Path(__file__).parents[2]
DEADLINE_S = 30.0


def wait_until(condition, what: str, timeout_s: float = DEADLINE_S):
    """The first true value of `condition()`; fails when it stays false."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.01)
    return value


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A response to a raw request."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> int:
        """The exception's code, 0 if there is none."""
        return int(self.headers.get("X-ClickHouse-Exception-Code", 0))


class ClickHouseRole:
    """A started role. `kill` and `stop` end it, `start` starts one anew on the same data."""

    def __init__(self, data: Path, *arguments: str) -> None:
        self.data = data
        self.arguments = arguments
        self.ready_file = data.parent / f"{data.name}.ready.json"
        self.stderr = data.parent / f"{data.name}.stderr"
        self.start()

    def start(self) -> None:
        """Start, and wait until it is ready."""
        self.ready_file.unlink(missing_ok=True)
        self.process = run_role(self.data, self.stderr, "--ready-file", str(self.ready_file), *self.arguments)
        wait_until(lambda: self.ready_file.exists() or self.process.poll() is not None, "ready file")
        assert self.process.poll() is None, self.stderr.read_text()
        ready = json.loads(self.ready_file.read_text())
        assert ready["pid"] == self.process.pid
        self.host, self.port = ready["host"], ready["port"]
        self.token = (self.data / "token").read_text()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to end; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)

    def kill(self) -> None:
        """kill -9."""
        self.stop(signal.SIGKILL)

    def client(self, **changes) -> Client:
        """The client that every role has."""
        options = {"password": self.token, "username": "tenure", "database": "tenure", **changes}
        return clickhouse_connect.get_client(
            host=self.host, port=self.port, autogenerate_session_id=False, query_retries=0, **options
        )

    def ask(
        self, statement: bytes | str = b"", *, method="POST", path="/", headers=None, token=None, **params
    ) -> Answer:
        """One raw request on a connection of its own."""
        body = statement.encode() if isinstance(statement, str) else statement
        connection = http.client.HTTPConnection(self.host, self.port, timeout=DEADLINE_S)
        try:
            sent = {"X-ClickHouse-Key": self.token if token is None else token, **(headers or {})}
            connection.request(method, path + ("?" + urlencode(params) if params else ""), body=body, headers=sent)
            response = connection.getresponse()
            return Answer(status=response.status, headers=dict(response.getheaders()), body=response.read())
        finally:
            connection.close()


def run_role(data: Path, stderr: Path, *arguments: str) -> subprocess.Popen:
    """The role's command line, started."""
    command = [sys.executable, "-m", "services.clickhouse", "--data", str(data), *arguments]
    with stderr.open("w") as file:
        return subprocess.Popen(command, cwd=ROOT, stderr=file, env={**os.environ, "PYTHONPATH": str(ROOT)})
