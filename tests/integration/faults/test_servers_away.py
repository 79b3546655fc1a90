"""The log's server stands still, the database is away: decisions wait or go on, runs go on, nothing is lost or doubled.

S54 (the store of metrics is away and history counts as none), S67 (an outage of the control plane ends every run).
"""

import os
import signal
from collections.abc import Iterator

import pytest

from tenure.events.ranking import RankingPublished
from tenure.runtime.nats_server import NatsServer
from tests.e2e.roles import DECIDERS
from tests.integration.faults.aftermath import check_aftermath
from tests.integration.faults.lab import AGENTS, Lab, lab

pytestmark = pytest.mark.timeout(300)

LOST = "lost the log's server"


@pytest.fixture(scope="module")
def each(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("away")) as each:
        yield each


def test_the_log_stands_still_for_longer_than_any_timeout(each: Lab) -> None:
    """SIGSTOP: connections stay open and nobody answers, until every process has given its connection up."""
    everybody = (*DECIDERS, *AGENTS)
    with each.load(seed=1) as load:
        load.more(20)
        with each.paused("nats"):
            before = len(load.marked("ended"))
            each.roles.until(
                lambda: all(each.roles.has_said(name, LOST) for name in everybody) or None,
                what="every role to give the log's server up",
                timeout_s=60,
            )
            assert len(load.marked("ended")) > before, "runs went on meanwhile, to their ends"
        load.more(20)
    check_aftermath(each, load)


def test_the_log_is_restarted_in_order_and_told_to_wind_down(each: Lab) -> None:
    """SIGTERM, as an operator's restart does; the lame duck mode, which sends clients away before it ends; SIGHUP."""
    nats = each.roles.nats
    assert isinstance(nats, NatsServer)
    with each.load(seed=3) as load:
        for turn in range(4):
            load.more(10 + turn)
            nats.stop()
            nats.start()
        load.more(10)
        assert nats.pid is not None
        os.kill(nats.pid, signal.SIGUSR2)
        each.roles.until(
            lambda: "Closing existing clients" in nats.log_file.read_text() or None,
            what="the server to ask its clients to go",
        )
        nats.stop()
        nats.start()
        load.more(10)
        os.kill(nats.pid, signal.SIGHUP)
        load.more(10)
    check_aftermath(each, load)


def test_the_database_is_away_and_facts_arrive_once_when_it_is_back(each: Lab) -> None:
    with each.load(seed=2) as load:
        load.more(20)
        each.kill("clickhouse")
        load.more(10)
        each.kill("journal")
        each.again("journal")
        shares = charged(each)
        each.kill("ranker")
        each.again("ranker")
        each.roles.ready("ranker")
        load.more(30)
        after = charged(each)
        assert all(after[path] >= shares[path] > 0 for path in ("a", "b")), (
            f"history is not forgotten: {shares} {after}"
        )
        each.again("clickhouse")
        load.more(5)
    check_aftermath(each, load)


def charged(each: Lab) -> dict[str, int]:
    """What the ranker last said was charged in the window, by budget."""

    def probe() -> dict[str, int] | None:
        said = [entry.fact for entry in each.roles.recorded() if isinstance(entry.fact, RankingPublished)]
        if not said:
            return None
        found = {str(standing.path): standing.charged_gpu_ms for standing in said[-1].standings}
        return found if all(found.get(path) for path in ("a", "b")) else None

    return each.roles.until(probe, what="charges")
