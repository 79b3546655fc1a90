"""Agents of a site behind a server of its own: they work as anywhere, and nothing is lost while the site is cut off."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tenure.events.reports import Heartbeat
from tenure.runtime.nats_server import NatsServer
from tests.e2e.roles import Roles
from tests.integration.faults.aftermath import check_aftermath
from tests.integration.faults.lab import AGENTS, KNOBS, Lab, free_ports, lab
from tests.integration.faults.road import ProxyRoad
from tests.integration.log.leaf_server import LeafServer, door

pytestmark = pytest.mark.timeout(300)

SILENT = [*KNOBS, "suspect_after=3s"]


@pytest.mark.parametrize("how", ["the-road-is-cut", "the-server-is-killed"])
def test_a_site_is_cut_off_and_comes_back(tmp_path: Path, how: str) -> None:
    """Both agents are at the site. Runs go on meanwhile, what they did is told afterwards, and no run ends for it."""
    (port,) = free_ports(1)
    nats = NatsServer(tmp_path / "nats", also=door(port, store=tmp_path / "nats" / "store"))
    road = ProxyRoad(f"nats://127.0.0.1:{port}")
    leaf = LeafServer(tmp_path / "leaf", remote=road.url.removeprefix("nats://"))

    def start_far(roles: Roles, name: str, arguments: Sequence[str]) -> None:
        if name == AGENTS[0]:
            leaf.start()
        roles.start("agent", *arguments, name=name, nats_url=leaf.url)

    cut, mend = (road.cut, road.mend) if how == "the-road-is-cut" else (leaf.kill, leaf.start)
    try:
        with lab(tmp_path, nats=nats, knobs=SILENT, start_agent=start_far) as each:
            with each.load(seed=9) as load:
                load.more(20)
                _cut_for_a_while(each, cut, mend, ended=lambda: len(load.marked("ended")))
                load.more(20)
            recorded = check_aftermath(each, load)
            assert any(isinstance(one.fact, Heartbeat) for one in recorded)
    finally:
        leaf.kill()
        road.close()


def _cut_for_a_while(each: Lab, cut: Callable[[], None], mend: Callable[[], None], *, ended: Callable[[], int]) -> None:
    cut()
    before = ended()
    each.roles.until(lambda: _states(each) == {"suspect"} or None, what="hosts in doubt", timeout_s=60)
    each.roles.until(lambda: ended() > before or None, what="the end of a run meanwhile", timeout_s=60)
    mend()
    each.roles.until(lambda: _states(each) == {"healthy"} or None, what="hosts to be heard again", timeout_s=60)


def _states(each: Lab) -> set[str]:
    return {host.state for host in each.client.hosts().hosts}
