"""The logs under test: one in memory, one on a real nats-server that the tests of a session share."""

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from tenure.log.jetstream import JetStreamLog
from tenure.log.memory import MemoryLog
from tenure.log.port import Log
from tenure.runtime.nats_server import NatsServer

TIME_LIMIT_S = 60


class LogUnderTest(Protocol):
    """One log, empty at first, that any number of processes could have opened."""

    async def connect(self) -> Log:
        """Open it once more, as another process would. It is closed when the scenario is over."""

    def run(self, scenario: Callable[[Log], Awaitable[None]]) -> None:
        """Play a scenario on the log."""


class MemoryUnderTest:
    def __init__(self) -> None:
        self.log = MemoryLog()

    async def connect(self) -> Log:
        return self.log

    def run(self, scenario: Callable[[Log], Awaitable[None]]) -> None:
        asyncio.run(asyncio.wait_for(_play(scenario, self.log), TIME_LIMIT_S))


@dataclass(frozen=True)
class GivenServer:
    """A server that runs elsewhere."""

    url: str


class JetStreamUnderTest:
    """A cluster of its own on a server. `options` are those of `JetStreamLog.connect`."""

    _numbers = itertools.count(1)

    def __init__(self, server: NatsServer | GivenServer, **options: object) -> None:
        self.server, self.options = server, {"max_bytes": 64 << 20, **options}
        self.cluster = f"test{next(self._numbers)}"
        self._opened: list[JetStreamLog] = []

    async def connect(self) -> JetStreamLog:
        log = await JetStreamLog.connect(self.server.url, cluster=self.cluster, **self.options)  # type: ignore[arg-type]
        self._opened.append(log)
        return log

    def run(self, scenario: Callable[[JetStreamLog], Awaitable[None]]) -> None:
        async def play() -> None:
            try:
                await scenario(await self.connect())
            finally:
                for log in self._opened:
                    await log.close()

        asyncio.run(asyncio.wait_for(play(), TIME_LIMIT_S))


async def _play(scenario: Callable[[Log], Awaitable[None]], log: Log) -> None:
    await scenario(log)


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer | GivenServer]:
    """A server that nobody stops before the session is over: ours, or the one that `TENURE_TEST_NATS` names."""
    if given := os.environ.get("TENURE_TEST_NATS"):
        yield GivenServer(given)
        return
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def own_nats_server(tmp_path: Path) -> Iterator[NatsServer]:
    """A server that the test may kill."""
    server = NatsServer(tmp_path / "nats")
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=["memory", "jetstream"])
def log_under_test(request: pytest.FixtureRequest) -> LogUnderTest:
    """An empty log of each adapter in turn."""
    if request.param == "memory":
        return MemoryUnderTest()
    return JetStreamUnderTest(request.getfixturevalue("nats_server"))


@pytest.fixture
def jetstream_under_test(nats_server: NatsServer) -> JetStreamUnderTest:
    """An empty log on the session's server."""
    return JetStreamUnderTest(nats_server)
