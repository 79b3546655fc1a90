"""The server of a site, by the shipped configuration: its agents work as anywhere, and it can do no more than they."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from nats.aio.client import Client

from services.agent.log_server import LogServer
from services.agent.process.logs import LogChunk
from tenure.domain.ids import LOG_START, HostId, Position, RunId
from tenure.events.catalogue import KINDS
from tenure.log.access import Access, open_client
from tenure.log.create import create
from tenure.log.jetstream import JetStreamLog
from tenure.log.link import Link
from tenure.log.permissions import GATEWAY, OPERATOR, Site, agent_of, make_keys, render, render_site, seed_file, users
from tenure.log.port import Unavailable
from tenure.log.subjects import Subjects
from tenure.runtime.log_stream import LogPiece, LogRequest, LogsAway, read_piece
from tenure.runtime.nats_server import NatsServer
from tests.contract.log_facts import CLUSTER, report, runs
from tests.integration.faults.lab import free_ports
from tests.integration.log.leaf_server import LeafServer, door
from tests.integration.log.test_permissions import may_write

HERE, FAR, FAR_TOO = HostId("h0"), HostId("f0"), HostId("f1.lab")
SITE = Site(name="paris", hosts=(FAR, FAR_TOO))
EVERYBODY = (HERE, FAR, FAR_TOO)


@dataclass(frozen=True)
class Rig:
    """The log's server, a site's, and everybody's keys."""

    server: NatsServer
    leaf: LeafServer
    keys: Path

    def access(self, user: str, *, far: bool) -> Access:
        """As that user, at the log's server or at the site's."""
        url = self.leaf.url if far else self.server.url
        return Access(url=url, client=user, seed_file=seed_file(self.keys, user))


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    root = tmp_path_factory.mktemp("leaf")
    keys, (port,) = root / "keys", free_ports(1)
    public = make_keys(keys, [*users(EVERYBODY), SITE.user])
    also = render(public, cluster=CLUSTER, hosts=EVERYBODY, sites=(SITE,))
    also += door(port, store=root / "hub" / "store")
    server = NatsServer(root / "hub", sync="default", also=also)
    server.start()
    seed = seed_file(keys, SITE.user).read_text().strip()
    own = render_site(public, SITE, cluster=CLUSTER)
    leaf = LeafServer(root / "leaf", remote=f"127.0.0.1:{port}", users=own, seed=seed)
    rig = Rig(server, leaf, keys)
    try:
        asyncio.run(create(server=rig.access(OPERATOR, far=False), cluster=CLUSTER, replicas=1, max_gib=0))
        leaf.start()
        yield rig
    finally:
        leaf.kill()
        server.stop()


def test_an_agent_of_the_site_reads_the_log_and_writes_its_own_reports(rig: Rig) -> None:
    async def scenario() -> None:
        near = await JetStreamLog.connect(rig.access("placer", far=False), cluster=CLUSTER)
        far = await JetStreamLog.connect(rig.access(agent_of(FAR), far=True), cluster=CLUSTER, speaker=FAR)
        assert await far.identity() == await near.identity()
        feed = await far.follow(list(KINDS.values()), after=LOG_START)
        said = [(await near.append([runs(number)])).last for number in range(20)]
        heard: list[Position] = []
        while len(heard) < len(said):
            heard += [one.position for one in await feed.next(20)]
        assert heard == said
        told = (await far.append([report(1)])).last
        assert told == said[-1] + 1
        assert (await far.append([report(1)])).last == told, "the same fact again is the same"
        for log in (near, far):
            await log.close()

    asyncio.run(scenario())


def test_the_gateway_reads_what_a_replica_of_the_site_printed(rig: Rig) -> None:
    """A question to the agent through both servers, and its answer back, which nobody but the gateway could ask for."""
    request = LogRequest(run=RunId("j1.1"), replica=0, stream="stdout")

    async def scenario() -> None:
        access = rig.access(agent_of(FAR_TOO), far=True)
        agent = await open_client(access)
        serving = LogServer(agent, OneStream(), is_over=lambda *_: True, asker=access.inbox_prefix_of(GATEWAY))
        await serving.listen([FAR_TOO], cluster=CLUSTER)
        await agent.flush()
        gateway = await open_client(rig.access(GATEWAY, far=False))
        piece = await _heard(gateway, request)
        assert piece.data == OneStream.DATA and piece.eof
        for opened in (gateway, agent):
            await opened.close()

    asyncio.run(scenario())


class OneStream:
    """A replica that printed one line."""

    DATA = b"hello from far away"

    def read_log(self, *, run: RunId, replica: int, stream: str, offset: int, limit: int) -> LogChunk:
        end = len(self.DATA)
        return LogChunk(data=self.DATA, start_offset=0, next_offset=end, oldest_offset=0, end_offset=end)


async def _heard(gateway: Client, request: LogRequest) -> LogPiece:
    """The answer, once word of who listens at the site has reached the log's server."""
    deadline = time.monotonic() + 20
    while True:
        try:
            return await read_piece(gateway, cluster=CLUSTER, host=FAR_TOO, request=request)
        except LogsAway:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("far", [True, False], ids=["at-the-site", "at-the-log"])
def test_who_has_the_key_of_the_site_s_server_speaks_for_its_hosts_alone(rig: Rig, far: bool) -> None:
    """It opens the log's servers, for what the site's agents may write; the site itself it does not open."""
    access = replace(rig.access(agent_of(FAR), far=far), seed_file=seed_file(rig.keys, SITE.user))

    async def scenario() -> None:
        link = await Link.open(access, patience_s=5)
        for kind in KINDS.values():
            for host in (None, *EVERYBODY):
                subject = Subjects(CLUSTER, speaker=host).written(kind).replace("*", "~")
                allowed = any(kind in grant.writes and host == grant.host for grant in SITE.agents.values())
                assert await may_write(link, subject) == allowed, subject
        await link.close()

    if far:
        with pytest.raises(Unavailable):
            asyncio.run(Link.open(access, patience_s=1))
    else:
        asyncio.run(scenario())


def test_an_agent_of_the_site_cannot_speak_for_another_host_of_it(rig: Rig) -> None:
    async def scenario() -> None:
        link = await Link.open(rig.access(agent_of(FAR), far=True), patience_s=5)
        for kind in KINDS.values():
            for host in (None, *EVERYBODY):
                allowed = host == FAR and kind in SITE.agents[agent_of(FAR)].writes
                assert await may_write(link, Subjects(CLUSTER, speaker=host).written(kind).replace("*", "~")) == allowed
        await link.close()

    asyncio.run(scenario())


def test_an_agent_of_another_place_is_not_let_in_at_the_site(rig: Rig) -> None:
    with pytest.raises(Unavailable):
        asyncio.run(Link.open(rig.access(agent_of(HERE), far=True), patience_s=1))
