"""A log with three replicas on three servers that run the shipped configuration, one user a role."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tenure.domain.ids import LOG_START
from tenure.events.fact import Lane, Recorded
from tenure.log.access import Access, open_client
from tenure.log.create import create
from tenure.log.jetstream import JetStreamLog
from tenure.log.permissions import make_keys, render, seed_file, users
from tenure.log.port import Appended, Conflict, Expect, Unavailable
from tenure.runtime.nats_server import find_nats_server
from tests.contract.log_facts import CLUSTER, hosts, intake, report, runs
from tests.contract.test_log import ALL_KINDS, read_all
from tests.integration.faults.lab import free_ports
from tests.integration.log.leaf_server import LEAFNODES

SHIPPED = Path(__file__).parents[3] / "deploy" / "nats"
START_S = 30.0


class Trio:
    """Three servers. Fixed ports derived from the process id: a cluster's members must know each other's beforehand."""

    def __init__(self, root: Path, *, cluster: str = CLUSTER) -> None:
        base = 20_000 + os.getpid() % 2_000 * 6
        self.ports = [base + number for number in range(3)]
        self._routes = [base + 3 + number for number in range(3)]
        self._root, self._keys = root, root / "keys"
        self._users, self._cluster = "", cluster
        self.processes: list[subprocess.Popen[bytes]] = []

    def access(self, role: str) -> Access:
        """How `role` connects, with its key."""
        url = ",".join(f"nats://127.0.0.1:{port}" for port in self.ports)
        return Access(url=url, client=role, seed_file=seed_file(self._keys, role))

    def start(self) -> None:
        keys = make_keys(self._keys, list(users()))
        self._users = render(keys, cluster=self._cluster)
        for number in range(3):
            config = self._configure(number)
            command = [sys.executable, "-m", "tenure.runtime.orphan", str(os.getpid()), "9"]
            with (config.parent / "log").open("wb") as log:
                self.processes.append(
                    subprocess.Popen(
                        [*command, str(find_nats_server()), "-c", str(config)],
                        stdout=log,
                        stderr=log,
                    )
                )

    def kill(self, number: int) -> None:
        self.processes[number].kill()
        self.processes[number].wait()

    def _configure(self, number: int) -> Path:
        folder = self._root / str(number)
        folder.mkdir(parents=True)
        text = (SHIPPED / "nats-server.conf").read_text()
        for shipped, ours in (
            ('"nats-0"', f'"nats-{number}"'),
            ("0.0.0.0:4222", f"127.0.0.1:{self.ports[number]}"),
            ("0.0.0.0:6222", f"127.0.0.1:{self._routes[number]}"),
            ("127.0.0.1:8222", "127.0.0.1:-1"),
            ("/var/lib/tenure/nats", str(folder / "store")),
            ("600GB", "1GB"),
            ("include ./tls.conf\n", ""),
            *((f"nats://nats-{k}:6222", f"nats://127.0.0.1:{self._routes[k]}") for k in range(3)),
        ):
            assert shipped in text, f"{shipped} is no longer in the shipped configuration"
            text = text.replace(shipped, ours)
        (door,) = free_ports(1)
        text, doors = LEAFNODES.subn(f'leafnodes {{ listen: "127.0.0.1:{door}" }}\n', text)
        assert doors == 1
        (folder / "users.conf").write_text(self._users)
        config = folder / "nats-server.conf"
        config.write_text(text)
        return config


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    servers = Trio(tmp_path_factory.mktemp("trio"))
    servers.start()
    asyncio.run(_until_created(servers))
    yield servers
    for number in range(3):
        servers.kill(number)


async def _until_created(servers: Trio) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            await create(server=servers.access("operator"), cluster=CLUSTER, replicas=3, max_gib=0)
            return
        except Unavailable:  # the three have not found each other yet
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.2)


async def open_as(trio: Trio, role: str) -> JetStreamLog:
    return await JetStreamLog.connect(trio.access(role), cluster=CLUSTER)


def test_duplicates_and_races_end_as_on_one_server(trio: Trio) -> None:
    async def scenario() -> None:
        log = await open_as(trio, "operator")
        facts = [report(number) for number in range(30)]
        first = await log.append(facts)
        assert await log.append(facts) == Appended(last=first.last, duplicate=True)
        assert (await log.append([*facts[3:5], report(31)])).last == first.last + 1
        assert (await log.append([facts[7]])).duplicate
        rivals = [await open_as(trio, "operator") for _ in range(4)]
        last = LOG_START
        for rival in range(5):

            async def race(number: int, rival: int = rival, last: int = last) -> Appended | None:
                kind = (runs, hosts)[number % 2]
                facts = [kind(part, by=f"r{rival}-{number}") for part in range(1 + number % 3)]
                try:
                    return await rivals[number % 4].append(facts, expect=Expect(lane=Lane.PLACE, last=last))
                except Conflict:
                    return None

            accepted = [won for won in await asyncio.gather(*(race(number) for number in range(20))) if won]
            assert len(accepted) == 1
            last = accepted[0].last
        for opened in [log, *rivals]:
            await opened.close()

    asyncio.run(scenario())


def test_a_guard_holds_against_appends_under_other_guards(trio: Trio) -> None:
    """The placer guards `place`, health `place.hosts`: what both write is never decided on an old position."""

    async def scenario() -> None:
        reader = await open_as(trio, "operator")
        begin = await reader.head()
        assumed: dict[str, Expect] = {}

        async def decide(lane: Lane, by: str) -> None:
            log, kind, number = await open_as(trio, "operator"), runs if lane is Lane.PLACE else hosts, 0
            feed = await log.follow(ALL_KINDS, after=LOG_START)
            last = LOG_START
            while len(assumed) < 400:
                for recorded in await feed.next(0):
                    last = recorded.position if lane.covers(recorded.fact.lane) else last
                number += 1
                facts = [kind(10 * number + part, by=by) for part in range(1 + number % 2)]
                expect = Expect(lane=lane, last=last)
                try:
                    await log.append(facts, expect=expect)
                    assumed[facts[0].id] = expect
                except Conflict:
                    continue
            await log.close()

        await asyncio.gather(
            *(decide(lane, f"guard{lane}") for lane in (Lane.PLACE, Lane.HOSTS)), decide(Lane.HOSTS, "h2")
        )
        last_of = dict.fromkeys((Lane.PLACE, Lane.HOSTS), LOG_START)
        decided = 0
        for recorded in await read_all(reader):
            expect = assumed.get(recorded.fact.id)
            if expect is not None and recorded.position > begin:
                decided += 1
                assert last_of[expect.lane] == expect.last, f"{recorded} was written on an old position"
            for lane in last_of:
                last_of[lane] = recorded.position if lane.covers(recorded.fact.lane) else last_of[lane]
        assert decided >= 400
        await reader.close()

    asyncio.run(asyncio.wait_for(scenario(), 90))


def test_a_role_writes_only_its_own_lanes(trio: Trio) -> None:
    async def scenario() -> None:
        for role, own, others in (
            ("gateway", intake(1), runs(1)),
            ("placer", runs(2), hosts(2)),
            ("health", hosts(3), runs(3)),
            ("agent", report(4), intake(4)),
        ):
            log = await open_as(trio, role)
            await log.append([own])
            assert (await log.append([own])).duplicate
            with pytest.raises(Unavailable, match="permissions violation"):
                await log.append([others])
            assert own in [recorded.fact for recorded in await read_all(log)]
            await log.close()

    asyncio.run(scenario())


def test_the_loss_of_one_server_loses_and_doubles_nothing(trio: Trio) -> None:
    async def scenario() -> None:
        log, reader = await open_as(trio, "operator"), await open_as(trio, "journal")
        begin = await log.head()
        feed = await reader.follow(ALL_KINDS, after=begin)
        acknowledged: dict[str, int] = {}
        over = asyncio.Event()

        async def write(by: str) -> None:
            number = 0
            while not over.is_set():
                facts = [report(number, by=by), report(number + 1, by=by)]
                number += 2
                last = (await log.append(facts)).last
                acknowledged.update({facts[0].id: last - 1, facts[1].id: last})

        writers = [asyncio.create_task(write(f"loss{number}")) for number in range(4)]
        await _until(lambda: len(acknowledged) > 100)
        trio.kill(await leader(trio))
        enough = len(acknowledged) + 100
        await _until(lambda: len(acknowledged) > enough)
        over.set()
        await asyncio.gather(*writers)

        seen: list[Recorded] = []
        head = await log.head()
        while feed.passed < head:
            seen += await feed.next(20.0)
        where = {recorded.fact.id: recorded.position for recorded in seen}
        assert len(where) == len(seen)
        assert acknowledged.items() <= where.items()
        await log.close()
        await reader.close()

    asyncio.run(asyncio.wait_for(scenario(), 90))


async def leader(trio: Trio, cluster: str = CLUSTER) -> int:
    """The number of the server that orders the log."""
    client = await open_client(trio.access("operator"))
    answer = await client.request(f"$JS.API.STREAM.INFO.tenure-{cluster}", timeout=5)
    await client.close()
    return int(json.loads(answer.data)["cluster"]["leader"].removeprefix("nats-"))


async def _until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.01)
