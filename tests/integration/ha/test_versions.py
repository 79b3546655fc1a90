"""A rolling upgrade on real parts: an older version of three roles runs first, beside the new one, and is then gone."""

import asyncio
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.events.leading import BudgetLeadTaken, PlacerLeadTaken, RankerLeadTaken
from tenure.log.access import Access
from tenure.runtime.nats_server import NatsServer
from tenure.sdk.client import Client
from tests.checks.invariants import check_log
from tests.e2e.system import read_log
from tests.integration.ha.pairs import CLUSTER, Pairs, one_gpu

OLDER = (sys.executable, "-m", "tests.integration.ha.older_role")
LEADS = {"budget": BudgetLeadTaken, "ranker": RankerLeadTaken, "placer": PlacerLeadTaken}


@pytest.fixture
def pairs(server: NatsServer, tmp_path: Path) -> Iterator[Pairs]:
    pairs = Pairs(tmp_path, lambda _: Access(url=server.url))
    try:
        for role in LEADS:
            pairs.start(role, command=OLDER)
        for name in ("gateway", "agent", "health"):
            pairs.start(name, *{"gateway": ["--listen", "127.0.0.1:0"], "agent": ["--hosts", "1x4"]}.get(name, []))
        yield pairs
    finally:
        pairs.close()


def works(pairs: Pairs, client: Client) -> None:
    job = client.submit(one_gpu("exec sleep 1000"))
    pairs.until(lambda: client.job(job).state == "running" or None, what=f"{job} to run")


def test_two_versions_side_by_side(pairs: Pairs, server: NatsServer) -> None:
    client = pairs.client()
    pairs.until(lambda: [host.state for host in client.hosts().hosts] == ["healthy"] or None, what="the host")
    works(pairs, client)  # the older version alone
    for role in LEADS:
        pairs.start(f"{role}2")
    for role in LEADS:
        pairs.until(lambda name=f"{role}2": pairs.lead(name).get("leading"), what=f"the new {role} to lead")  # type: ignore[misc]
    works(pairs, client)
    for role in LEADS:  # whoever is asked to go, goes
        pairs.send(role, signal.SIGTERM)
        assert pairs.processes[role].wait(20) == 0
    works(pairs, client)
    recorded = asyncio.run(read_log(server.url, CLUSTER))
    check_log(recorded)
    for role, kind in LEADS.items():
        assert sum(isinstance(entry.fact, kind) for entry in recorded) >= 1, f"the new {role} never led"
        by_older = [entry.position for entry in recorded if entry.fact.id.startswith(f"older-{role}-")]
        assert by_older, "the older version wrote nothing"
