"""Roles as processes, two of each, on a log of their own: who leads, and signals to one of them by name."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from tenure.log.access import Access
from tenure.sdk.client import Client
from tenure.v1.budgets_pb2 import Budget
from tenure.v1.jobs_pb2 import JobSpec

T = TypeVar("T")
PATIENCE_S = 60.0
STOP_S = 20.0
CLUSTER = "pairs"
KNOBS = ("heartbeat=500ms", "suspect_after=4s", "lost_after=60s")
COMMAND = (sys.executable, "-m", "services")


class Pairs:
    """Processes by name: `placer` and `placer2` are two of the role placer. Ends what it started, by pid."""

    def __init__(self, folder: Path, access: Callable[[str], Access], *, more: Sequence[str] = ()) -> None:
        """`access`: how a role reaches the log. `more`: arguments of every role."""
        self.folder, self._access, self._more = folder, access, tuple(more)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._clients: list[Client] = []

    def start(self, name: str, *own: str, command: Sequence[str] = COMMAND, data: str = "") -> None:
        """Start a process; its role is its name without digits. `data`: whose folder it works on, if not its own."""
        role = name.rstrip("0123456789")
        self._ready_file(name).unlink(missing_ok=True)
        access = self._access(role)
        arguments = ["--nats", access.url, "--cluster", CLUSTER, "--data", str(self.folder / (data or name))]
        if access.seed_file is not None:
            arguments += ["--nats-key-file", str(access.seed_file)]
        arguments += ["--ready-file", str(self._ready_file(name)), *self._more, *own]
        arguments += [word for knob in KNOBS for word in ("--set", knob)]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen([*command, role, *arguments], stdout=log, stderr=log)

    def start_pairs(self, *roles: str) -> None:
        """Start those two of each role that do not run, and wait until one leads and the other follows."""
        for role in roles:
            for name in (role, f"{role}2"):
                if not self._runs(name):
                    self.start(name)
        for role in roles:
            self.until(lambda role=role: self.follower(role) if self.leader(role) else None, what=f"two of {role}")  # type: ignore[misc]

    def close(self) -> None:
        for client in self._clients:
            client.close()
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)
        for process in self.processes.values():
            try:
                process.wait(STOP_S)
            finally:
                process.kill()
                process.wait()

    def ready(self, name: str) -> dict[str, object] | None:
        """What the present process of this name says of itself; None before it does."""
        try:
            said: dict[str, object] = json.loads(self._ready_file(name).read_text())
        except FileNotFoundError:
            return None
        return said if said["pid"] == self.processes[name].pid else None

    def lead(self, name: str) -> dict[str, object]:
        """Who leads, as this process says; empty before it does."""
        said = (self.ready(name) or {}).get("lead")
        return dict(said) if isinstance(said, dict) else {}

    def leader(self, role: str) -> str | None:
        """Which of the two says that it leads, if only one does."""
        leading = [name for name in (role, f"{role}2") if self._runs(name) and self.lead(name).get("leading")]
        return leading[0] if len(leading) == 1 else None

    def follower(self, role: str) -> str | None:
        """Which of the two says that it follows the other."""
        names = (role, f"{role}2")
        pids = {name: self.processes[name].pid for name in names}
        for name, other in (names, names[::-1]):
            if self._runs(name) and str(self.lead(name).get("leader", "")).endswith(f":{pids[other]}"):
                return name
        return None

    def send(self, name: str, number: signal.Signals) -> float:
        """Send a signal; a killed process is waited for. Returns the instant, by `time.monotonic`."""
        self.processes[name].send_signal(number)
        at = time.monotonic()
        if number is signal.SIGKILL:
            self.processes[name].wait()
        return at

    def said(self, name: str) -> str:
        """What the processes of this name wrote."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def client(self) -> Client:
        """A client of the gateway, whose tree has the budget `lab`."""
        answer = self.until(lambda: self.ready("gateway"), what="the gateway")
        client = Client(str(answer["address"]))
        self._clients.append(client)
        client.set_shares([Budget(path="lab", share_percent=100)], user="ana", merge=False)
        return client

    def until(self, probe: Callable[[], T | None], *, what: str, timeout_s: float = PATIENCE_S) -> T:
        """The first answer of `probe` that is not None. Fails with what every process said when time is up."""
        deadline = time.monotonic() + timeout_s
        while (answer := probe()) is None:
            if time.monotonic() > deadline:
                said = "\n".join(f"-- {name}:\n{self.said(name)[-1500:]}" for name in self.processes)
                raise AssertionError(f"waited {timeout_s} s for {what} in vain\n{said}")
            time.sleep(0.01)
        return answer

    def _runs(self, name: str) -> bool:
        return name in self.processes and self.processes[name].poll() is None

    def _ready_file(self, name: str) -> Path:
        return self.folder / f"{name}.json"


def one_gpu(command: str = "true") -> JobSpec:
    """A job of a GPU."""
    return JobSpec(
        budget="lab", replicas=1, gpus_per_replica=1, min_runtime_ms=60_000, command=["/bin/sh", "-c", command]
    )
