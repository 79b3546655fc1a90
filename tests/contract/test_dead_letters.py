"""What stands in the log and is no fact: every reader passes over it alike, it is kept for people, nothing loops."""

import asyncio
import dataclasses
import json
import logging
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.errors import MaxPayloadError

from tenure.domain.ids import LOG_START, Position
from tenure.events.catalogue import KINDS
from tenure.events.fact import Lane, Recorded
from tenure.events.intake import JobCancelRequested
from tenure.log import codec, dead
from tenure.log.dead import DATA_MAX, DeadLetter
from tenure.log.jetstream import JetStreamLog
from tenure.log.port import Condemned, Expect, Log, Unavailable
from tenure.runtime.clock import WallClock
from tenure.runtime.loop import Loop
from tenure.runtime.poison import Unfoldable, end_of_lane
from tenure.runtime.snapshot import Snapshot, SnapshotStore
from tests.contract.conftest import JetStreamUnderTest, LogUnderTest
from tests.contract.log_facts import CLUSTER, heartbeat, intake, report, runs
from tests.contract.test_log import ALL_KINDS, positions, read, read_all
from tests.contract.test_loop import ANSWERER, Asked, answered, evolve, running

GOOD = codec.encode(intake(1))
POISON: dict[str, bytes] = {
    "empty": b"",
    "no text": b"\xff\xfe\x00",
    "truncated": GOOD[:-9],
    "doubled": GOOD * 2,
    "null": b"null",
    "a list": b"[1,2]",
    "deep": GOOD.replace(b'"at":1', b'"at":1,"x":' + b"[" * 50_000 + b"]" * 50_000),
    "unknown kind": GOOD.replace(b"JobCancelRequested", b"FromTomorrow"),
    "another kind": codec.encode(runs(1)),
    "wrong type": GOOD.replace(b'"at":1', b'"at":"soon"'),
    "field missing": GOOD.replace(b'"by":"ana"', b'"of":"ana"'),
    "no number": GOOD.replace(b'"at":1', b'"at":NaN'),
    "before all time": GOOD.replace(b'"at":1', b'"at":-1'),
    "after all time": GOOD.replace(b'"at":1', b'"at":' + b"9" * 400),
    "no id": GOOD.replace(b'"intake-ana-1"', b'""'),
    "a control character": GOOD.replace(b'"j1"', b'"j\\u00001"'),
    "a status": b"NATS/1.0 100 Idle Heartbeat\r\n\r\n",
    "large": b"x" * 1_000_000,
}


def poisoned(under_test: JetStreamUnderTest, scenario: Callable[[JetStreamLog, Client], Awaitable[None]]) -> None:
    """Play a scenario with a connection that knows nothing of facts."""

    async def play(log: JetStreamLog) -> None:
        client = await nats.connect(under_test.server.url)
        try:
            await scenario(log, client)
        finally:
            await client.close()

    under_test.run(play)


async def letters(log: JetStreamLog, count: int) -> list[DeadLetter]:
    """The dead letters once there are so many."""
    while len(found := await log.dead.read()) < count:
        await asyncio.sleep(0.01)
    return found


def test_poison_is_passed_over_by_every_reader_and_kept_once(
    jetstream_under_test: JetStreamUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(log: JetStreamLog, client: Client) -> None:
        subject = f"tenure.{jetstream_under_test.cluster}.intake.JobCancelRequested"
        early = await log.follow([JobCancelRequested], after=LOG_START)
        await log.append([intake(1)])
        for data in POISON.values():
            await client.request(subject, data, timeout=5)
        await log.append([intake(2)])
        last = len(POISON) + 2
        other = await jetstream_under_test.connect()
        late = [await other.follow(kinds, after=LOG_START) for kinds in ([JobCancelRequested], ALL_KINDS)]
        for feed in (early, *late):
            given: list[Recorded] = []
            while feed.passed < last:  # what is passed over comes as nothing
                given += await feed.next(20.0)
            assert positions(given) == [1, last]
            assert (feed.passed, feed.quarantined) == (last, len(POISON))
        kept = sorted(await letters(log, len(POISON)), key=lambda letter: letter.position)
        assert [letter.position for letter in kept] == list(range(2, last))
        for (name, data), letter in zip(POISON.items(), kept, strict=True):
            assert (letter.subject, letter.size, letter.condemned) == (subject, len(data), False), name
            assert letter.data == data[:DATA_MAX], name
            assert letter.reason and letter.at > 0, name
        assert await log.dead.count() == len(POISON)

    with caplog.at_level(logging.ERROR):
        poisoned(jetstream_under_test, scenario)
    assert sum(message.startswith("quarantined:") for message in caplog.messages) == len(POISON)


def test_subjects_of_nobody_are_quarantined_where_everything_is_read(jetstream_under_test: JetStreamUnderTest) -> None:
    async def scenario(log: JetStreamLog, client: Client) -> None:
        root = f"tenure.{jetstream_under_test.cluster}"
        for subject in (f"{root}.intake.FromTomorrow", f"{root}.x", f"{root}.place.runs.RunAssigned.x"):
            await client.request(subject, GOOD, timeout=5)
        await log.append([intake(2)])
        feed = await log.follow(tuple(KINDS.values()), after=LOG_START)
        assert positions(await read(feed, 1)) == [4]
        assert [letter.position for letter in await letters(log, 3)] == [1, 2, 3]

    poisoned(jetstream_under_test, scenario)


def test_a_hundred_megabytes_never_reach_the_log(jetstream_under_test: JetStreamUnderTest) -> None:
    async def scenario(log: JetStreamLog, client: Client) -> None:
        subject = f"tenure.{jetstream_under_test.cluster}.report.Heartbeat"
        with pytest.raises(MaxPayloadError):
            await client.publish(subject, bytes(100 << 20))
        client._max_payload = 1 << 30  # a client that does not care
        with suppress(Exception):
            await client.publish(subject, bytes(100 << 20))
            await client.flush(5)
        assert await log.head() == LOG_START
        assert not (await log.append([heartbeat(1)])).duplicate

    poisoned(jetstream_under_test, scenario)


@pytest.mark.parametrize("subject", ["place.runs.RunStopRequested", "place.runs.Nonsense", "place.hosts.x.y"])
def test_poison_in_a_guarded_lane_stops_no_decider(jetstream_under_test: JetStreamUnderTest, subject: str) -> None:
    """A condition looks at the last thing in its lane, fact or not."""

    async def scenario(log: JetStreamLog, client: Client) -> None:
        async with running(log):
            await log.append([intake(1)])
            assert await answered(log, 1) == ["j1"]
            await client.request(f"tenure.{jetstream_under_test.cluster}.{subject}", b"{", timeout=5)
            await log.append([intake(2)])
            assert await answered(log, 2) == ["j1", "j2"]
        async with running(log):  # and none that starts after it
            await log.append([intake(3)])
            assert await answered(log, 3) == ["j1", "j2", "j3"]

    poisoned(jetstream_under_test, scenario)


# --- condemned: what is a fact and cannot be folded -------------------------------------------------------------------


def touchy(state: Asked, recorded: Recorded) -> None:
    """A role with a mistake: it fails on job j13, half-way through."""
    evolve(state, recorded)
    assert "j13" not in state.waiting, "thirteen"


TOUCHY = dataclasses.replace(ANSWERER, name="touchy", evolve=touchy)


def loop_of(log: Log) -> Loop[Asked]:
    return Loop(TOUCHY, log, WallClock(), cluster=CLUSTER)


def test_what_one_role_cannot_fold_all_pass_over_and_it_ends_once(log_under_test: LogUnderTest) -> None:
    async def scenario(log: Log) -> None:
        await log.condemned()
        other = await log.follow([JobCancelRequested], after=LOG_START)
        await log.append([intake(12), intake(13), intake(14)])
        assert positions(await read(other, 3)) == [1, 2, 3]
        with pytest.raises(Unfoldable, match=r"JobCancelRequested at 2.*thirteen"):
            await loop_of(log).run(asyncio.Event())
        with pytest.raises(Condemned, match="folding the log again"):
            await other.next(20.0)
        assert await log.condemned() == {2}
        again, stop = loop_of(log), asyncio.Event()
        work = asyncio.create_task(again.run(stop))
        assert await answered(log, 2) == ["j12", "j14"]
        stop.set()
        await work
        assert positions(await read_all(log, [JobCancelRequested])) == [1, 3]

    log_under_test.run(scenario)


def test_a_role_that_condemns_nothing_ends_alone_and_forgets_its_snapshot(
    log_under_test: LogUnderTest, tmp_path: Path
) -> None:
    async def scenario(log: Log) -> None:
        await log.append([intake(12), intake(13)])
        snapshots = SnapshotStore(tmp_path / "forecast.snapshot", packages=(), log_identity="this")
        snapshots.save(Snapshot(position=LOG_START, guarded=LOG_START, payload=TOUCHY.dump(TOUCHY.initial())))
        quiet = dataclasses.replace(TOUCHY, condemns=False)
        with pytest.raises(Unfoldable, match="JobCancelRequested at 2"):
            await Loop(quiet, log, WallClock(), cluster=CLUSTER, snapshots=snapshots).run(asyncio.Event())
        assert await log.condemned() == frozenset()
        assert snapshots.load() is None
        assert positions(await read_all(log, [JobCancelRequested])) == [1, 2]

    log_under_test.run(scenario)


def test_what_is_condemned_before_it_is_read_is_passed_over(log_under_test: LogUnderTest) -> None:
    async def scenario(log: Log) -> None:
        await log.condemned()
        feed = await log.follow([JobCancelRequested], after=LOG_START)
        await log.append([intake(1)])
        assert positions(await read(feed, 1)) == [1]
        await log.append([report(2)])
        assert await log.condemn(Position(2), reason="a test", by="test")
        assert not await log.condemn(Position(2), reason="a test", by="test")
        await log.append([intake(3)])
        assert positions(await read_all(log)) == [1, 3]

    log_under_test.run(scenario)


def test_a_decision_is_never_condemned_by_a_role(jetstream_under_test: JetStreamUnderTest) -> None:
    """Agents have acted on it: to pass over it would start something twice. The role ends, and says what to do."""

    async def scenario(log: JetStreamLog) -> None:
        await log.append([runs(7)], expect=Expect(lane=Lane.PLACE, last=LOG_START))
        with pytest.raises(Unfoldable, match="RunStopRequested at 1"):
            await loop_of(log).run(asyncio.Event())  # it stops what nobody asked for
        assert await log.condemned() == frozenset()
        await log.condemn(Position(1), reason="a person says so", by="ana", at_most=None)
        assert await read_all(log) == []

    jetstream_under_test.run(scenario)


def test_roles_condemn_a_few_facts_and_no_more(jetstream_under_test: JetStreamUnderTest) -> None:
    """A mistake in a new version must not eat the log fact by fact."""

    async def scenario(log: JetStreamLog) -> None:
        await log.append([intake(number) for number in range(1, 5)])
        for position in (1, 2):
            await log.condemn(Position(position), reason="a test", by="test", at_most=2)
        with pytest.raises(Unavailable, match="2 facts are condemned already"):
            await log.condemn(Position(3), reason="a test", by="test", at_most=2)
        assert await log.condemn(Position(4), reason="a person says so", by="ana", at_most=None)
        assert await log.condemned() == {1, 2, 4}

    jetstream_under_test.run(scenario)


def test_a_person_may_have_a_newer_versions_fact_passed_over(jetstream_under_test: JetStreamUnderTest) -> None:
    async def scenario(log: JetStreamLog, client: Client) -> None:
        subject = f"tenure.{jetstream_under_test.cluster}.place.runs.FromTomorrow"
        await client.request(subject, b'{"type":"FromTomorrow","at":1}', timeout=5)
        await log.append([intake(1)])
        assert await end_of_lane(log, Lane.PLACE, after=LOG_START) is None
        await log.condemn(Position(1), reason="a person says so", by="ana", at_most=None)
        async with running(log):
            assert await answered(log, 1) == ["j1"]

    poisoned(jetstream_under_test, scenario)


def test_what_is_not_there_cannot_be_condemned(jetstream_under_test: JetStreamUnderTest) -> None:
    async def scenario(log: JetStreamLog) -> None:
        with pytest.raises(Unavailable, match="nothing stands at 7"):
            await log.condemn(Position(7), reason="a test", by="test")

    jetstream_under_test.run(scenario)


def test_a_verdict_between_a_snapshot_and_its_feed_is_seen(jetstream_under_test: JetStreamUnderTest) -> None:
    async def scenario(log: JetStreamLog) -> None:
        await log.append([intake(1), intake(2)])
        assert await log.condemned() == frozenset()  # what a snapshot is looked up with
        await (await jetstream_under_test.connect()).condemn(Position(1), reason="a test", by="test")
        with pytest.raises(Condemned):
            await (await log.follow([JobCancelRequested], after=Position(2))).next(20.0)

    jetstream_under_test.run(scenario)


def test_the_command_lists_them_and_condemns(jetstream_under_test: JetStreamUnderTest) -> None:
    where = ["--nats", jetstream_under_test.server.url, "--cluster", jetstream_under_test.cluster]

    async def tenure(*arguments: str) -> tuple[int, str]:
        command = [str(Path(sys.executable).parent / "tenure"), "log", *arguments, *where]
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=STDOUT)
        said = (await process.communicate())[0].decode()
        assert process.returncode is not None
        return process.returncode, said

    async def scenario(log: JetStreamLog, client: Client) -> None:
        assert await tenure("dead") == (0, "Nothing is quarantined.\n")
        await client.request(f"tenure.{jetstream_under_test.cluster}.x", b"\x1b[31m\xff", timeout=5)
        await log.append([intake(2)])
        await read_all(log)
        await letters(log, 1)
        assert await tenure("quarantine", "2", "--reason", "a test") == (0, "2 is quarantined\n")
        assert await tenure("quarantine", "2", "--reason", "a test") == (0, "2 was quarantined before\n")
        status, said = await tenure("quarantine", "99", "--reason", "a test")
        assert (status, "nothing stands at 99" in said, "Traceback" in said) == (1, True, False), said
        status, said = await tenure("dead", "--json")
        found = json.loads(said)
        assert [(each["position"], each["condemned"], each["by"]) for each in found] == [
            (1, False, "tenure"),
            (2, True, "a person"),
        ]
        assert found[0]["data"] == "\x1b[31m\\xff"
        assert "condemned: a test" in (await tenure("dead"))[1]

    poisoned(jetstream_under_test, scenario)


def test_a_flood_of_what_is_no_fact_leaves_room_for_verdicts(
    jetstream_under_test: JetStreamUnderTest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else a role that fails on a fact could not have it condemned, and would end again and again."""
    monkeypatch.setattr(dead, "LETTERS_MAX", 6)
    monkeypatch.setattr(dead, "UNREADABLE_MAX", 4)

    async def scenario(log: JetStreamLog, client: Client) -> None:
        feed = await log.follow(ALL_KINDS, after=LOG_START)
        for _ in range(8):
            await client.request(f"tenure.{jetstream_under_test.cluster}.nobody", b"x", timeout=5)
        at = (await log.append([intake(13)])).last
        assert positions(await read(feed, 1)) == [at]
        await letters(log, 4)
        while sum("dead letters are full" in message for message in caplog.messages) == 0:
            await asyncio.sleep(0.01)
        assert await log.condemn(at, reason="a test", by="test")
        assert await log.condemned() == {at}
        assert sum("dead letters are full" in message for message in caplog.messages) == 1, "said once"
        assert await log.dead.count() == 5

    with caplog.at_level(logging.WARNING):
        poisoned(jetstream_under_test, scenario)
