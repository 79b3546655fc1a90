"""Several agents for one host: one speaks for it and starts its runs, the others say so and end."""

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.log.access import Access
from tenure.runtime.nats_server import NatsServer
from tests.checks.invariants import check_log
from tests.e2e.system import read_log
from tests.integration.ha.pairs import Pairs, one_gpu

HOSTS = ("--hosts", "1x4")


@pytest.fixture
def pairs(server: NatsServer, tmp_path: Path) -> Iterator[Pairs]:
    pairs = Pairs(tmp_path, lambda _: Access(url=server.url))
    try:
        pairs.start("gateway", "--listen", "127.0.0.1:0")
        for name in ("placer", "budget", "ranker", "health"):
            pairs.start(name)
        pairs.start("agent", *HOSTS)
        yield pairs
    finally:
        pairs.close()


def test_an_agent_that_was_suspended_and_replaced_starts_nothing_when_it_wakes(
    pairs: Pairs, server: NatsServer
) -> None:
    client = pairs.client()

    def host_is(state: str) -> None:
        pairs.until(lambda: [host.state for host in client.hosts().hosts] == [state] or None, what=f"h000 {state}")

    host_is("healthy")
    pairs.send("agent", signal.SIGSTOP)
    host_is("suspect")
    pairs.start("agent2", *HOSTS)
    host_is("healthy")
    job = client.submit(one_gpu(f"echo $TENURE_RUN >> {pairs.folder}/started; exec sleep 1000"))
    pairs.until(lambda: client.job(job).state == "running" or None, what="the job to run")
    pairs.send("agent", signal.SIGCONT)
    assert pairs.until(lambda: pairs.processes["agent"].poll(), what="the first agent to end") == 1
    assert "speaks for h000" in pairs.said("agent").splitlines()[-1]
    pairs.start("agent3", *HOSTS, data="agent2")
    assert pairs.until(lambda: pairs.processes["agent3"].poll(), what="the third agent to end") == 1
    assert "--data: another agent works on" in pairs.said("agent3").splitlines()[-1]
    later = client.submit(one_gpu())
    pairs.until(lambda: client.job(later).state == "completed" or None, what="the next job")
    assert len((pairs.folder / "started").read_text().splitlines()) == 1
    check_log(asyncio.run(read_log(server.url, "pairs")))
    assert json.loads((pairs.folder / "agent2.json").read_text())["pid"] == pairs.processes["agent2"].pid
