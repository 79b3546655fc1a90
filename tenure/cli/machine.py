"""What `tenure up` runs on one machine: every process with its arguments, and the order in which they stop."""

import contextlib
import signal
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tenure.cli.serve import FORECAST, role_command
from tenure.domain.ids import HostId
from tenure.domain.policy import Policy
from tenure.log.access import Access
from tenure.log.create import create
from tenure.log.permissions import AGENT, OPERATOR, READER, agent_of, make_keys, render, seed_file, users
from tenure.log.port import Unavailable
from tenure.log.subjects import Subjects
from tenure.runtime.batch_staging import clean_up, stage_in_memory, stage_when_up
from tenure.runtime.data_dir import DataDir
from tenure.runtime.identity_options import IdentityOptions, certificate_name
from tenure.runtime.nats_server import LOOPBACK, server_command, write_config
from tenure.runtime.run_signing import make_signing_keys
from tenure.runtime.settings.console import OFF
from tenure.runtime.supervisor import ChildSpec
from tenure.runtime.telemetry_options import Address

STOP_ORDER = (
    ("console", "gateway", "forecast"),
    ("budget", "ranker", "placer", "health"),
    ("agent",),
    ("journal",),
    ("clickhouse",),
    ("nats",),
)
"""Nobody asks any more, nobody decides any more, then the jobs are stopped and what is reported of them is kept."""
AGENT_STOP_S = 20 * 60.0
"""The agent waits for its jobs' grace periods, which the policy limits; a second Ctrl-C cuts that short."""
MEASURED = ("gateway", "budget", "ranker", "placer", "health", "agent", "journal", "clickhouse", "forecast", "console")
"""Who answers Prometheus, at ports in this order from the first on."""
LEAVE_JOBS = signal.SIGKILL
"""What ends the agent without ending its jobs."""
CLUSTER = "tenure"
STREAM = Subjects(CLUSTER).stream


NICE = {"forecast": 19, "clickhouse": 15, "console": 15, "journal": 15, "budget": 8, "ranker": 8, "health": 8}
"""Who gives way when processors are short: what is read later before what decides, that before what answers people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where everything listens and what it is told.

    `clickhouse_url` is a server that others look after; empty: the embedded engine at `clickhouse_port`.
    One of `hosts` (`16x8`) and `cluster_file` says which hosts the agent speaks for.
    `policy`: what the roles are started with; `knobs`: what `settings` says of it.
    `unread`: flags of settings that are about another log than the one run here.
    """

    data: DataDir
    listen: str
    nats_port: int
    clickhouse_port: int
    clickhouse_url: str
    clickhouse_token_file: Path | None
    hosts: str
    cluster_file: Path | None
    provider: str
    config: Path | None
    settings: tuple[str, ...]
    policy: Policy
    knobs: Mapping[str, str]
    unread: tuple[str, ...]
    identity: IdentityOptions
    console: str = OFF
    """Where the web console is to answer, or `off`."""
    metrics: Address | None = None
    """Where the first of `MEASURED` answers Prometheus, None: nobody does."""

    @property
    def real_hosts(self) -> tuple[HostId, ...]:
        """This machine, if its own GPUs, or its CPUs, are used: its agent speaks for nothing else."""
        return (HostId(socket.gethostname()),) if self.provider in ("nvidia", "cpus") else ()

    @property
    def reader_key_file(self) -> Path:
        """The key with which tools of this machine may read the log."""
        return seed_file(self.data.keys, READER)

    @property
    def nats_url(self) -> str:
        """The log's server."""
        return f"nats://{LOOPBACK}:{self.nats_port}"

    @property
    def database_url(self) -> str:
        """The ClickHouse that the roles use."""
        return self.clickhouse_url or f"http://{LOOPBACK}:{self.clickhouse_port}"

    @property
    def token_file(self) -> Path | None:
        """Its password."""
        return self.clickhouse_token_file if self.clickhouse_url else self.data.run / "clickhouse.token"

    def children(self) -> Iterator[ChildSpec]:
        """All processes, most wanted first. None needs another to have started: each waits for the log by itself."""
        yield self._nats()
        yield self._role("gateway", "--listen", self.listen)
        if not self.clickhouse_url:
            yield self._clickhouse()
        secret, _ = make_signing_keys(self.data.keys)
        yield self._role("placer", "--run-key-file", str(secret))
        for name in ("ranker", "budget", "health"):
            yield self._role(name)
        yield self._agent()
        yield self._role("journal")
        yield self._role(FORECAST)

    def console_child(self) -> ChildSpec | None:
        """The web console, which is started when the rest works; nothing waits for it. None: it is off."""
        if self.console == OFF:
            return None
        ready_file = self.data.ready_file("console")
        own = ["--data", str(self.data.root), "--cluster", CLUSTER, "--ready-file", str(ready_file)]
        own += ["--console-listen", self.console, "--fall-back", "--address-file", str(self.data.console_file)]
        own += ["--console-gateway", self.listen, "--clickhouse", self.database_url]
        if self.identity.tls_certificate is not None:
            own += ["--console-gateway-tls", "--console-gateway-name", certificate_name(self.identity)]
        if self.identity.tls_ca is not None:
            own += ["--console-gateway-ca", str(self.identity.tls_ca)]
        if self.token_file is not None:
            own += ["--clickhouse-token-file", str(self.token_file)]
        if self.config is not None:
            own += ["--config", str(self.config)]
        for setting in self.settings:
            own += ["--set", setting]
        return ChildSpec(
            name="console",
            command=role_command("console", *own, *self._metrics_of("console")),
            log_file=self.data.log_file("console"),
            ready_file=ready_file,
            nice=NICE["console"],
        )

    def metrics_targets(self) -> dict[str, str]:
        """Where each process answers Prometheus."""
        if self.metrics is None:
            return {}
        left_out = {"clickhouse": bool(self.clickhouse_url), "console": self.console == OFF}
        asked = [name for name in MEASURED if not left_out.get(name)]
        first = self.metrics
        return {name: Address(host=first.host, port=first.port + number).shown for number, name in enumerate(asked)}

    def _metrics_of(self, name: str) -> list[str]:
        """Said where it is off, too: the environment of `up` is that of its children."""
        return ["--metrics-listen", self.metrics_targets().get(name, "")]

    def clean_up(self) -> None:
        """Remove what would be left in memory when all processes have ended."""
        clean_up(self.data.root / "nats" / "store", stream=STREAM)

    def _nats(self) -> ChildSpec:
        folder = self.data.root / "nats"
        config = folder / "nats-server.conf"
        store = folder / "store"
        keys = make_keys(self.data.keys, list(users(self.real_hosts)))
        write_config(
            config, store=store, port=self.nats_port, also=render(keys, cluster=CLUSTER, hosts=self.real_hosts)
        )
        stage_in_memory(store, stream=STREAM)
        return ChildSpec(
            name="nats",
            command=server_command(config),
            log_file=self.data.log_file("nats"),
            role=False,
            on_start=partial(self._look_after_log, store),
        )

    async def _look_after_log(self, store: Path) -> None:
        """What each start of the server needs: its staging folder, and at the first one the log itself."""
        await stage_when_up(store, stream=STREAM, port=self.nats_port)
        operator = Access(url=self.nats_url, client=OPERATOR, seed_file=seed_file(self.data.keys, OPERATOR))
        with contextlib.suppress(Unavailable):  # the roles wait for it, too, and say so
            await create(server=operator, cluster=CLUSTER, replicas=1, max_gib=0)

    def _clickhouse(self) -> ChildSpec:
        own = ["--data", str(self.data.root / "clickhouse"), "--port", str(self.clickhouse_port)]
        own += ["--token-file", str(self.token_file), "--ready-file", str(self.data.ready_file("clickhouse"))]
        own += self._metrics_of("clickhouse")
        return ChildSpec(
            name="clickhouse",
            command=role_command("clickhouse", *own),
            log_file=self.data.log_file("clickhouse"),
            ready_file=self.data.ready_file("clickhouse"),
            stop_s=20.0,
            nice=NICE["clickhouse"],
        )

    def _agent(self) -> ChildSpec:
        """The agent of all this machine's hosts. SIGTERM stops its jobs, a sudden end leaves them to the next agent."""
        hosts = ["--hosts", self.hosts]
        if self.cluster_file is not None:
            hosts = ["--cluster-file", str(self.cluster_file)]
        _, public = make_signing_keys(self.data.keys)
        hosts += ["--run-keys-file", str(public)]
        spec = self._role("agent", *hosts, "--provider", self.provider, "--on-exit", "stop")
        return replace(spec, stop_s=AGENT_STOP_S)

    def _role(self, name: str, *own: str) -> ChildSpec:
        ready_file = self.data.ready_file(name)
        user = agent_of(next(iter(self.real_hosts), None)) if name == AGENT else name
        arguments = ["--nats", self.nats_url, "--nats-key-file", str(seed_file(self.data.keys, user))]
        arguments += ["--cluster", CLUSTER, "--data", str(self.data.root)]
        arguments += ["--clickhouse", self.database_url, "--ready-file", str(ready_file)]
        if self.token_file is not None:
            arguments += ["--clickhouse-token-file", str(self.token_file)]
        for flag in self.unread:
            arguments += [flag, ""]
        if self.config is not None:
            arguments += ["--config", str(self.config)]
        for setting in self.settings:
            arguments += ["--set", setting]
        arguments += self._metrics_of(name)
        return ChildSpec(
            name=name,
            command=role_command(name, *arguments, *own),
            log_file=self.data.log_file(name),
            ready_file=ready_file,
            nice=NICE.get(name, 0),
        )
