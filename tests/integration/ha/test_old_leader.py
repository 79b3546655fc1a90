"""A placer is suspended when it has decided to start a job and has not yet said so; another starts the job meanwhile.

What it does when it wakes: its facts are refused, so no agent ever hears of them, and it follows.
"""

import asyncio
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.events.placing import RunAssigned
from tenure.log.access import Access
from tenure.runtime.nats_server import NatsServer
from tests.checks.invariants import check_log
from tests.e2e.system import read_log
from tests.integration.ha.pairs import Pairs, one_gpu

FREEZING = (sys.executable, "-m", "tests.integration.ha.frozen_placer")


@pytest.fixture
def pairs(server: NatsServer, tmp_path: Path) -> Iterator[Pairs]:
    pairs = Pairs(tmp_path, lambda _: Access(url=server.url))
    try:
        pairs.start("placer", command=FREEZING)
        pairs.until(lambda: pairs.lead("placer").get("leading"), what="the first placer to lead")
        pairs.start("gateway", "--listen", "127.0.0.1:0")
        pairs.start("agent", "--hosts", "1x4")
        for name in ("placer2", "budget", "ranker", "health"):
            pairs.start(name)
        yield pairs
    finally:
        pairs.close()


def test_a_start_in_the_hand_of_a_suspended_placer_never_reaches_an_agent(pairs: Pairs, server: NatsServer) -> None:
    client, first = pairs.client(), pairs.folder / "placer"
    pairs.until(lambda: [host.state for host in client.hosts().hosts] == ["healthy"] or None, what="the host")
    pairs.until(lambda: pairs.follower("placer"), what="a follower")
    (first / "freeze").touch()
    spec = one_gpu(f"echo $TENURE_RUN >> {pairs.folder}/started; exec sleep 1000")
    job = client.submit(spec)
    in_hand = json.loads(pairs.until(lambda: readable(first / "in-hand"), what="a decision in hand"))
    assert in_hand and not (pairs.folder / "started").exists()
    pairs.until(lambda: client.job(job).state == "running" or None, what="the other to start it")
    pairs.send("placer", signal.SIGCONT)
    pairs.until(lambda: pairs.lead("placer").get("leading") is False or None, what="it to step back")
    pairs.until(lambda: "decided on an old position" in pairs.said("placer") or None, what="the refusal")
    later = client.submit(spec)
    pairs.until(lambda: client.job(later).state == "running" or None, what="the next job")
    recorded = asyncio.run(read_log(server.url, "pairs"))
    check_log(recorded)
    assert not {entry.fact.id for entry in recorded} & set(in_hand)
    assert len([entry for entry in recorded if isinstance(entry.fact, RunAssigned)]) == 2
    assert len((pairs.folder / "started").read_text().splitlines()) == 2


def readable(path: Path) -> str | None:
    return path.read_text() if path.exists() else None
