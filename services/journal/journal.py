"""The journal's loop: read the log, make batches, write each; when ClickHouse is away, wait: the facts wait in the log.

connect -> resume -> follow the log after that -> [ collect -> write ] until stopped, and again from the top after any
trouble, so that nothing in memory matters. Of several journals one does this and the others wait for its lease.
"""

import asyncio
import contextlib
import json
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from clickhouse_connect.driver import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from services.journal.batch import Batch, begin
from services.journal.metrics import WriteMetrics
from services.journal.writer import Overtaken, Writer
from tenure.clickhouse.connect import brief
from tenure.domain.ids import LOG_START, Position
from tenure.domain.refusal import Refusal
from tenure.events.catalogue import KINDS
from tenure.events.fact import Recorded
from tenure.events.reports import Heartbeat
from tenure.log.port import BeyondEnd, Feed, Log, Unavailable
from tenure.runtime.lag import LagWatch
from tenure.runtime.leadership import Leadership

logger = logging.getLogger(__name__)

REST_S = 0.2
"""Facts gather in the log for up to so long; a batch is what has gathered, unless that is full."""
UNHURRIED_S = 1.0
"""A batch of nothing but heartbeats waits so long for more: nobody asks to the fifth of a second what hosts hold."""
BREATHER, BREATHER_LONGEST_S = 2, 0.4
"""After a batch that was not full the next one gathers for twice as long as it took to write, at most so long: a
database that is busy is given few large parts and not many small ones."""
RETRY_FIRST_S, RETRY_LONGEST_S = 0.1, 5.0
PROGRESS_EVERY_S = 1.0
WRITE_WITHIN_S = 60.0
"""A batch is written so soon after the lease was confirmed, or not: tokens of batches are remembered for longer."""


class Journal:
    """One journal. `progress_file` is kept at what is written and how much is not, about once a second."""

    def __init__(
        self, log: Log, connect: Callable[[], Client], *, progress_file: Path, cluster: str | None = None
    ) -> None:
        """`connect` makes a client; it raises `ConnectionError` while the server is away. `cluster`: see `Writer`."""
        self.position: Position = LOG_START
        self.caught_up = asyncio.Event()
        """Set when all that was in the log at the start is written, or another journal sees to that."""
        self.leadership: Leadership | None = None
        """Which of several journals writes; None: this is the only one."""
        self._look = asyncio.Event()
        self._log, self._connect, self._cluster, self._progress_file = log, connect, cluster, progress_file
        self._waiting: deque[Recorded] = deque()
        self._trouble = ""
        self._head: Position = LOG_START
        self._told_at = 0.0
        self._metrics, self._lag = WriteMetrics(), LagWatch()
        self._reached: Position = LOG_START

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set. Raises `Refusal` for what waiting does not cure."""
        self._head = await self._log.head()
        told = asyncio.create_task(self._lag.run(self._log.head, self._taken_in, self.caught_up))
        try:
            await self._run(stop)
        finally:
            told.cancel()

    async def _run(self, stop: asyncio.Event) -> None:
        delay = RETRY_FIRST_S
        while not stop.is_set():
            if not self._leads:
                self._metrics.stand_by()
                await self._stand_by(stop)
                continue
            before = self.position
            try:
                await self._serve(stop)
            except Overtaken as overtaken:
                logger.info("another journal writes here too, looking again where it is: %s", overtaken)
            except (ClickHouseError, OSError, Unavailable) as trouble:
                if isinstance(trouble, BeyondEnd):
                    raise _shorter_log(trouble, self.position) from trouble
                self._say_once(trouble)
                await self._tell_away(database=not isinstance(trouble, Unavailable))
                delay = RETRY_FIRST_S if self.position > before else min(2 * delay, RETRY_LONGEST_S)
                await _sleep(delay, stop)

    def look_up(self) -> None:
        """Another journal leads than before."""
        self._look.set()

    @property
    def _leads(self) -> bool:
        return self.leadership is None or self.leadership.held

    async def _stand_by(self, stop: asyncio.Event) -> None:
        """Wait until something changes."""
        if self.leadership is not None and self.leadership.standing.leader:
            self.caught_up.set()
        waits = [asyncio.create_task(self._look.wait()), asyncio.create_task(stop.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        self._look.clear()

    async def _may_write_until(self) -> float:
        """The instant, by `time.monotonic`, until which this journal may write. Raises `Overtaken`, `Unavailable`."""
        asked = time.monotonic()
        if self.leadership is not None and not await self.leadership.confirm():
            if self.leadership.held:
                raise Unavailable("the store of leases does not answer")
            raise Overtaken("another one leads")
        return asked + WRITE_WITHIN_S

    async def _serve(self, stop: asyncio.Event) -> None:
        """Go on where the database ends, until trouble or `stop`."""
        writer = Writer(await asyncio.to_thread(self._connect), cluster=self._cluster)
        identity, until = await self._log.identity(), await self._may_write_until()
        self.position = await asyncio.to_thread(writer.resume, identity, until=until)
        feed = await self._log.follow(tuple(KINDS.values()), after=self.position, rest_s=REST_S)
        logger.info("%swriting on after position %d", "all is well again, " if self._trouble else "", self.position)
        self._trouble = ""
        self._waiting.clear()
        try:
            await self._tell_progress(feed)
            while not stop.is_set() and self._leads:
                batch = await self._collect(feed, stop)
                if batch is not None:
                    until, began = await self._may_write_until(), time.monotonic()
                    await asyncio.to_thread(writer.write, batch, until=until)
                    self.position = batch.last
                    self._metrics.wrote(len(batch.events))
                    if not batch.is_full and not self._waiting:
                        await _sleep(min(BREATHER * (time.monotonic() - began), BREATHER_LONGEST_S), stop)
                if time.monotonic() - self._told_at >= PROGRESS_EVERY_S or not self.caught_up.is_set():
                    await self._tell_progress(feed)
        finally:
            await feed.close()

    async def _collect(self, feed: Feed, stop: asyncio.Event) -> Batch | None:
        """The next batch: full, or what gathered, or cut off by a month; None after a while."""
        batch: Batch | None = None
        ends, hurried = time.monotonic() + PROGRESS_EVERY_S, False
        while True:
            while self._waiting:
                if batch is None:
                    batch = begin(self._waiting[0])
                    ends = time.monotonic() + UNHURRIED_S
                elif batch.takes(self._waiting[0]):
                    batch.add(self._waiting[0])
                else:
                    return batch
                if not isinstance(self._waiting.popleft().fact, Heartbeat):
                    hurried = True
            rest = ends - time.monotonic()
            if rest <= 0 or hurried or stop.is_set() or (batch is not None and batch.is_full):
                return batch
            self._waiting.extend(await _next(feed, rest, stop))

    async def _tell_progress(self, feed: Feed) -> None:
        """Say how far the database has come, and note when it reaches what was there at the start.

        Facts that this version cannot read count as passed.
        """
        reached = self.position if self._waiting else max(self.position, feed.passed)
        if reached >= self._head:
            self.caught_up.set()
        self._told_at = time.monotonic()
        head = max(await self._log.head(), reached)
        self._reached = reached
        self._metrics.tell(reachable=True, waiting=head - reached)
        told = {"position": reached, "head": head, "lag": head - reached, "at_ms": time.time_ns() // 10**6}
        fresh = self._progress_file.with_suffix(".new")
        try:
            self._progress_file.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_text(json.dumps(told))
            os.replace(fresh, self._progress_file)
        except OSError as error:
            logger.warning("the progress file cannot be written: %s", error)

    def _taken_in(self) -> Position | None:
        """How far the database is known to have come; None where another journal sees to that."""
        return max(self._reached, self.position) or None if self._leads else None

    async def _tell_away(self, *, database: bool) -> None:
        """Say how much waits while the database is away (or, if not that, the log)."""
        waiting = None
        if self._metrics.wanted and database and self.position:
            with contextlib.suppress(Unavailable):
                waiting = max(0, await self._log.head() - self.position)
        self._metrics.tell(reachable=not database, waiting=waiting)

    def _say_once(self, trouble: Exception) -> None:
        """One line when trouble begins, not one a retry."""
        if not self._trouble:
            away = "the log" if isinstance(trouble, Unavailable) else "ClickHouse"
            logger.warning("waiting for %s, the facts wait in the log: %s", away, brief(trouble))
        self._trouble = str(trouble)


async def _next(feed: Feed, timeout_s: float, stop: asyncio.Event) -> Sequence[Recorded]:
    """What the feed gives within the time; a cancelled read loses nothing."""
    reading = asyncio.ensure_future(feed.next(timeout_s))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return reading.result() if reading.done() else ()
    finally:
        reading.cancel()
        stopping.cancel()


async def _sleep(seconds: float, stop: asyncio.Event) -> None:
    """Wait, but not beyond `stop`."""
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return


def _shorter_log(trouble: BeyondEnd, position: Position) -> Refusal:
    return Refusal(
        field="--clickhouse",
        problem=f"the database knows facts up to position {position}, the log does not reach that far ({trouble})",
        fix="restore the log, or name an empty database (--clickhouse http://host:port/NAME)",
    )
