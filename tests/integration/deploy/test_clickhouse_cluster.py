"""The replicated schema on three real ClickHouse servers, by the file that is shipped: exactly once, whoever is away.

Skipped where no Docker engine answers. What one engine can say of it: `tests/contract/test_clickhouse_replicated.py`.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import cast

import pytest
from clickhouse_connect.driver import Client
from clickhouse_connect.driver.exceptions import ClickHouseError
from docker import from_env
from docker.errors import DockerException
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network
from testcontainers.core.wait_strategies import HttpWaitStrategy

from services.journal.writer import Overtaken, Writer
from tenure.clickhouse.connect import connect
from tenure.clickhouse.migrate import migrate
from tests.contract.test_clickhouse_schema import batches
from tests.contract.test_journal_writer import Killed, Mortal, check_totals, inserts_of, lab
from tests.integration.deploy.conftest import ROOT
from tests.unit.journal.facts import Story

NAMES = ("clickhouse-1", "clickhouse-2", "clickhouse-3")
CLUSTER = "tenure"
PATIENCE_S = 180.0

Servers = list[tuple[DockerContainer, Callable[[], Client]]]


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    """Three servers that found each other, each with a way to reach it."""
    try:
        from_env().ping()
    except DockerException as error:
        pytest.skip(f"needs a Docker engine, and none answers: {error}")
    compose = (ROOT / "deploy" / "compose.yaml").read_text()
    (image,) = re.findall(r"\$\{CLICKHOUSE_IMAGE:-([^}]+)\}", compose)
    shipped = (ROOT / "deploy" / "clickhouse-cluster" / "cluster.xml").read_bytes()
    with ExitStack() as stack:
        network = stack.enter_context(Network())
        containers = [
            DockerContainer(
                image,
                env={
                    "CLICKHOUSE_SKIP_USER_SETUP": "1",
                    "CLICKHOUSE_NUMBER": str(number),
                    "CLICKHOUSE_HOST": name,
                    "CLICKHOUSE_SECRET": "of-this-test",
                },
                ports=[8123],
                network=network,
                network_aliases=[name],
                transferables=[(shipped, "/etc/clickhouse-server/config.d/cluster.xml")],
            )
            for number, name in enumerate(NAMES, start=1)
        ]
        for container in containers:  # each waits for another to have a Keeper
            container.start()
            stack.callback(container.stop)
        for container in containers:
            HttpWaitStrategy(8123, "/ping").wait_until_ready(container)
        yield [(each, _reach(f"http://127.0.0.1:{each.get_exposed_port(8123)}")) for each in containers]


def _reach(url: str) -> Callable[[], Client]:
    return lambda: connect(url, answer_timeout_s=60)


def patiently(done: Callable[[], None]) -> None:
    """Do it, again and again while servers come and go, as the journal does."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return done()
        except (ClickHouseError, OSError, Overtaken):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def finish(client: Client, told: Story) -> None:
    """A journal takes over and writes all that is missing."""
    writer = Writer(client, cluster=CLUSTER)
    after = writer.resume("log")
    for batch in batches(told.recorded[after:], size=5):
        writer.write(batch)


@pytest.mark.timeout(900)
def test_every_fact_counts_once_on_every_server(servers: Servers) -> None:
    """The journal dies at every insert and goes on at another server; then one server is away, and comes back."""
    told = lab()
    reaching = [reach for _, reach in servers]
    patiently(lambda: _none(migrate(reaching[0](), cluster=CLUSTER)))
    assert migrate(reaching[1](), cluster=CLUSTER) == []
    half = Story()
    half.recorded = told.recorded[: len(told.recorded) // 2]
    for dies_at in range(1, 2 * inserts_of(half, size=5)):
        reach = reaching[dies_at % len(reaching)]
        try:
            mortal = Mortal(reach(), dies_at=dies_at, taken=bool(dies_at % 2))
            patiently(lambda mortal=mortal: finish(cast(Client, mortal), half))  # type: ignore[misc]
        except Killed:
            continue
        break
    away = servers[0][0].get_wrapped_container()
    away.kill()
    patiently(lambda: finish(reaching[1](), told))
    patiently(lambda: check_totals(reaching[2](), told))
    away.start()
    back = connect(f"http://127.0.0.1:{servers[0][0].get_exposed_port(8123)}", answer_timeout_s=60)
    for name in ("events", "occupancy", "occupancy_hourly"):
        patiently(lambda name=name: _none(back.command(f"SYSTEM SYNC REPLICA {name}")))  # type: ignore[misc]
    patiently(lambda: check_totals(back, told))


def _none(_: object) -> None:
    return
