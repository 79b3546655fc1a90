"""Two processes of each role that decides: when the leader is killed, suspended or stopped, the other goes on.

The measure is the whole path: a job that is submitted after the leader is gone runs on a host.
"""

import asyncio
import signal
import time
from collections.abc import Iterator

import pytest

from tenure.events.catalogue import KINDS
from tenure.events.leading import (
    BudgetLeadTaken,
    HealthLeadTaken,
    LeadTaken,
    PlacerLeadTaken,
    RankerLeadTaken,
)
from tenure.log.access import Access
from tenure.runtime.nats_server import NatsServer
from tenure.sdk.client import Client
from tests.checks.invariants import check_log
from tests.e2e.system import read_log
from tests.integration.ha.pairs import Pairs, one_gpu

TAKEOVER_S = 10.0
AT_ONCE_S = 4.0
"""Less than a lease lasts, with some room for a busy machine."""
LEADS: dict[str, type[LeadTaken]] = {
    "budget": BudgetLeadTaken,
    "ranker": RankerLeadTaken,
    "placer": PlacerLeadTaken,
    "health": HealthLeadTaken,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def pairs(server: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pairs]:
    pairs = Pairs(tmp_path_factory.mktemp("pairs"), lambda _: Access(url=server.url))
    try:
        pairs.start("gateway", "--listen", "127.0.0.1:0")
        pairs.start("agent", "--hosts", "2x8")
        pairs.start_pairs(*LEADS)
        yield pairs
    finally:
        pairs.close()


@pytest.fixture(scope="module")
def client(pairs: Pairs) -> Client:
    client = pairs.client()
    state_is(pairs, client, "healthy")
    works(pairs, client)
    return client


def works(pairs: Pairs, client: Client) -> float:
    """Submit a job and wait until it runs. Returns when it does."""
    job = client.submit(one_gpu("exec sleep 1000"))
    pairs.until(lambda: client.job(job).state == "running" or None, what=f"{job} to run")
    at = time.monotonic()
    client.cancel(job, user="ana")
    return at


def drains(pairs: Pairs, client: Client) -> float:
    """Have a host drained and taken back: what the health role says of it."""
    client.drain("h001", user="ana", comment="test")
    state_is(pairs, client, "drained")
    at = time.monotonic()
    client.resume("h001", user="ana")
    state_is(pairs, client, "healthy")
    return at


def state_is(pairs: Pairs, client: Client, state: str) -> None:
    pairs.until(
        lambda: any(host.host == "h001" and host.state == state for host in client.hosts().hosts) or None,
        what=f"h001 to be {state}",
    )


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])
@pytest.mark.parametrize("role", LEADS)
def test_the_other_takes_over(
    pairs: Pairs, client: Client, server: NatsServer, role: str, number: signal.Signals
) -> None:
    pairs.start_pairs(role)
    first = pairs.until(lambda: pairs.leader(role), what="a leader")
    second = pairs.until(lambda: pairs.follower(role), what="a follower")
    hit_at = pairs.send(first, number)
    took_s = (drains if role == "health" else works)(pairs, client) - hit_at
    assert took_s <= (AT_ONCE_S if number is signal.SIGTERM else TAKEOVER_S)
    assert pairs.lead(second)["leading"]
    if number is signal.SIGSTOP:
        pairs.send(first, signal.SIGCONT)
        pairs.until(lambda: pairs.lead(first).get("leading") is False or None, what=f"{first} to step back")
        assert pairs.follower(role) == first
        works(pairs, client)
    recorded = asyncio.run(read_log(server.url, "pairs"))
    check_log(recorded)
    taken = [entry.fact for entry in recorded if isinstance(entry.fact, LEADS[role])]
    assert taken[-1].holder.endswith(f":{pairs.processes[second].pid}")


def test_every_kind_is_there() -> None:
    assert set(LEADS.values()) == {kind for kind in KINDS.values() if issubclass(kind, LeadTaken)}
