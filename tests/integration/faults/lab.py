"""A lab under test: every role as a process of its own, each of which can be killed, paused and started again."""

import os
import random
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tenure.runtime.nats_server import NatsServer
from tenure.sdk.client import Client
from tenure.v1.budgets_pb2 import Budget
from tests.e2e.roles import DECIDERS, LogServer, Roles
from tests.integration.faults.load import GAP_S, Load

KNOBS = ("lookback=10m", "min_runtime_cap=60s", "heartbeat=300ms", "suspect_after=20s", "lost_after=2m")
AGENTS = ("a0", "a1")
HOSTS_EACH, GPUS = 4, 4
TREE = {"a": 40, "b": 40, "c": 20, "c/x": 50, "c/y": 50}


class Lab:
    """The processes, a client, and loads."""

    def __init__(self, roles: Roles, client: Client, address: str) -> None:
        self.roles, self.client, self.address = roles, client, address

    @property
    def victims(self) -> tuple[str, ...]:
        """Every process that can be killed, by name."""
        return ("nats", "clickhouse", *DECIDERS, *AGENTS)

    def load(self, *, seed: int, gap_s: float = GAP_S) -> Load:
        """A load of its own, with its marks in a folder of its own."""
        return Load(self.address, self.roles.folder / f"load{seed}", seed=seed, gap_s=gap_s)

    def kill(self, name: str) -> None:
        """kill -9."""
        if name == "nats":
            assert isinstance(self.roles.nats, NatsServer)
            self.roles.nats.kill()
        elif name == "clickhouse":
            self.roles.database.kill()
        else:
            self.roles.kill(name)

    def again(self, name: str) -> None:
        """Start it again, with what it left on disk."""
        if name == "nats":
            self.roles.nats.start()
        elif name == "clickhouse":
            self.roles.database.start()
        else:
            self.roles.again(name)

    @contextmanager
    def paused(self, name: str) -> Iterator[None]:
        """SIGSTOP for the length of a block."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def pid(self, name: str) -> int:
        """The process of that name."""
        if name == "nats":
            assert isinstance(self.roles.nats, NatsServer) and self.roles.nats.pid is not None
            return self.roles.nats.pid
        if name == "clickhouse":
            assert self.roles.database.process is not None
            return self.roles.database.process.pid
        return self.roles.processes[name].pid


StartAgent = Callable[[Roles, str, Sequence[str]], None]
"""Starts the agent of this name with these arguments."""


def start_near(roles: Roles, name: str, arguments: Sequence[str]) -> None:
    """An agent that reaches the log's server as every role does."""
    roles.start("agent", *arguments, name=name)


@contextmanager
def lab(
    folder: Path,
    *,
    nats: LogServer | None = None,
    knobs: Sequence[str] = KNOBS,
    start_agent: StartAgent = start_near,
) -> Iterator[Lab]:
    """Two agents with `HOSTS_EACH` virtual hosts each, all of them healthy; nothing is left afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    with Roles(folder, knobs=knobs, nats=nats) as roles:
        address = f"127.0.0.1:{free_ports(1)[0]}"
        roles.start_deciders(listen=address)
        for name in AGENTS:
            start_agent(roles, name, ("--cluster-file", str(hosts_of(folder, name)), "--on-exit", "stop"))
        yield ready(roles, address, hosts=len(AGENTS) * HOSTS_EACH)


def ready(roles: Roles, address: str, *, hosts: int) -> Lab:
    """The lab once every role is ready, its tree is set and so many hosts are healthy."""
    client = roles.client()
    top = [Budget(path=path, share_percent=share) for path, share in TREE.items()]
    client.set_shares(top, user="ana", merge=False)

    def all_healthy() -> bool | None:
        found = client.hosts().hosts
        return True if [host.state for host in found] == ["healthy"] * hosts else None

    roles.until(all_healthy, what=f"{hosts} healthy hosts")
    return Lab(roles, client, address)


def hosts_of(folder: Path, agent: str) -> Path:
    """The file with an agent's hosts."""
    file = folder / f"{agent}.yaml"
    rows = [
        f"  - {{name: {agent}-h{number}, gpus: {GPUS}, gpu_type: H100, block: {agent}}}\n"
        for number in range(HOSTS_EACH)
    ]
    file.write_text("hosts:\n" + "".join(rows))
    return file


def free_ports(count: int) -> list[int]:
    """Ports of the loopback address that nobody listens on now."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(probe.getsockname()[1]) for probe in probes]


def shuffled(names: Sequence[str], chance: random.Random) -> list[str]:
    """All of them in another order."""
    return chance.sample(names, len(names))
