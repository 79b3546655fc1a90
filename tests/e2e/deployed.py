"""Processes as their container or unit starts them: command, environment, files, health checks; only places differ.

Process    one container or unit, read out of what is shipped (shipped_compose, shipped_chart, shipped_units)
Deployed   a NATS server with the shipped users and TLS, ClickHouse, and the processes with their own files
"""

import contextlib
import itertools
import os
import random
import re
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tenure.runtime.nats_server import find_nats_server, is_listening
from tenure.sdk.client import Client
from tenure.sdk.credentials import Credentials
from tests.contract.clickhouse_role import wait_until
from tests.contract.own_clickhouse import Server
from tests.e2e.roles import end

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PLACES = ("/etc/tenure", "/run/secrets", "/run/keys", "/run/tenure", "/var/lib/tenure")
"""Folders inside a container, or of a host, that a test has elsewhere for each process."""
READY_S, HEALTHY_S = 60.0, 30.0


@dataclass(frozen=True, kw_only=True)
class Process:
    """One container or unit. `files`: what it is given, by path, with `mode`; `before`: what runs first; `health`: its
    checks.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    files: Mapping[str, bytes]
    health: Sequence[Sequence[str]]
    before: Sequence[Sequence[str]] = field(default=())
    mode: int = 0o600


PORTS = (20_000, 32_000)
"""Below those that Linux gives to connections: a process here listens some time after its port was found free."""
_candidates = itertools.islice(itertools.cycle(range(*PORTS)), random.randrange(PORTS[1] - PORTS[0]), None)
"""Each in turn, from anywhere on: none is given twice, and two workers hardly meet."""


def free_port() -> int:
    """A port that nobody listens at just now, of those that no connection of another test is given meanwhile."""
    for port in _candidates:
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("they come round again")


def make_secrets(folder: Path, *more: str) -> Path:
    """What the shipped script makes: keys and certificates."""
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    command = ["sh", str(ROOT / "deploy" / "secrets.sh"), str(folder), *more]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


class Deployed:
    """Use as a context: it ends what it started by pid."""

    def __init__(self, folder: Path, secrets: Path) -> None:
        """`secrets`: the folder that the shipped script has filled."""
        self.folder, self.secrets = folder, secrets
        self.nats_port, self.gateway_port, self.console_port = free_port(), free_port(), free_port()
        self.database = Server(data=folder / "clickhouse")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._health: dict[str, list[tuple[list[str], dict[str, str]]]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with self._stack:
            self.database.start()
            self._stack.callback(self.database.kill)
            self._start_nats()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, process: Process) -> None:
        """Run one that ends by itself, in order."""
        command, environment = self._prepare(process)
        subprocess.run(command, env=environment, check=True, timeout=READY_S)

    def start(self, process: Process) -> None:
        """Start it, without waiting for it."""
        command, environment = self._prepare(process)
        with (self.folder / process.name / "log").open("wb") as log:
            started = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        self._stack.callback(end, started)
        self.processes[process.name] = started

    def _prepare(self, process: Process) -> tuple[list[str], dict[str, str]]:
        """Its command and environment, when its own files are there and what runs before it has run."""
        home = self.folder / process.name
        home.mkdir()
        metrics = free_port()
        for name, content in process.files.items():
            path = Path(self._placed(name, home, metrics))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self._content(name, content, home, metrics))
            path.chmod(process.mode)
        for place in PLACES:
            Path(self._placed(place, home, metrics)).mkdir(parents=True, exist_ok=True)
        said = {name: self._placed(value, home, metrics) for name, value in process.environment.items()}
        environment = {"PATH": f"{BIN}:/usr/bin:/bin", "PYTHONPATH": str(ROOT), **said}
        for command in process.before:
            subprocess.run(self._all_placed(command, home, metrics), env=environment, check=True)
        self._health[process.name] = [(self._all_placed(check, home, metrics), environment) for check in process.health]
        return self._all_placed(process.command, home, metrics), environment

    def healthy(self, name: str) -> bool:
        """Whether every health check of a process passes. Fails if the process has ended."""
        assert self.processes[name].poll() is None, f"{name} ended: {self.said(name)}"
        return all(
            subprocess.run(command, env=environment, capture_output=True, timeout=HEALTHY_S, check=False).returncode
            == 0
            for command, environment in self._health[name]
        )

    def wait_until_healthy(self) -> None:
        """Until every check of every process passes."""
        for name in self.processes:
            try:
                wait_until(lambda name=name: self.healthy(name), f"{name} to be healthy", READY_S)
            except AssertionError as error:
                raise AssertionError(f"{error}\n{self.said(name)}") from error

    def client(self) -> Client:
        """A client of the gateway that shows the admin's certificate."""
        credentials = Credentials(
            tls=True,
            ca=self.secrets / "ca.crt",
            certificate=self.secrets / "admin.crt",
            key=self.secrets / "admin.key",
        )
        client = Client(f"127.0.0.1:{self.gateway_port}", credentials=credentials)
        self._stack.callback(client.close)
        return client

    def console(self, path: str) -> bytes:
        """What the console answers by https, checked against the authority."""
        trusted = ssl.create_default_context(cafile=str(self.secrets / "ca.crt"))
        with urllib.request.urlopen(
            f"https://127.0.0.1:{self.console_port}{path}", context=trusted, timeout=30
        ) as found:
            content: bytes = found.read()
        return content

    def said(self, name: str) -> str:
        """The end of what a process wrote."""
        return (self.folder / name / "log").read_text(errors="replace")[-2000:]

    def _start_nats(self) -> None:
        home = self.folder / "nats"
        home.mkdir()
        text = (ROOT / "deploy" / "compose" / "nats.conf").read_text()
        for shipped, ours in (
            ("0.0.0.0:4222", f"127.0.0.1:{self.nats_port}"),
            ("0.0.0.0:8222", "127.0.0.1:-1"),
            ('"/data"', f'"{home / "store"}"'),
            ("/run/secrets", str(self.secrets)),
        ):
            assert shipped in text, f"{shipped} is no longer in the shipped configuration"
            text = text.replace(shipped, ours)
        (home / "users.conf").write_bytes((self.secrets / "users.conf").read_bytes())
        (home / "nats.conf").write_text(text)
        command = [sys.executable, "-m", "tenure.runtime.orphan", str(os.getpid()), "9"]
        with (home / "log").open("wb") as log:
            server = subprocess.Popen(
                [*command, str(find_nats_server()), "--config", str(home / "nats.conf")], stdout=log, stderr=log
            )
        self._stack.callback(server.wait)
        self._stack.callback(server.kill)
        wait_until(lambda: is_listening(self.nats_port), "the log's server", READY_S)

    def _content(self, name: str, content: bytes, home: Path, metrics: int) -> bytes:
        if name.endswith("clickhouse-password"):
            assert self.database.token_file is not None, "a server of our own"
            return self.database.token_file.read_bytes()
        return self._placed(content.decode(), home, metrics).encode() if name.endswith(".yaml") else content

    def _all_placed(self, command: Sequence[str], home: Path, metrics: int) -> list[str]:
        return [self._placed(word, home, metrics) for word in command]

    def _placed(self, text: str, home: Path, metrics: int) -> str:
        """The text with the test's folders, servers and ports."""
        for place in PLACES:
            text = text.replace(place + "/", f"{home}/inside{place}/").replace(f"{place} ", f"{home}/inside{place} ")
            text = f"{home}/inside{place}" if text == place else text
        for shipped, ours in (
            ("tls://nats:4222", f"tls://127.0.0.1:{self.nats_port}"),
            ("http://tenure@clickhouse:8123/tenure", self.database.url),
            ("0.0.0.0:7733", f"127.0.0.1:{self.gateway_port}"),
            ("127.0.0.1:7733", f"127.0.0.1:{self.gateway_port}"),
            ("0.0.0.0:7734", f"127.0.0.1:{self.console_port}"),
            ("tenure-gateway:7733", f"127.0.0.1:{self.gateway_port}"),
            ("gateway:7733", f"127.0.0.1:{self.gateway_port}"),
            ("0.0.0.0:9464", f"127.0.0.1:{metrics}"),
            ("http://otel-collector:4317", f"http://127.0.0.1:{self.nats_port}"),
        ):
            text = text.replace(shipped, ours)
        return re.sub(r"\b127\.0\.0\.1:94[67]\d\b", f"127.0.0.1:{metrics}", text)
