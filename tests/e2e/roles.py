"""Every role as a process of its own (`tenure serve ROLE`), with a NATS server and ClickHouse of their own.

Each role has a folder of its own and knows the others by NATS alone, as where a platform team runs them.
"""

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol, TypeVar

from tenure.events.fact import Recorded
from tenure.runtime.nats_server import NatsServer
from tenure.sdk.client import Client
from tests.contract.own_clickhouse import Server
from tests.e2e.system import TENURE, read_log

T = TypeVar("T")


class LogServer(Protocol):
    """A NATS server, or several that are one cluster."""

    @property
    def url(self) -> str:
        """Where clients connect."""

    def start(self) -> None:
        """Start it, or start it again, and wait until it answers."""

    def stop(self) -> None:
        """End it in order."""


DECIDERS = ("budget", "ranker", "placer", "health", "journal", "gateway")
STOP_S = 20.0


class Roles:
    """A NATS server, ClickHouse, and role processes by name. Use as a context: it ends what it started by pid."""

    def __init__(self, folder: Path, *, knobs: Sequence[str], nats: LogServer | None = None) -> None:
        """`nats`: another server than one of its own on the loopback address."""
        self.folder, self.knobs = folder, knobs
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.nats: LogServer = nats or NatsServer(folder / "nats")
        self.database = Server(data=folder / "clickhouse")
        self._commands: dict[str, tuple[list[str], dict[str, str]]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> "Roles":
        with self._stack:
            self.nats.start()
            self._stack.callback(self.nats.stop)
            self.database.start()
            self._stack.callback(self.database.kill)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def nats_url(self) -> str:
        """Where the log's server answers."""
        return self.nats.url

    @property
    def nats_pid(self) -> int:
        """The process of the log's server."""
        assert isinstance(self.nats, NatsServer), "one server, and our own"
        assert self.nats.pid is not None, "it runs"
        return self.nats.pid

    @property
    def database_pid(self) -> int:
        """The process of ClickHouse."""
        assert self.database.process is not None, "it runs"
        return self.database.process.pid

    def start(
        self,
        role: str,
        *own: str,
        name: str = "",
        environment: Mapping[str, str] | None = None,
        nats_url: str = "",
        inside: Sequence[str] = (),
        status: int = 0,
    ) -> None:
        """Start a role, without waiting for it.

        `environment` is added to the test's own; `nats_url`: how it reaches the log's server, if not as the others do;
        `inside`: what the command is given to, such as `ip netns exec NAME`; `status`: as it ends.
        """
        name = name or role
        nats_url = nats_url or self.nats.url
        command = [*inside, str(TENURE), "serve", role, "--nats", nats_url, "--data", str(self.folder / name), *own]
        command += ["--clickhouse", self.database.url, "--clickhouse-token-file", str(self.database.token_file)]
        command += ["--ready-file", str(self.folder / f"{name}.json")]
        command += [word for knob in self.knobs for word in ("--set", knob)]
        self._commands[name] = command, {**os.environ, **(environment or {})}
        self._stack.callback(self._end, name, status=status)
        self.again(name)

    def start_deciders(self, *, listen: str = "127.0.0.1:0") -> None:
        """All roles but the agent."""
        for role in DECIDERS:
            self.start(role, *(["--listen", listen] if role == "gateway" else []))

    def again(self, name: str) -> None:
        """Start a role that is not running with the arguments it was started with, without waiting for it."""
        command, environment = self._commands[name]
        self.folder.joinpath(f"{name}.json").unlink(missing_ok=True)
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def kill(self, name: str) -> None:
        """kill -9 of a role. `again` starts it again."""
        self.processes[name].kill()
        self.processes[name].wait()

    def _end(self, name: str, *, status: int) -> None:
        """One that was killed and not started again has ended already."""
        if self.processes[name].returncode != -signal.SIGKILL:
            end(self.processes[name], status=status)

    def ready(self, name: str) -> dict[str, object]:
        """What the role's ready file says, once it is there."""
        path, process = self.folder / f"{name}.json", self.processes[name]
        self.until(
            lambda: path.exists() or process.poll() is not None or None, what=f"{name} to be ready", timeout_s=60
        )
        assert process.poll() is None, f"{name} ended: {self.said(name)}"
        return dict(json.loads(path.read_text()))

    def client(self) -> Client:
        """A client of the gateway, when every role is ready."""
        answers = {name: self.ready(name) for name in self.processes}
        client = Client(str(answers["gateway"]["address"]))
        self._stack.callback(client.close)
        return client

    def recorded(self) -> list[Recorded]:
        """The whole log so far."""
        return asyncio.run(read_log(self.nats.url, "tenure"))

    def said(self, name: str) -> str:
        """The end of what a role wrote."""
        return (self.folder / f"{name}.log").read_text(errors="replace")[-2000:]

    def has_said(self, name: str, text: str) -> bool:
        """Whether a role has written this since it was started first."""
        return text in (self.folder / f"{name}.log").read_text(errors="replace")

    def until(self, probe: Callable[[], T | None], *, what: str, timeout_s: float = 30) -> T:
        """The first answer of `probe` that is not None. Fails with what every role said when time is up."""
        deadline = time.monotonic() + timeout_s
        while (answer := probe()) is None:
            if time.monotonic() > deadline:
                said = "\n".join(f"-- {name}:\n{self.said(name)}" for name in self.processes)
                raise AssertionError(f"waited {timeout_s} s for {what} in vain\n{said}")
            time.sleep(0.02)
        return answer


def end(process: "subprocess.Popen[bytes]", *, status: int = 0) -> None:
    """SIGTERM, to one that is suspended too; a role ends in order, with `status`. Killed if it does not end."""
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    try:
        assert process.wait(timeout=STOP_S) == status
    finally:
        process.kill()
        process.wait()
