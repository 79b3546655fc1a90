"""Two of each role on three servers: the server that orders the log and the placer that leads are killed at once."""

import asyncio
import signal
import time
from collections.abc import Iterator

import pytest

from tenure.log.create import create
from tenure.log.port import Unavailable
from tests.checks.invariants import check_log
from tests.e2e.system import read_log
from tests.integration.ha.pairs import CLUSTER, Pairs, one_gpu
from tests.integration.log.test_replicated import START_S, Trio, leader

TAKEOVER_S = 20.0
"""The servers need about five seconds for a new leader before anything can be written."""
ROLES = ("budget", "ranker", "placer", "health")


@pytest.fixture
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    trio = Trio(tmp_path_factory.mktemp("trio"), cluster=CLUSTER)
    trio.start()

    async def made() -> None:
        async with asyncio.timeout(START_S):
            while True:
                try:
                    await create(server=trio.access("operator"), cluster=CLUSTER, replicas=3, max_gib=0)
                    return
                except Unavailable:  # the three have not found each other yet
                    await asyncio.sleep(0.2)

    try:
        asyncio.run(made())
        yield trio
    finally:
        for number in range(3):
            trio.kill(number)


@pytest.fixture
def pairs(trio: Trio, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pairs]:
    pairs = Pairs(tmp_path_factory.mktemp("pairs"), trio.access)
    try:
        pairs.start("gateway", "--listen", "127.0.0.1:0")
        pairs.start("agent", "--hosts", "1x4")
        pairs.start_pairs(*ROLES)
        yield pairs
    finally:
        pairs.close()


def test_a_server_and_a_leader_are_lost_at_once(pairs: Pairs, trio: Trio) -> None:
    client = pairs.client()
    pairs.until(lambda: [host.state for host in client.hosts().hosts] == ["healthy"] or None, what="the host")
    before = client.submit(one_gpu("exec sleep 1000"))
    pairs.until(lambda: client.job(before).state == "running" or None, what="a job")
    trio.kill(asyncio.run(leader(trio, CLUSTER)))
    first = pairs.until(lambda: pairs.leader("placer"), what="a leader")
    hit_at = pairs.send(first, signal.SIGKILL)
    later = client.submit(one_gpu("exec sleep 1000"), idempotency_key="later")
    pairs.until(lambda: client.job(later).state == "running" or None, what="the next job")
    assert time.monotonic() - hit_at < TAKEOVER_S
    assert client.job(before).state == "running"
    check_log(asyncio.run(read_log(trio.access("operator"), CLUSTER)))
