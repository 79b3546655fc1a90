"""The loop of every role on each log: answers everything once, whatever is doubled, killed or restored."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import nats
import pytest

from tenure.domain.ids import LOG_START, FactId, HostId, JobId, Position
from tenure.domain.units import Millis
from tenure.events.fact import Lane, Recorded
from tenure.events.intake import JobCancelRequested
from tenure.events.placing import RunStopRequested
from tenure.events.reports import CheckpointReported, HostSignal
from tenure.log.jetstream import JetStreamLog
from tenure.log.port import Log
from tenure.runtime.clock import WallClock
from tenure.runtime.loop import Loop
from tenure.runtime.nats_server import NatsServer
from tenure.runtime.role import Decision, Role
from tenure.runtime.snapshot import Snapshot, SnapshotStore
from tests.contract.breaking_proxy import BreakingProxy
from tests.contract.conftest import TIME_LIMIT_S, JetStreamUnderTest, LogUnderTest
from tests.contract.log_facts import CLUSTER, heartbeat, intake, report, runs
from tests.contract.test_log import read_all


class Asked(msgspec.Struct):
    """The state of a role that answers each cancel request with one stop."""

    position: Position = LOG_START
    waiting: list[JobId] = []
    folded: int = 0


def evolve(state: Asked, recorded: Recorded) -> None:
    state.position = recorded.position
    state.folded += 1
    match recorded.fact:
        case JobCancelRequested(job=job):
            state.waiting.append(job)
        case RunStopRequested(job=job):
            state.waiting.remove(job)


def decide(state: Asked, now: Millis) -> Decision:
    """At most three answers at a time, so that many decisions are made."""
    some = [msgspec.structs.replace(runs(int(job[1:])), id="", at=now) for job in state.waiting[:3]]
    return Decision(assumes=state.position, facts=some)


ANSWERER = Role(
    name="answerer",
    reads=(JobCancelRequested, RunStopRequested),
    guard=Lane.PLACE,
    initial=Asked,
    evolve=evolve,
    decide=decide,
    dump=msgspec.json.encode,
    load=lambda payload: msgspec.json.decode(payload, type=Asked),
)


@asynccontextmanager
async def running(
    log: Log, *, role: Role[Asked] = ANSWERER, store: SnapshotStore | None = None, **more: Any
) -> AsyncIterator[Loop[Asked]]:
    """A loop that has caught up, and is stopped in order in the end."""
    loop: Loop[Asked] = Loop(role, log, WallClock(), cluster=CLUSTER, snapshots=store, **more)
    stop = asyncio.Event()
    work = asyncio.create_task(loop.run(stop))
    caught_up = asyncio.create_task(loop.caught_up.wait())
    await asyncio.wait({work, caught_up}, return_when=asyncio.FIRST_COMPLETED, timeout=20)
    assert loop.caught_up.is_set(), work
    yield loop
    stop.set()
    await work


async def answered(log: Log, count: int) -> list[JobId]:
    """The jobs that were answered, once there are so many answers."""
    while len(facts := await read_all(log, [RunStopRequested])) < count:
        await asyncio.sleep(0.01)
    return [recorded.fact.job for recorded in facts if isinstance(recorded.fact, RunStopRequested)]


def snapshots(folder: Path) -> SnapshotStore:
    return SnapshotStore(folder / "answerer.snapshot", packages=("tenure/log",), log_identity="the log")


def test_everything_is_answered_once(log_under_test: LogUnderTest) -> None:
    async def scenario(log: Log) -> None:
        await log.append([intake(number) for number in range(10)])
        async with running(log) as loop:
            for number in range(10, 40):
                await log.append([intake(number)])
            assert sorted(await answered(log, 40)) == sorted(f"j{number}" for number in range(40))
        assert not loop.state.waiting

    log_under_test.run(scenario)


def test_two_of_one_role_answer_once(log_under_test: LogUnderTest) -> None:
    async def scenario(log: Log) -> None:
        other = await log_under_test.connect()
        async with running(log), running(other):
            for number in range(40):
                await log.append([intake(number)])
                await asyncio.sleep(0)
            assert sorted(await answered(log, 40)) == sorted(f"j{number}" for number in range(40))

    log_under_test.run(scenario)


def test_a_restart_reads_the_snapshot_and_the_tail(log_under_test: LogUnderTest, tmp_path: Path) -> None:
    async def scenario(log: Log) -> None:
        store = snapshots(tmp_path)
        await log.append([intake(number) for number in range(30)])
        async with running(log, store=store):
            await answered(log, 30)
        saved = store.load()
        assert saved is not None
        await log.append([intake(number) for number in range(30, 33)])
        async with running(log, store=store) as loop:
            await answered(log, 33)
        assert loop.state.folded == 66
        again: Loop[Asked] = Loop(ANSWERER, log, WallClock(), cluster=CLUSTER)
        for recorded in await read_all(log):
            evolve(again.state, recorded)
        assert again.state == loop.state, "prefix and rest give the same as all (I6)"

    log_under_test.run(scenario)


def test_a_snapshot_ahead_of_the_log_is_not_used(log_under_test: LogUnderTest, tmp_path: Path) -> None:
    async def scenario(log: Log) -> None:
        store = snapshots(tmp_path)
        ahead = Asked(position=Position(99), waiting=[JobId("j77")])
        payload = json.dumps(msgspec.to_builtins(ahead)).encode()
        store.save(Snapshot(position=ahead.position, guarded=LOG_START, payload=payload))
        await log.append([intake(1)])
        async with running(log, store=store):
            assert await answered(log, 1) == ["j1"]

    log_under_test.run(scenario)


def test_a_part_that_the_log_had_already_does_not_hold_up_the_rest(log_under_test: LogUnderTest) -> None:
    """A restarted agent says again what was said; what is new beside it is of a kind that it does not read."""
    said: list[int] = []

    async def perform(instructions: Sequence[int]) -> None:
        said.extend(instructions)

    def say(state: Asked, now: Millis) -> Decision:
        number = len(said)
        fresh = [heartbeat(number), report(number)] if number < len(state.waiting) else []
        return Decision(assumes=state.position, facts=fresh, instructions=[number] if fresh else [])

    reporter = replace(ANSWERER, reads=(JobCancelRequested, CheckpointReported), guard=None, decide=say)

    async def scenario(log: Log) -> None:
        await log.append([report(0)])
        async with running(log, role=reporter, perform=perform) as loop:
            await log.append([intake(0)])
            async with asyncio.timeout(10):
                while not said:
                    await asyncio.sleep(0.01)
            await log.append([intake(1)])
            while len(said) < 2 or loop.state.folded < 4:
                await asyncio.sleep(0.01)
        facts = [entry.fact for entry in await read_all(log)]
        assert facts == [report(0), intake(0), heartbeat(0), intake(1), heartbeat(1), report(1)]

    log_under_test.run(scenario)


@pytest.mark.parametrize("guarded", [False, True])
def test_a_fact_that_cannot_be_read_does_not_hold_up_the_start(
    jetstream_under_test: JetStreamUnderTest, guarded: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """One of a newer version holds up the appends in its lane, though: nobody decides on what he cannot read."""

    async def scenario(log: Log) -> None:
        await log.append([intake(1)])
        kind = "place.runs.FromTomorrow" if guarded else "intake.JobCancelRequested"
        client = await nats.connect(jetstream_under_test.server.url)
        await client.request(f"tenure.{jetstream_under_test.cluster}.{kind}", b'{"type":"FromTomorrow","at":1}')
        await client.close()
        async with running(log):
            if guarded:
                while not any("a fact that this version cannot read" in message for message in caplog.messages):
                    await asyncio.sleep(0.01)
                assert await log.head() == 2
            else:
                assert await answered(log, 1) == ["j1"]

    with caplog.at_level("INFO"):
        jetstream_under_test.run(scenario)


def test_after_an_outage_it_reads_what_came_meanwhile_before_it_says_anything(own_nats_server: NatsServer) -> None:
    """A role without a guard is not told by a conflict that it is behind."""
    counter = Role(
        name="counter",
        reads=(JobCancelRequested,),
        guard=None,
        initial=Asked,
        evolve=evolve,
        decide=lambda state, now: Decision(assumes=state.position, facts=[seen_so_far(state, now)]),
        dump=msgspec.json.encode,
        load=lambda payload: msgspec.json.decode(payload, type=Asked),
    )

    async def scenario() -> None:
        proxy = BreakingProxy(own_nats_server.url)
        url = await proxy.start()
        log = await JetStreamLog.connect(url, cluster=CLUSTER, patience_s=0.3)
        other = await JetStreamLog.connect(own_nats_server.url, cluster=CLUSTER)
        loop, stop = Loop(counter, log, WallClock(), cluster=CLUSTER), asyncio.Event()
        returns: list[int] = []

        async def returned(state: Asked) -> None:
            returns.append(state.folded)

        loop.on_return = returned
        work = asyncio.create_task(loop.run(stop))
        while not await other.head([HostSignal]):
            await asyncio.sleep(0.01)
        await proxy.stop()
        silent_since = await other.head()
        while not loop.behind:
            await asyncio.sleep(0.01)
        await other.append([intake(number) for number in range(500)])
        await proxy.start(port=urlsplit(url).port or 0)
        while await other.head([HostSignal]) <= silent_since + 500:
            await asyncio.sleep(0.01)
        stop.set()
        await work
        said = [entry for entry in await read_all(other, [HostSignal]) if entry.position > silent_since + 500]
        assert len(returns) == 1, "the shell can compare before anything is said"
        assert {entry.fact.host for entry in said if isinstance(entry.fact, HostSignal)} == {"h500"}
        for each in (log, other):
            await each.close()
        await proxy.stop()

    asyncio.run(asyncio.wait_for(scenario(), TIME_LIMIT_S))


def seen_so_far(state: Asked, now: Millis) -> HostSignal:
    return HostSignal(at=now, id=FactId(f"seen-{now}"), host=HostId(f"h{state.folded}"))
