"""An agent of one host is sent what is about its host and about several, and none of what is about others."""

import nats
import pytest

from services.agent.evolve import READS
from tenure.domain.host import HostState
from tenure.domain.ids import LOG_START, FactId, HostId, JobId, RunId
from tenure.domain.reasons import EndCause, Reason, Why
from tenure.events.fact import Fact, Lane
from tenure.events.hosts import HostStateChanged
from tenure.events.placing import RunEnded
from tenure.events.reports import HostSignal
from tenure.log.jetstream import JetStreamLog
from tenure.log.port import Conflict, Expect, Unavailable
from tenure.log.subjects import district_of
from tests.contract.conftest import JetStreamUnderTest
from tests.contract.test_log import read

OWN, OTHER = HostId("gpu-001"), HostId("gpu-002")
WHY = Why(rule="P10", reason=Reason.END_COMPLETED, numbers={})


def ended(run: str, *, only_on: HostId | None) -> Fact:
    return RunEnded(
        at=1,
        id=FactId(run),
        run=RunId(run),
        job=JobId(run),
        only_on=only_on,
        cause_of_end=EndCause.COMPLETED,
        why=WHY,
    )


def changed(host: HostId) -> Fact:
    return HostStateChanged(
        at=1, id=FactId(f"{host}-is"), host=host, state=HostState.HEALTHY, previous=None, last_seen=1, why=WHY
    )


def test_an_agent_is_sent_what_is_about_its_host_and_about_several(jetstream_under_test: JetStreamUnderTest) -> None:
    assert district_of(OWN) != district_of(OTHER)
    told = [
        ended("here", only_on=OWN),
        ended("elsewhere", only_on=OTHER),
        ended("gang", only_on=None),
        changed(OWN),
        changed(OTHER),
    ]

    async def scenario(log: JetStreamLog) -> None:
        await log.append(told)
        agents = {}
        for host in (OWN, OTHER):
            agents[host] = await JetStreamLog.connect(
                jetstream_under_test.server.url, cluster=jetstream_under_test.cluster, speaker=host
            )
            await agents[host].append([HostSignal(at=2, id=FactId(f"{host}-says"), host=host)])
        await log.append([HostSignal(at=3, id=FactId("operator-says"), host=OTHER)])
        for host, theirs in ((OWN, ["here", "gang"]), (OTHER, ["elsewhere", "gang"])):
            feed = await agents[host].follow(READS, after=LOG_START)
            heard = [recorded.fact.id for recorded in await read(feed, 5)]
            assert heard == [*theirs, f"{host}-is", f"{host}-says", "operator-says"]
            assert not await feed.next(0.2)
            assert await agents[host].head(READS) == await log.head(), "the operator's word was the last"
            await feed.close()
            await agents[host].close()

    jetstream_under_test.run(scenario)


def test_a_guard_sees_every_district(jetstream_under_test: JetStreamUnderTest) -> None:
    async def scenario(log: JetStreamLog) -> None:
        first = await log.append([ended("a", only_on=OWN)])
        await log.append([ended("b", only_on=OTHER)])
        with pytest.raises(Conflict):
            await log.append([ended("c", only_on=OWN)], expect=Expect(lane=Lane.PLACE, last=first.last))

    jetstream_under_test.run(scenario)


@pytest.mark.parametrize("written_before", ["runs.RunAssigned", "hosts.HostStateChanged"])
def test_a_log_from_before_districts_is_refused_and_left_as_it_is(
    jetstream_under_test: JetStreamUnderTest, written_before: str
) -> None:
    """Read by this version, each job of it that runs would look queued, and each host new."""
    url, cluster = jetstream_under_test.server.url, jetstream_under_test.cluster

    async def scenario(log: JetStreamLog) -> None:
        again = await JetStreamLog.connect(url, cluster=cluster)
        await again.close()
        client = await nats.connect(url)
        written = await client.jetstream().publish(f"tenure.{cluster}.place.{written_before}", b"{}")
        for speaker in (None, OWN):
            with pytest.raises(Unavailable, match=rf"earlier version.*last at {written.seq}\).*tenure log restore"):
                await JetStreamLog.connect(url, cluster=cluster, speaker=speaker)
        assert await log.head() == written.seq
        await client.close()

    jetstream_under_test.run(scenario)
