"""What `tenure up` runs on one machine: every process with its arguments, and the order in which they stop."""

import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tenure.cli.serve import role_command
from tenure.domain.refusal import Refusal
from tenure.runtime.data_dir import DataDir
from tenure.runtime.supervisor import ChildSpec

DECIDERS = ("budget", "ranker", "placer", "health")
STOP_ORDER = (("gateway",), DECIDERS, ("agent",), ("journal",), ("clickhouse",), ("nats",))
"""Nobody asks any more, nobody decides any more, then the jobs are stopped and what they report is kept."""
AGENT_STOP_S = 20 * 60.0
"""The agent waits for its jobs' grace periods, which policy limits; a second Ctrl-C cuts that short."""
CLUSTER = "tenure"
DEFAULT_PORT = 7733
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where everything listens and what it is told. `clickhouse_url` names a server of its own if `own_clickhouse`."""

    data: DataDir
    listen: str
    nats_port: int
    clickhouse_url: str
    clickhouse_token_file: Path | None
    own_clickhouse: bool
    hosts: str | None
    cluster_file: Path | None
    provider: str
    config: Path | None
    settings: tuple[str, ...]

    @property
    def nats_url(self) -> str:
        """The log's server."""
        return f"nats://{LOOPBACK}:{self.nats_port}"

    def children(self) -> Iterator[ChildSpec]:
        """All processes, in the order in which they are worth starting; none waits for another one."""
        yield self._nats()
        yield self._role("gateway", "--listen", self.listen)
        if self.own_clickhouse:
            yield self._clickhouse()
        for name in ("placer", "ranker", "budget", "health"):
            yield self._role(name)
        yield self._agent()
        yield self._role("journal")

    def _role(self, name: str, *own: str, data: Path | None = None) -> ChildSpec:
        arguments = ["--nats", self.nats_url, "--cluster", CLUSTER, "--data", str(data or self.data.root)]
        arguments += ["--clickhouse", self.clickhouse_url, "--ready-file", str(self.data.ready_file(name))]
        if self.clickhouse_token_file is not None:
            arguments += ["--clickhouse-token-file", str(self.clickhouse_token_file)]
        if self.config is not None:
            arguments += ["--config", str(self.config)]
        for setting in self.settings:
            arguments += ["--set", setting]
        return ChildSpec(
            name=name,
            command=role_command(name, *arguments, *own),
            log_file=self.data.log_file(name),
            ready_file=self.data.ready_file(name),
        )
