"""The one loop of every role: fold what came, decide, append, carry out, wait. The simulator runs the same functions.

restore -> catch up -> [ wait -> fold -> decide -> append -> fold own facts -> perform ] until stopped

Where a role runs more than once, all of them fold and one decides: the one whose `LeadTaken` is the last in the log.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Generic

from tenure.domain.ids import LOG_START, FactId, Position
from tenure.domain.units import Millis
from tenure.events.fact import Fact, Recorded
from tenure.log.port import Conflict, Expect, Feed, Log, LogFull, Unavailable
from tenure.runtime.clock import Clock
from tenure.runtime.lag import EVERY_S, LagWatch
from tenure.runtime.leadership import Leadership
from tenure.runtime.poison import Unfoldable, condemn, end_of_lane
from tenure.runtime.role import Role, S
from tenure.runtime.snapshot import Snapshot, SnapshotStore
from tenure.runtime.stamp import stamped
from tenure.runtime.telemetry import LoopMetrics
from tenure.runtime.tracing import writing

logger = logging.getLogger(__name__)

SNAPSHOT_EVERY, SNAPSHOT_AFTER_S = 5_000, 5.0
"""After so many facts a quiet moment is used for the next snapshot; without one it is taken after so long."""
QUIET_S = 0.5
"""So long without a fact is a quiet moment: writing a snapshot of a large state holds the role up."""
RETRY_FIRST_S, RETRY_LONGEST_S = 0.1, 2.0
VAIN_MAX = 5
"""After so many conflicts with nothing to fold the lane has a fact that this version cannot read."""
AWAY_MS = 2_000
"""Waking up so long after it was meant to, the process was suspended: what it knows may be old."""


async def _no_instructions(instructions: Sequence[Any]) -> None:
    assert not instructions, "this role has no hands"


class Loop(Generic[S]):
    """Runs one role against a log. One owner of the state, one thread, no locks."""

    def __init__(
        self,
        role: Role[S],
        log: Log,
        clock: Clock,
        *,
        cluster: str,
        snapshots: SnapshotStore | None = None,
        perform: Callable[[Sequence[Any]], Awaitable[None]] = _no_instructions,
        rest_factor: float = 0.0,
        look_every_s: float = EVERY_S,
    ) -> None:
        """`rest_factor`: how long to leave the processor to others after a decision, as a multiple of its duration.

        `look_every_s`: how often it is looked how far this process is behind the log, where anybody is told.
        """
        self.role = role
        self.state: S = role.initial()
        self.caught_up = asyncio.Event()
        self.on_restored: Callable[[S], Awaitable[None]] | None = None
        """The shell's own part of the state is restored here, before the tail of the log is folded."""
        self.on_return: Callable[[S], Awaitable[None]] | None = None
        """After an outage the shell sees here whether the log has what it was about to say. May raise `Unavailable`."""
        self.on_caught_up: Callable[[S], None] | None = None
        """Hears of the state when the log has been read."""
        self.leadership: Leadership | None = None
        """Who of several processes decides; None: this is the only one."""
        self.on_stand_down: Callable[[], Awaitable[None]] | None = None
        """This process decided and does not any more: its hands let go."""
        self.epoch: Position | None = None
        """Where our own `LeadTaken` stands, None while there is none or a later one of another process."""
        self._lead_id, self._lead_term, self._deciding = FactId(""), 0, False
        self._conflicts_in_vain = 0
        self._log, self._clock, self._cluster = log, clock, cluster
        self._snapshots, self._perform, self._rest_factor = snapshots, perform, rest_factor
        self.passed: Position = LOG_START
        """All that stands up to here is folded, or passed over."""
        self._guarded: Position = LOG_START
        self._since_snapshot = 0
        self._snapshot_at = time.monotonic()
        self._retry_s, self._began_ns = RETRY_FIRST_S, time.time_ns()
        self.behind = False
        """The log could not be reached, or we were suspended: read what came meanwhile before anything is decided."""
        self._poked = asyncio.Event()
        self._holders, self._free = 0, asyncio.Event()
        self._free.set()
        self._pending: asyncio.Task[Sequence[Recorded]] | None = None
        self._metrics, self._lag = LoopMetrics(), LagWatch(every_s=look_every_s)

    def poke(self) -> None:
        """Decide again soon: something that is no fact has changed (the shell's own observations)."""
        self._poked.set()

    def look_back(self) -> None:
        """Time has passed unseen: read what came meanwhile before anything is decided."""
        self.behind = True
        self.poke()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Fold nothing new meanwhile: the process has something more urgent to do, and soon done."""
        self._holders += 1
        self._free.clear()
        try:
            yield
        finally:
            self._holders -= 1
            if self._holders == 0:
                self._free.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set. Raises on a broken assertion: the process is to end and to be restarted.

        Raises `Unfoldable` after the fact was condemned, or the own snapshot was thrown away by a role that condemns
        nothing; `Condemned` when another role did that: the same, once.
        """
        try:
            await self._run(stop)
        except Unfoldable as poison:
            if self.role.condemns:
                await condemn(self._log, poison, by=self.role.name)
            elif self._snapshots is not None:
                self._snapshots.discard()
            raise

    async def _run(self, stop: asyncio.Event) -> None:
        await self._restore()
        if self.on_restored is not None:
            await self.on_restored(self.state)
        feed = await self._log.follow(self.role.reads, after=self.state.position, rest_s=self.role.rest_s)
        stopped = asyncio.create_task(stop.wait())
        stopped.add_done_callback(lambda _: self.poke())
        told = asyncio.create_task(
            self._lag.run(lambda: self._log.head(self.role.reads), lambda: self.passed, self.caught_up)
        )
        try:
            await self._fold_until(feed, await self._log.head(self.role.reads))
            self.caught_up.set()
            logger.info("caught up at position %d", self.state.position)
            if self.on_caught_up is not None:
                self.on_caught_up(self.state)
            while not stop.is_set():
                wake_at = await self._step(feed)
                if not stop.is_set():
                    await self._wait(feed, wake_at)
            if self.leadership is not None:
                await self.leadership.leave()
        finally:
            stopped.cancel()
            told.cancel()
            if self._pending is not None:
                self._pending.cancel()
            await feed.close()
        self._save_snapshot()

    async def confirmed_epoch(self) -> Position | None:
        """To be asked before acting on the world: since where this process leads, as log and store of leases say now.

        None if another does, or the store does not answer; the log's start where nobody else can.
        """
        if self.leadership is None:
            return LOG_START
        return self.epoch if await self.leadership.confirm() else None

    async def _step(self, feed: Feed) -> Millis | None:
        """Decide once, append, fold the own facts, carry out. Returns when to wake, None for the next fact."""
        if self.leadership is not None and not await self._leads(feed, self.leadership):
            return self._clock.now() if self.leadership.held else None
        if self.behind and not await self._catch_up(feed):
            return self._clock.now()
        began, self._began_ns = time.perf_counter(), time.time_ns()
        decision = self.role.decide(self.state, self._clock.now())
        took = time.perf_counter() - began
        self._metrics.decided(took)
        self._metrics.quarantined(feed.quarantined)
        assert decision.assumes == self.state.position, "a decision must be made on the present state"
        facts = stamped(decision, role=self.role.name, cluster=self._cluster)
        if facts and not await self._append(feed, facts):
            return self._clock.now()
        if decision.instructions:
            await self._perform(decision.instructions)
        if took * self._rest_factor > 0.001:
            await asyncio.sleep(took * self._rest_factor)
        return self._clock.now() if decision.facts else decision.wake_at

    async def _leads(self, feed: Feed, leadership: Leadership) -> bool:
        """Whether this process is to decide; a new holder of the lease first writes that it leads."""
        if leadership.held and self.epoch is not None and self._lead_term == leadership.term:
            return True
        if self._deciding:
            self._deciding, self.epoch = False, None
            if self.on_stand_down is not None:
                await self.on_stand_down()
            self.state = self.role.load(self.role.dump(self.state))  # what only a decider knows is old by the next time
        return leadership.held and await self._take_lead(feed, leadership)

    async def _take_lead(self, feed: Feed, leadership: Leadership) -> bool:
        """Fold all there is and write that this process leads: what an earlier leader still has in hand is void then.

        Only a process that the store says leads, now, may depose another by that.
        """
        assert self.role.lead is not None, "a role that runs twice says who leads"
        if not await leadership.confirm():
            if leadership.held:  # the store is away
                await self._pause()
            return False
        if not await self._catch_up(feed):
            return False
        self._lead_id = FactId(f"{self.role.name}-lead-{os.urandom(8).hex()}")
        self._lead_term = leadership.term
        now = self._clock.now()
        taken = self.role.lead(at=now, id=self._lead_id, cluster=self._cluster, holder=leadership.holder)
        if not await self._append(feed, [taken]) or self.epoch is None:
            return False
        logger.info("deciding from position %d on", self.epoch)
        self._deciding = True
        return True

    async def _append(self, feed: Feed, facts: Sequence[Fact]) -> bool:
        """Append on the assumption of the present state; False if it is void and must be decided again."""
        guard = self.role.guard
        expect = None if guard is None else Expect(lane=guard, last=self._guarded)
        try:
            with writing(facts, since_ns=self._began_ns):
                appended = await self._log.append(facts, expect=expect)
        except Conflict as conflict:
            logger.info("decided on an old position, deciding again: %s", conflict)
            self._metrics.conflict()
            await self._fold_conflict(feed)
            return False
        except (Unavailable, LogFull) as trouble:
            logger.warning("the log did not take %d facts, trying again: %s", len(facts), trouble)
            self.behind = self.behind or isinstance(trouble, Unavailable)
            await self._pause()
            return False
        self._retry_s, self._conflicts_in_vain = RETRY_FIRST_S, 0
        self._metrics.appended(len(facts))
        if appended.partial:  # what stands at `last` may be of a kind that our feed does not give
            self.behind = True
        elif type(facts[-1]) in self.role.reads:
            await self._fold_until(feed, appended.last)
        return True

    async def _fold_conflict(self, feed: Feed) -> None:
        """Fold what another wrote first. Where nothing comes of that, it is no fact, or one of a newer version."""
        guarded = self._guarded
        await self._fold_more(feed)
        if self._guarded != guarded or not await self._catch_up(feed) or self._guarded != guarded:
            return
        if await self._pass_over():
            return
        self._conflicts_in_vain += 1
        await self._pause()
        if self._conflicts_in_vain >= VAIN_MAX:
            self._conflicts_in_vain = 0
            logger.error("the lane %s has a fact that this version cannot read: install the newer one", self.role.guard)
            if self.leadership is not None:
                await self.leadership.stand_back()

    async def _pass_over(self) -> bool:
        """Whether what stands last in the guarded lane is no fact of any version: the next condition begins there."""
        assert self.role.guard is not None, "only a condition can meet a conflict"
        try:
            end = await end_of_lane(self._log, self.role.guard, after=self._guarded)
        except Unavailable as trouble:
            logger.warning("the log cannot be reached, trying again: %s", trouble)
            return False
        if end is None or end <= self._guarded:  # there is more in the lane than the kinds we know
            return False
        self._guarded = end
        return True

    async def _catch_up(self, feed: Feed) -> bool:
        """After an absence: fold up to where the log is now; False if it still cannot be reached."""
        try:
            head = await self._log.head(self.role.reads)
            if self.on_return is not None:
                await self.on_return(self.state)
        except Unavailable as trouble:
            logger.warning("the log cannot be reached, trying again: %s", trouble)
            await self._pause()
            return False
        await self._fold_until(feed, head)
        self.behind = False
        return True

    async def _pause(self) -> None:
        await asyncio.sleep(self._retry_s)
        self._retry_s = min(self._retry_s * 2, RETRY_LONGEST_S)

    async def _wait(self, feed: Feed, wake_at: Millis | None) -> None:
        """Wait for facts, a poke or the wake-up time, and fold what came."""
        await self._free.wait()
        began = self._clock.now()
        timeout = None if wake_at is None else max(0.0, (wake_at - began) / 1000)
        reading = self._reading(feed)
        poked = asyncio.create_task(self._poked.wait())
        if self._since_snapshot >= SNAPSHOT_EVERY and (timeout is None or timeout >= QUIET_S):
            done, _ = await asyncio.wait({reading, poked}, timeout=QUIET_S, return_when=asyncio.FIRST_COMPLETED)
            timeout = None if timeout is None else timeout - QUIET_S
            if not done:
                self._save_snapshot()
        await asyncio.wait({reading, poked}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        poked.cancel()
        self._poked.clear()
        if wake_at is not None and self._clock.now() - max(began, wake_at) >= AWAY_MS:
            self.behind = True
        if reading.done():
            self._pending = None
            self._fold(reading.result())
            self.passed = feed.passed

    async def _fold_until(self, feed: Feed, position: Position) -> None:
        """Fold until the fact at `position` is folded, or was skipped because it cannot be read."""
        feed.hasten(position)
        while self.state.position < position:
            has_read = self._pending is not None and self._pending.done()
            if feed.passed >= position and not has_read:
                return
            facts = await self._reading(feed)
            self._pending = None
            self._fold(facts)
            self.passed = feed.passed

    async def _fold_more(self, feed: Feed) -> None:
        """Fold what has arrived, waiting a little for something to arrive."""
        reading = self._reading(feed)
        await asyncio.wait({reading}, timeout=RETRY_LONGEST_S)
        if reading.done():
            self._pending = None
            self._fold(reading.result())
            self.passed = feed.passed

    def _reading(self, feed: Feed) -> "asyncio.Task[Sequence[Recorded]]":
        """The read that is under way; never two, never one cancelled half-way (facts would be lost)."""
        if self._pending is None:
            self._pending = asyncio.create_task(feed.next(None))
        return self._pending

    def _fold(self, facts: Sequence[Recorded]) -> None:
        guard, lead, evolve, state = self.role.guard, self.role.lead, self.role.evolve, self.state
        for recorded in facts:
            assert recorded.position > state.position, "the log gave a fact twice or out of order"
            try:
                evolve(state, recorded)
            except Exception as error:
                raise Unfoldable(recorded, error) from error
            assert state.position == recorded.position, "evolve must say how far it has read"
            if guard is not None and guard.covers(recorded.fact.lane):
                self._guarded = recorded.position
                if type(recorded.fact) is lead:
                    self.epoch = recorded.position if recorded.fact.id == self._lead_id else None
        self._metrics.folded(len(facts))
        self._since_snapshot += len(facts)
        overdue = time.monotonic() - self._snapshot_at >= SNAPSHOT_AFTER_S
        if self._since_snapshot >= SNAPSHOT_EVERY and overdue and self.caught_up.is_set():
            self._save_snapshot()

    async def _restore(self) -> None:
        snapshot = self._snapshots.load() if self._snapshots else None
        if snapshot is None:
            return
        if snapshot.position > (head := await self._log.head()):  # the log was put back to an older backup
            logger.warning("the log ends at %d, before the snapshot of %d: reading it all", head, snapshot.position)
            return
        try:
            self.state = self.role.load(snapshot.payload)
        except ValueError as damage:
            logger.warning("the snapshot cannot be used, reading the whole log: %s", damage)
            return
        assert self.state.position == snapshot.position, "a snapshot must hold the position it was taken at"
        self._guarded = snapshot.guarded

    def _save_snapshot(self) -> None:
        self._since_snapshot, self._snapshot_at = 0, time.monotonic()
        if self._snapshots is None:
            return
        payload = self.role.dump(self.state)
        try:
            self._snapshots.save(Snapshot(position=self.state.position, guarded=self._guarded, payload=payload))
        except OSError as error:
            logger.warning("no snapshot was saved (the next start will read more of the log): %s", error)
