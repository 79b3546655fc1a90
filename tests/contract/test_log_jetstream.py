"""What only a log on a real nats-server can meet: crashes, broken connections, full disks, foreign bytes."""

import asyncio
import itertools
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from tenure.domain.ids import LOG_START, Position
from tenure.domain.refusal import Refusal
from tenure.events.catalogue import KINDS
from tenure.events.fact import Fact, Lane, Recorded
from tenure.events.intake import JobCancelRequested
from tenure.events.reports import CheckpointReported, Heartbeat
from tenure.log.access import Access
from tenure.log.feed import AHEAD_MAX
from tenure.log.jetstream import JetStreamLog
from tenure.log.link import Link, Refused
from tenure.log.port import Appended, Expect, FactTooLarge, LogFull, Unavailable
from tenure.log.subjects import Subjects
from tenure.runtime.nats_server import NatsServer
from tests.contract.breaking_proxy import BreakingProxy
from tests.contract.conftest import JetStreamUnderTest
from tests.contract.log_facts import heartbeat, hosts, intake, report, runs
from tests.contract.test_log import positions, read, read_all


@asynccontextmanager
async def bare_client(server: NatsServer) -> AsyncIterator[Client]:
    """A connection that knows nothing of logs."""
    client = await nats.connect(server.url)
    try:
        yield client
    finally:
        await client.close()


async def ask(client: Client, verb: str, question: object = None) -> dict[str, Any]:
    payload = b"" if question is None else json.dumps(question).encode()
    answer: dict[str, Any] = json.loads((await client.request(f"$JS.API.{verb}", payload, timeout=5)).data)
    return answer


# --- crashes of the server -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("crash", [True, False], ids=["killed", "stopped"])
def test_what_was_acknowledged_under_load_survives_the_server(own_nats_server: NatsServer, crash: bool) -> None:
    """Plain, grouped, atomic and conditional appends; three crashes; every acknowledged fact once, batches whole."""
    under_test = JetStreamUnderTest(own_nats_server)

    async def scenario(log: JetStreamLog) -> None:
        acknowledged: dict[str, int] = {}
        over = asyncio.Event()

        async def write(by: str, size: int) -> None:
            number = 0
            while not over.is_set():
                facts = [report(number + part, by=by) for part in range(size)]
                number += size
                last = (await log.append(facts)).last
                acknowledged.update({fact.id: last - size + 1 + part for part, fact in enumerate(facts)})

        async def write_guarded() -> None:
            number, last = 0, LOG_START
            while not over.is_set():
                facts = [runs(number), hosts(number)]
                number += 1
                last = (await log.append(facts, expect=Expect(lane=Lane.PLACE, last=last))).last
                acknowledged.update({facts[0].id: last - 1, facts[1].id: last})

        sizes = [1] * 12 + [3, 40]
        writers = [asyncio.create_task(write(f"w{k}", size)) for k, size in enumerate(sizes)]
        writers.append(asyncio.create_task(write_guarded()))
        for _ in range(3):
            enough = len(acknowledged) + 300
            while len(acknowledged) < enough:
                await asyncio.sleep(0.005)
            own_nats_server.kill() if crash else own_nats_server.stop()
            own_nats_server.start()
        over.set()
        await asyncio.gather(*writers)

        facts = await read_all(log)
        where = {recorded.fact.id: recorded.position for recorded in facts}
        assert len(where) == len(facts), "a fact stands twice in the log"
        assert acknowledged.items() <= where.items()
        written = {by: sum(recorded.fact.id.startswith(f"report-w{by}-") for recorded in facts) for by in (12, 13)}
        assert (written[12] % 3, written[13] % 40) == (0, 0), "a batch is not whole"

    under_test.run(scenario)


@pytest.mark.parametrize("rest_s", [0.0, 0.02])
def test_a_feed_outlives_crashes_while_others_append(own_nats_server: NatsServer, rest_s: float) -> None:
    under_test = JetStreamUnderTest(own_nats_server)

    async def scenario(log: JetStreamLog) -> None:
        writer = await under_test.connect()
        feed = await log.follow([JobCancelRequested], after=LOG_START, rest_s=rest_s)
        total = 6_000
        seen: list[Recorded] = []

        async def write() -> None:
            for start in range(0, total, 100):
                await writer.append([intake(number) for number in range(start, start + 100)])
                await writer.append([hosts(start)])

        async def follow() -> None:
            while len(seen) < total:
                seen.extend(await feed.next(30.0))

        working = asyncio.gather(write(), follow())
        for share in (5, 2, 1.3):
            while len(seen) < total / share:
                await asyncio.sleep(0.002)
            own_nats_server.kill()
            own_nats_server.start()
        await working
        assert [recorded.fact.at for recorded in seen] == list(range(total))
        assert positions(seen) == sorted(set(positions(seen)))

    under_test.run(scenario)


def test_an_append_during_an_outage_is_written_when_the_server_is_back(own_nats_server: NatsServer) -> None:
    under_test = JetStreamUnderTest(own_nats_server)

    async def scenario(log: JetStreamLog) -> None:
        first = await log.append([runs(1)])
        own_nats_server.kill()
        appends = [
            asyncio.create_task(log.append([intake(2)])),
            asyncio.create_task(log.append([report(3), report(4)])),
            asyncio.create_task(log.append([runs(5), runs(6)], expect=Expect(lane=Lane.PLACE, last=first.last))),
        ]
        done, _ = await asyncio.wait(appends, timeout=0.3)
        assert not done
        own_nats_server.start()
        await asyncio.gather(*appends)
        assert len(await read_all(log)) == 6

    under_test.run(scenario)


def test_an_outage_longer_than_the_patience_is_unavailable(own_nats_server: NatsServer) -> None:
    under_test = JetStreamUnderTest(own_nats_server, patience_s=0.5)

    async def scenario(log: JetStreamLog) -> None:
        feed = await log.follow([JobCancelRequested], after=LOG_START)
        own_nats_server.kill()
        for operation in (
            log.append([intake(1)]),
            log.append([intake(2), intake(3)]),
            log.append([runs(1)], expect=Expect(lane=Lane.RUNS, last=LOG_START)),
            log.head(),
            log.follow([JobCancelRequested], after=LOG_START),
        ):
            with pytest.raises(Unavailable, match=r"away|acknowledged"):
                await operation
        assert not await feed.next(0.1)
        own_nats_server.start()
        assert not (await log.append([intake(4)])).duplicate
        assert [recorded.fact.at for recorded in await read(feed, 1)][-1] == 4

    under_test.run(scenario)


def test_a_log_is_the_same_after_a_restart_of_everything(own_nats_server: NatsServer) -> None:
    under_test = JetStreamUnderTest(own_nats_server)
    identities: list[str] = []

    async def first(log: JetStreamLog) -> None:
        identities.append(await log.identity())
        await log.append([intake(1), intake(2)])

    async def second(log: JetStreamLog) -> None:
        identities.append(await log.identity())
        assert await log.head() == 2
        assert await log.append([intake(1), intake(2)]) == Appended(last=Position(2), duplicate=True)

    under_test.run(first)
    own_nats_server.kill()
    own_nats_server.start()
    under_test.run(second)
    assert identities[0] == identities[1]


# --- broken connections --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rest_s", [0.0, 0.02])
def test_broken_connections_lose_and_double_nothing(nats_server: NatsServer, rest_s: float) -> None:
    """Readers catch up and writers write while their connections are reset in the middle of it."""
    under_test = JetStreamUnderTest(nats_server)

    async def scenario(log: JetStreamLog) -> None:
        await log.append([intake(number) for number in range(12_000)])
        proxy = BreakingProxy(nats_server.url)
        through = await JetStreamLog.connect(await proxy.start(), cluster=under_test.cluster)
        feed = await through.follow([JobCancelRequested], after=LOG_START, rest_s=rest_s)
        seen: list[Recorded] = []
        written = 0

        async def follow() -> None:
            while len(seen) < 12_150:
                seen.extend(await feed.next(30.0))

        async def write() -> None:
            nonlocal written
            for number in range(150):
                await through.append([intake(12_000 + number)])
                await through.append([report(40 * number + part) for part in range(40)])
                written += 1

        async def disturb() -> None:
            """Break whenever some work was done, at changing moments of what follows."""
            for number in itertools.count():
                enough = (len(seen) + 1_500, written + 8)
                while len(seen) < enough[0] and written < enough[1]:
                    await asyncio.sleep(0.002)
                    if len(seen) >= 12_150 and written >= 150:
                        return
                for _ in range(number * 7 % 40):
                    await asyncio.sleep(0)
                proxy.break_all()

        await asyncio.gather(follow(), write(), disturb())
        await through.close()
        await proxy.stop()
        assert proxy.broken > 4
        assert [recorded.fact.at for recorded in seen] == list(range(12_150))
        reports = await read_all(log, [CheckpointReported])
        assert [recorded.fact.at for recorded in reports] == list(range(6_000))

    under_test.run(scenario)


def test_a_connection_that_the_server_ends_for_good_is_unavailable(own_nats_server: NatsServer) -> None:
    under_test = JetStreamUnderTest(own_nats_server)

    async def scenario(log: JetStreamLog) -> None:
        logs = [log] + [await under_test.connect() for _ in range(3)]
        feeds = [await opened.follow([JobCancelRequested], after=LOG_START) for opened in logs]
        config = own_nats_server.log_file.with_name("nats-server.conf")
        config.write_text(config.read_text() + "max_connections: 1\n")
        assert own_nats_server.pid is not None
        os.kill(own_nats_server.pid, signal.SIGHUP)
        reading = [asyncio.create_task(feed.next(None)) for feed in feeds]
        while sum(task.done() for task in reading) < 3:  # the server keeps one connection at most, whichever
            await asyncio.sleep(0.01)
        appended = await asyncio.gather(*(opened.append([intake(1)]) for opened in logs), return_exceptions=True)
        refused = [answer for answer in appended if not isinstance(answer, Appended)]
        assert len(refused) >= 3
        for trouble in refused + [task.exception() for task in reading if task.done()]:
            assert isinstance(trouble, Unavailable)
            assert "closed" in str(trouble)
        for task in reading:
            task.cancel()

    under_test.run(scenario)


@pytest.mark.parametrize("rest_s", [0.0, 0.02])
def test_a_feed_whose_consumer_vanished_goes_on(jetstream_under_test: JetStreamUnderTest, rest_s: float) -> None:
    async def scenario(log: JetStreamLog) -> None:
        await log.append([intake(1)])
        feed = await log.follow([JobCancelRequested], after=LOG_START, rest_s=rest_s)
        await read(feed, 1)
        async with bare_client(jetstream_under_test.server) as client:
            stream = f"tenure-{jetstream_under_test.cluster}"
            for name in (await ask(client, f"CONSUMER.NAMES.{stream}"))["consumers"]:
                await ask(client, f"CONSUMER.DELETE.{stream}.{name}")
        await log.append([intake(2)])
        assert positions(await read(feed, 1)) == [2]

    jetstream_under_test.run(scenario)


def test_a_resting_feed_gathers_what_comes_until_somebody_waits_for_it(
    jetstream_under_test: JetStreamUnderTest,
) -> None:
    async def scenario(log: JetStreamLog) -> None:
        await log.append([intake(1)])
        feed = await log.follow([JobCancelRequested], after=LOG_START, rest_s=60)
        assert positions(await read(feed, 1)) == [1]
        assert not await feed.next(0.1)  # it has asked again, and rests
        for number in range(2, 6):
            await log.append([intake(number)])
        assert not await feed.next(0.1)
        feed.hasten(Position(5))
        parcel = await feed.next(20)
        assert positions(parcel) == [2, 3, 4, 5]
        await log.append([intake(6)])
        assert not await feed.next(0.1)
        feed.hasten(Position(5))
        assert not await feed.next(0.1)

    jetstream_under_test.run(scenario)


def test_a_closed_feed_leaves_no_consumer(jetstream_under_test: JetStreamUnderTest) -> None:
    async def scenario(log: JetStreamLog) -> None:
        feeds = [await log.follow([JobCancelRequested], after=LOG_START) for _ in range(3)]
        async with bare_client(jetstream_under_test.server) as client:
            names = f"CONSUMER.NAMES.tenure-{jetstream_under_test.cluster}"
            assert (await ask(client, names))["total"] == 3
            for feed in feeds:
                await feed.close()
            assert (await ask(client, names))["total"] == 0
        with pytest.raises(Unavailable, match="closed"):
            await feeds[0].next(1)

    jetstream_under_test.run(scenario)


def test_a_reader_that_takes_nothing_is_sent_little(jetstream_under_test: JetStreamUnderTest) -> None:
    async def scenario(log: JetStreamLog) -> None:
        feed = await log.follow([JobCancelRequested], after=LOG_START)
        await log.append([intake(number) for number in range(3 * AHEAD_MAX)])
        async with bare_client(jetstream_under_test.server) as client:
            stream = f"tenure-{jetstream_under_test.cluster}"
            listed = await ask(client, f"CONSUMER.LIST.{stream}")
            assert listed["consumers"][0]["delivered"]["consumer_seq"] <= AHEAD_MAX
        facts = await read(feed, 3 * AHEAD_MAX)
        assert [recorded.fact.at for recorded in facts] == list(range(3 * AHEAD_MAX))

    jetstream_under_test.run(scenario)


def test_a_replaced_log_ends_the_feeds_of_the_old_one(jetstream_under_test: JetStreamUnderTest) -> None:
    async def scenario(log: JetStreamLog) -> None:
        feed = await log.follow([JobCancelRequested], after=LOG_START)
        async with bare_client(jetstream_under_test.server) as client:
            await ask(client, f"STREAM.DELETE.tenure-{jetstream_under_test.cluster}")
        other = await jetstream_under_test.connect()
        assert await other.identity() != await log.identity()
        with pytest.raises(Unavailable, match="replaced"):
            await feed.next(20.0)

    jetstream_under_test.run(scenario)


# --- foreign bytes, limits, age ------------------------------------------------------------------------------------


def test_a_feed_passes_what_it_cannot_read_at_the_end(jetstream_under_test: JetStreamUnderTest) -> None:
    async def scenario(log: JetStreamLog) -> None:
        await log.append([intake(1)])
        async with bare_client(jetstream_under_test.server) as client:
            await client.request(f"tenure.{jetstream_under_test.cluster}.intake.JobCancelRequested", b"damaged")
        assert [recorded.fact for recorded in await read_all(log)] == [intake(1)]

    jetstream_under_test.run(scenario)


def test_a_full_log_refuses_and_drops_nothing(nats_server: NatsServer) -> None:
    under_test = JetStreamUnderTest(nats_server, max_bytes=200_000)

    async def scenario(log: JetStreamLog) -> None:
        facts = [intake(number, by="x" * 1_000, id=f"intake-{number}") for number in range(1_000)]
        with pytest.raises(LogFull, match="full"):
            await log.append(facts[:500])
        assert await log.head() == LOG_START, "an atomic append is written whole or not at all"
        accepted = 0
        with pytest.raises(LogFull):
            for fact in facts:
                await log.append([fact])
                accepted += 1
        assert accepted > 50
        assert [recorded.fact for recorded in await read_all(log)] == facts[:accepted]
        assert (await log.append([facts[0]])).duplicate

    under_test.run(scenario)


def test_a_fact_that_does_not_fit_fails_alone(nats_server: NatsServer) -> None:
    """A group of concurrent appends that is refused as a whole is tried one by one."""
    under_test = JetStreamUnderTest(nats_server, max_bytes=100_000)

    async def scenario(log: JetStreamLog) -> None:
        facts = [
            intake(number, by="x" * (200_000 if number == 15 else 10), id=f"intake-{number}") for number in range(30)
        ]
        answers = await asyncio.gather(*(log.append([fact]) for fact in facts), return_exceptions=True)
        assert [number for number, answer in enumerate(answers) if isinstance(answer, LogFull)] == [15], answers
        assert len(await read_all(log)) == 29

    under_test.run(scenario)


def test_a_fact_larger_than_any_message_is_refused(jetstream_under_test: JetStreamUnderTest) -> None:
    async def scenario(log: JetStreamLog) -> None:
        huge: Fact = intake(1, by="x" * (5 << 20), id="huge")
        with pytest.raises(FactTooLarge, match="JobCancelRequested huge has"):
            await log.append([intake(2), huge])
        assert await log.head() == LOG_START

    jetstream_under_test.run(scenario)


def test_only_heartbeats_are_forgotten(nats_server: NatsServer) -> None:
    under_test = JetStreamUnderTest(nats_server, heartbeats_kept_s=1)

    async def scenario(log: JetStreamLog) -> None:
        await log.append([heartbeat(1)])
        await log.append([heartbeat(2), intake(3), heartbeat(4)])
        assert await log.head([Heartbeat]) == 4
        while await log.head([Heartbeat]) != LOG_START:
            await asyncio.sleep(0.1)
        assert [recorded.fact for recorded in await read_all(log)] == [intake(3)]
        assert (await log.append([intake(5)])).last == 5, "positions are not given again"

    under_test.run(scenario)


# --- getting in ----------------------------------------------------------------------------------------------------


def test_every_agent_of_a_large_cluster_may_read(nats_server: NatsServer) -> None:
    """Each is a reader of the log; a server lets 1,000 read a stream that asks for no more."""
    under_test = JetStreamUnderTest(nats_server)
    stream = f"tenure-{under_test.cluster}"

    async def one_more(link: Link) -> None:
        reader = {"deliver_policy": "new", "ack_policy": "none", "inactive_threshold": 60 * 10**9, "mem_storage": True}
        await link.api(f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": reader}, timeout_s=10)

    async def scenario(log: JetStreamLog) -> None:
        link = await Link.open(Access(url=nats_server.url), patience_s=5)
        for _ in range(1_100):
            await one_more(link)
        config = (await link.api(f"STREAM.INFO.{stream}", timeout_s=10))["config"]
        await link.api(f"STREAM.UPDATE.{stream}", {**config, "max_consumers": 1_100}, timeout_s=10)
        with pytest.raises(Refused, match="maximum consumers"):
            await one_more(link)
        await log.let_all_read()
        await one_more(link)
        await link.close()

    under_test.run(scenario)


def test_ten_roles_that_start_at_once_share_one_log(jetstream_under_test: JetStreamUnderTest) -> None:
    async def scenario(log: JetStreamLog) -> None:
        server = jetstream_under_test.server
        logs = await asyncio.gather(
            *(JetStreamLog.connect(server.url, cluster="fresh", max_bytes=1 << 20) for _ in range(10))
        )
        assert len({await opened.identity() for opened in logs}) == 1
        await asyncio.gather(*(opened.append([intake(number)]) for number, opened in enumerate(logs)))
        assert await logs[0].head() == 10
        await asyncio.gather(*(opened.close() for opened in logs))

    jetstream_under_test.run(scenario)


def test_ten_roles_that_start_at_once_find_the_log_that_took_all_the_room(
    own_nats_server: NatsServer, tmp_path: Path
) -> None:
    more_than_half = int(shutil.disk_usage(tmp_path).free * 3 / 4 * 0.6)  # the server keeps a quarter back

    async def scenario() -> None:
        for turn in range(10):
            logs = await asyncio.gather(
                *(
                    JetStreamLog.connect(own_nats_server.url, cluster=f"fresh{turn}", max_bytes=more_than_half)
                    for _ in range(10)
                )
            )
            assert len({await opened.identity() for opened in logs}) == 1
            await asyncio.gather(*(opened.close() for opened in logs))
            async with bare_client(own_nats_server) as client:
                await ask(client, f"STREAM.DELETE.{Subjects(f'fresh{turn}').stream}")

    asyncio.run(scenario())


def test_logs_of_two_clusters_are_apart(nats_server: NatsServer) -> None:
    first, second = JetStreamUnderTest(nats_server), JetStreamUnderTest(nats_server)

    async def scenario(log: JetStreamLog) -> None:
        other = await second.connect()
        await log.append([intake(1)])
        assert await other.head() == LOG_START
        assert await other.identity() != await log.identity()
        await other.close()

    first.run(scenario)


def test_where_nothing_listens_the_address_is_named(own_nats_server: NatsServer) -> None:
    own_nats_server.stop()

    async def connect() -> None:
        await JetStreamLog.connect(own_nats_server.url, cluster="c", patience_s=0.3)

    with pytest.raises(Unavailable, match=f"127.0.0.1:{own_nats_server.port}"):
        asyncio.run(connect())


def test_a_server_that_is_just_starting_is_waited_for(own_nats_server: NatsServer) -> None:
    own_nats_server.stop()

    async def connect() -> None:
        connecting = asyncio.create_task(JetStreamLog.connect(own_nats_server.url, cluster="c"))
        await asyncio.wait({connecting}, timeout=0.2)
        assert not connecting.done()
        own_nats_server.start()
        await (await connecting).close()

    asyncio.run(connect())


@pytest.mark.parametrize("name", ["", "a.b", "a b", "*", ">", "-a", "x" * 64, "a\n"])
def test_a_cluster_name_that_is_no_word_is_refused(name: str) -> None:
    with pytest.raises(Refusal, match="cluster"):
        asyncio.run(JetStreamLog.connect("nats://127.0.0.1:1", cluster=name))


def test_a_stream_that_drops_facts_is_not_taken_for_a_log(nats_server: NatsServer) -> None:
    async def scenario() -> None:
        async with bare_client(nats_server) as client:
            config = {"name": "tenure-lossy", "subjects": ["tenure.lossy.>"], "storage": "memory", "discard": "old"}
            await ask(client, "STREAM.CREATE.tenure-lossy", config)
        with pytest.raises(Unavailable, match="storage is 'memory'"):
            await JetStreamLog.connect(nats_server.url, cluster="lossy")

    asyncio.run(scenario())


def test_every_kind_travels_on_a_subject_of_its_own(jetstream_under_test: JetStreamUnderTest) -> None:
    async def scenario(log: JetStreamLog) -> None:
        await log.append([intake(1), runs(2), hosts(3), report(4), heartbeat(5)])
        async with bare_client(jetstream_under_test.server) as client:
            stream, root = f"tenure-{jetstream_under_test.cluster}", f"tenure.{jetstream_under_test.cluster}"
            found = await ask(client, f"STREAM.INFO.{stream}", {"subjects_filter": ">"})
        assert set(found["state"]["subjects"]) == {
            f"{root}.intake.JobCancelRequested",
            f"{root}.place.runs.~.RunStopRequested",
            f"{root}.place.hosts.DrainCompleted",
            f"{root}.report.~.CheckpointReported",
            f"{root}.report.~.Heartbeat",
        }
        assert len(KINDS) > 20

    jetstream_under_test.run(scenario)
