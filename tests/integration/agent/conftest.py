"""A host of real processes for one test: its replicas, what they say, and a clean end whatever happened."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from services.agent.log_clock import LogClock
from services.agent.process.launcher_client import LauncherClient
from services.agent.process.proc import read_stat
from services.agent.process.replicas import Replicas
from services.agent.process.spec import Launched, LaunchFailed, LaunchSpec, ReplicaExit
from tenure.domain.ids import JobId, RunId
from tenure.domain.units import Millis

PATIENCE_S = 20.0
"""No test needs so long; one that does has found something."""


def wall_clock() -> Millis:
    return time.time_ns() // 1_000_000


class RealHost:
    """An agent's lower half on a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {"PATH": "/usr/bin:/bin", "HOME": str(directory)}
        self.exits: list[ReplicaExit] = []
        self.launcher = LauncherClient()
        self.replicas = Replicas(
            run_dir=directory / "runs", launcher=self.launcher, on_exit=self.exits.append, clock=LogClock()
        )

    async def launch(
        self,
        *command: str,
        run: str = "j-1.1",
        replica: int = 0,
        grace_ms: Millis = 10_000,
        environment: Mapping[str, str] | None = None,
        working_directory: str | None = None,
        log_keep_bytes: int = 1 << 20,
    ) -> Launched | LaunchFailed:
        return await self.replicas.launch(
            LaunchSpec(
                run=RunId(run),
                job=JobId("j-1"),
                replica=replica,
                command=command,
                environment=self.environment if environment is None else environment,
                gpus=(0, 1),
                grace_ms=grace_ms,
                working_directory=working_directory,
                log_keep_bytes=log_keep_bytes,
            )
        )

    async def start(self, *command: str, run: str = "j-1.1", replica: int = 0) -> Launched:
        launched = await self.launch(*command, run=run, replica=replica)
        assert isinstance(launched, Launched), launched
        return launched

    async def stop(self, run: str = "j-1.1", *, replica: int = 0, grace_ms: Millis = 10_000) -> bool:
        return await self.replicas.stop(run=RunId(run), replica=replica, grace_ms=grace_ms)

    async def exit_of(self, run: str = "j-1.1", *, replica: int = 0) -> ReplicaExit:
        """Wait for the replica's end."""
        await until(lambda: any((end.run, end.replica) == (run, replica) for end in self.exits))
        return next(end for end in self.exits if (end.run, end.replica) == (run, replica))

    def text(self, run: str = "j-1.1", *, replica: int = 0, stream: str = "stdout") -> str:
        chunk = self.replicas.read_log(run=RunId(run), replica=replica, stream=stream, offset=0, limit=1 << 20)
        return chunk.data.decode()

    async def said(self, text: str, run: str = "j-1.1", *, replica: int = 0) -> str:
        """Wait until the replica has written `text`; returns all it has written."""
        await until(lambda: text in self.text(run, replica=replica))
        return self.text(run, replica=replica)

    async def end(self) -> None:
        for launched in self.replicas.running():
            await self.replicas.stop(run=launched.run, replica=launched.replica, grace_ms=0)
        await until(lambda: not self.replicas.running())
        self.replicas.close()
        await self.launcher.close()


async def until(happened: Callable[[], bool]) -> None:
    """Poll for a condition of the real world, at most `PATIENCE_S`."""
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.005)


def is_running(pid: int) -> bool:
    stat = read_stat(pid)
    return stat is not None and stat.state != "Z"


Story = Callable[[RealHost], Awaitable[None]]


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Story], None]:
    """Run a test's story on a host; nothing it started is left afterwards."""

    async def _play(story: Story) -> None:
        host = RealHost(tmp_path)
        try:
            await story(host)
        finally:
            host.replicas.close()
            await host.launcher.close()
            rest = RealHost(tmp_path)
            await rest.replicas.adopt()
            await rest.end()

    return lambda story: asyncio.run(_play(story))
