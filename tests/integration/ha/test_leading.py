"""Two of a role on a real server, step by step: who leads, what a deposed leader can still do, what of a lost store."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import nats
import pytest

from tenure.domain.units import Millis
from tenure.events.fact import Fact
from tenure.events.intake import JobCancelRequested
from tenure.events.leading import PlacerLeadTaken
from tenure.events.placing import RunStopRequested
from tenure.log.access import Access
from tenure.log.jetstream import JetStreamLog
from tenure.log.lease import BUCKET, TTL_S, Lease
from tenure.log.port import Appended, Expect
from tenure.runtime.clock import WallClock
from tenure.runtime.leadership import Leadership
from tenure.runtime.loop import Loop
from tenure.runtime.nats_server import NatsServer
from tenure.runtime.role import Decision, Role
from tests.contract.breaking_proxy import BreakingProxy
from tests.contract.log_facts import CLUSTER, intake
from tests.contract.test_log import read_all
from tests.contract.test_loop import ANSWERER, Asked, answered

TIME_LIMIT_S = 60.0
TWIN = replace(ANSWERER, reads=(JobCancelRequested, RunStopRequested, PlacerLeadTaken), lead=PlacerLeadTaken)


class HeldLog(JetStreamLog):
    """A log whose user can be held just before it sends something, as by SIGSTOP."""

    let_go: "asyncio.Event | None" = None
    in_hand: "Sequence[Fact]" = ()

    async def append(self, facts: Sequence[Fact], *, expect: Expect | None = None) -> Appended:
        if self.let_go is not None:
            self.in_hand = facts
            await self.let_go.wait()
        return await super().append(facts, expect=expect)


class Candidate:
    """What a process of the role consists of."""

    def __init__(self, server: NatsServer, name: str, *, role: Role[Asked] = TWIN, store_url: str = "") -> None:
        self._url, self._store_url, self._name, self._role = server.url, store_url or server.url, name, role
        self._stop = asyncio.Event()
        self.stood_down = 0

    async def start(self) -> "Candidate":
        self.log = await HeldLog.connect(self._url, cluster=CLUSTER)
        self.loop: Loop[Asked] = Loop(self._role, self.log, WallClock(), cluster=CLUSTER)
        lease = await Lease.open(Access(url=self._store_url), cluster=CLUSTER, role="twin", instance=self._name)
        self.loop.leadership = self.leadership = Leadership(lease)
        self.leadership.on_change.append(self.loop.poke)
        self.loop.on_stand_down = self._note
        self._looking = asyncio.create_task(self.leadership.run())
        self._work = asyncio.create_task(self.loop.run(self._stop))
        await self.loop.caught_up.wait()
        return self

    async def leads(self) -> "Candidate":
        await until(lambda: self.loop.epoch is not None)
        return self

    def suspend(self) -> None:
        """It does nothing any more; what it appends next stays in its hand."""
        self._looking.cancel()
        self.log.let_go = asyncio.Event()

    def wake(self) -> None:
        let_go, self.log.let_go = self.log.let_go, None
        assert let_go is not None
        let_go.set()
        self._looking = asyncio.create_task(self.leadership.run())

    async def die(self) -> None:
        """As by kill -9: nothing is said to anybody."""
        for task in (self._looking, self._work):
            task.cancel()
        await asyncio.gather(self._looking, self._work, return_exceptions=True)
        await self.leadership.close()
        await self.log.close()

    async def stop(self) -> None:
        self._stop.set()
        await self._work
        await self.die()

    async def _note(self) -> None:
        self.stood_down += 1


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(TIME_LIMIT_S):
            await scenario()

    asyncio.run(bounded())


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.01)


async def submitted(server: NatsServer, *numbers: int) -> JetStreamLog:
    """Another process's log, with these jobs asked for."""
    log = await JetStreamLog.connect(server.url, cluster=CLUSTER)
    await log.append([intake(number) for number in numbers])
    return log


def test_one_decides_the_other_follows_and_is_told_of_an_orderly_end(server: NatsServer) -> None:
    async def scenario() -> None:
        first = await (await Candidate(server, "a").start()).leads()
        second = await Candidate(server, "b").start()
        log = await submitted(server, 1)
        await answered(log, 1)
        await until(lambda: second.loop.state.position == first.loop.state.position)
        assert second.leadership.standing.leader == first.leadership.holder
        assert second.loop.epoch is None and not second.loop.state.waiting, "a follower is warm and says nothing"
        began = asyncio.get_running_loop().time()
        await first.stop()
        await second.leads()
        assert asyncio.get_running_loop().time() - began < TTL_S / 2
        await log.append([intake(2)])
        assert await answered(log, 2) == ["j1", "j2"]
        assert len(await read_all(log, [PlacerLeadTaken])) == 2
        await second.stop()
        await log.close()

    play(scenario)


def test_what_a_suspended_leader_had_in_hand_is_refused(server: NatsServer) -> None:
    """Nothing but the new leader's own fact has come into the lane meanwhile: that refuses it."""
    speaks = False

    def decide(state: Asked, now: Millis) -> Decision:
        return ANSWERER.decide(state, now) if speaks else Decision(assumes=state.position)

    async def scenario() -> None:
        nonlocal speaks
        first = await (await Candidate(server, "a").start()).leads()
        first.suspend()
        log = await submitted(server, 1)
        await until(lambda: bool(first.log.in_hand))
        second = await (await Candidate(server, "b", role=replace(TWIN, decide=decide)).start()).leads()
        head = await log.head()
        first.wake()
        await until(lambda: not first.leadership.held and first.stood_down == 1)
        assert await log.head() == head, "a deposed leader wrote something"
        speaks = True
        second.loop.poke()
        assert await answered(log, 1) == ["j1"]
        in_hand = {fact.id for fact in first.log.in_hand}
        assert not in_hand & {entry.fact.id for entry in await read_all(log, [RunStopRequested])}
        for candidate in (first, second):
            await candidate.stop()
        await log.close()

    play(scenario)


def test_a_leader_that_cannot_reach_the_store_goes_on_until_another_has_taken_over(server: NatsServer) -> None:
    async def scenario() -> None:
        proxy = BreakingProxy(server.url)
        first = await (await Candidate(server, "a", store_url=await proxy.start()).start()).leads()
        epoch = first.loop.epoch
        assert await first.loop.confirmed_epoch() == epoch
        await proxy.stop()
        log = await submitted(server, 1)
        await answered(log, 1)
        assert await first.loop.confirmed_epoch() is None, "nothing outside the log is done without the store"
        over_at = asyncio.get_running_loop().time() + TTL_S
        await until(lambda: asyncio.get_running_loop().time() > over_at)  # nobody else is there: its lease has ended
        await log.append([intake(2)])
        await answered(log, 2)
        assert first.loop.epoch == epoch
        second = await (await Candidate(server, "b").start()).leads()
        await log.append([intake(3)])
        assert await answered(log, 3) == ["j1", "j2", "j3"]
        await until(lambda: first.loop.epoch is None and first.stood_down == 1)
        assert second.loop.epoch is not None and second.loop.epoch > (epoch or 0)
        for candidate in (first, second):
            await candidate.stop()
        await log.close()

    play(scenario)


def test_a_store_that_is_gone_is_made_again(server: NatsServer) -> None:
    """As after a restore of the log alone."""

    async def scenario() -> None:
        candidates = [await Candidate(server, name).start() for name in ("a", "b")]
        await until(lambda: any(candidate.loop.epoch is not None for candidate in candidates))
        client = await nats.connect(server.url)
        await client.jetstream().delete_key_value(BUCKET)
        log = await submitted(server, 1)
        await answered(log, 1)
        await until(lambda: sum(candidate.leadership.term for candidate in candidates) == 2)
        status = await (await client.jetstream().key_value(BUCKET)).status()
        assert status.values == 1
        await log.append([intake(2)])
        assert await answered(log, 2) == ["j1", "j2"]
        for candidate in candidates:
            await candidate.stop()
        await client.close()
        await log.close()

    play(scenario)


def test_who_comes_after_on_the_same_folder_does_not_wait(server: NatsServer) -> None:
    async def scenario() -> None:
        first = await (await Candidate(server, "a").start()).leads()
        await first.die()
        began = asyncio.get_running_loop().time()
        again = await (await Candidate(server, "a").start()).leads()
        assert asyncio.get_running_loop().time() - began < TTL_S / 2
        standby = await Candidate(server, "b").start()
        copy = await (await Candidate(server, "a").start()).leads()  # the folder was copied to another machine
        await until(lambda: not again.leadership.held)
        assert again.leadership.standing.leader == copy.leadership.holder, "it does not take it back"
        for candidate in (copy, standby, again):
            await candidate.stop()

    play(scenario)


def test_a_version_that_cannot_read_its_lane_leaves_the_lead_to_others(
    server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    """It says so once, and does not ask again and again."""
    caplog.set_level(logging.INFO)

    async def scenario() -> None:
        log = await submitted(server, 1)
        older = await (await Candidate(server, "a").start()).leads()
        await answered(log, 1)
        client = await nats.connect(server.url)
        await client.request(f"tenure.{CLUSTER}.place.runs.FromTomorrow", b'{"type":"FromTomorrow","at":1}')
        await log.append([intake(2)])
        await until(lambda: any("install the newer one" in message for message in caplog.messages))
        await until(lambda: not older.leadership.held and older.loop.epoch is None)
        follower = await Candidate(server, "b").start()
        await until(lambda: sum("install the newer one" in message for message in caplog.messages) == 2)
        assert [fact.fact for fact in await read_all(log, [RunStopRequested])][1:] == []
        for candidate in (older, follower):
            await candidate.stop()
        await client.close()
        await log.close()

    play(scenario)
