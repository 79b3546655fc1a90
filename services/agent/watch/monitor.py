"""The loop around the sources: each read on its own interval in a thread of its own, what changed handed on to be said.

Nothing here is awaited by heartbeats, launches or stops. A read that hangs costs a thread, and a signal that says so;
that source is read again when the thread returns.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence

from services.agent.patience import in_thread
from services.agent.signals.signal import raise_signal
from services.agent.signals.storms import WINDOW_MS
from services.agent.watch.incidents import Incidents
from services.agent.watch.sources import Source
from tenure.domain.ids import FactId, HostId
from tenure.domain.severity import Severity
from tenure.domain.units import MINUTE, SECOND, Millis
from tenure.events.reports import HealthSignal, HostSignal
from tenure.runtime.clock import Clock

logger = logging.getLogger(__name__)

SAY_EVERY_MS: Millis = 10 * SECOND
"""Reports are at least so far apart, but for the gravest signals."""
LOOK_S = 2.0
"""Between two runs a host is looked at for so long at most."""
AT_ONCE_MS: Millis = 5 * SECOND
"""For so long after such a look what asks for a drain is said at once, too."""
QUICK_MS: Millis = MINUTE
"""What is read so often is quickly read."""
WATCHDOG = "watchdog"
"""Source of the signals about sources."""


class Monitor:
    """The health of one host. Belongs to one event loop."""

    def __init__(self, sources: Sequence[Source], *, host: HostId, clock: Clock, window_ms: Millis = WINDOW_MS) -> None:
        self.report: Callable[[HostSignal], None] = lambda _: None
        """Takes a report that is to be said; `said` tells that the log has it. There is one at a time."""
        self._sources, self._host, self._clock = sources, host, clock
        self._incidents = Incidents(window_ms=window_ms)
        self._pending: HostSignal | None = None
        self._said_at: Millis = 0
        self._at_once_until: Millis = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._begun: dict[str, int] = {}
        """Reads of each source that were begun, and are done ..."""
        self._done: dict[str, int] = {}
        self._wake = {source.name: asyncio.Event() for source in sources}
        self._changed = asyncio.Condition()
        """... and when one is."""
        self._hanging: dict[str, None] = {}
        self._warned: dict[str, str] = {}

    def start(self, known: Iterable[HealthSignal]) -> None:
        """Begin to read. `known`: the incidents of this host that the log has as open."""
        keys = [source.key for source in self._sources]
        events = [source.key for source in self._sources if source.events]
        watched = [*keys, *([WATCHDOG] if self._sources else [])]
        self._incidents.adopt(known, sources=watched, events=events, now=self._clock.now())
        self._tasks = [asyncio.create_task(self._follow(source)) for source in self._sources]
        if self._sources:
            self._tasks.append(asyncio.create_task(self._remind()))
        self._say()

    def said(self) -> None:
        """The log has the pending report."""
        if self._pending is not None:
            self._incidents.said(self._pending.signals, self._clock.now())
            self._pending, self._said_at = None, self._clock.now()
            self._say()

    async def close(self) -> None:
        """Stop. Threads that hang are left behind; they end with the process."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def look_again(self, host: HostId, *, limit_s: float = LOOK_S) -> None:
        """Between two runs (S63): read what is read often once more, and have it said, before the GPUs are free.

        Returns after `limit_s` at the latest; what asks for longer is read on its own interval.
        """
        quick = [source.name for source in self._sources if source.every_ms <= QUICK_MS and host == self._host]
        wanted = {name: self._begun.get(name, 0) + 1 for name in quick}
        for name in quick:
            self._wake[name].set()

        def all_read() -> bool:
            return all(self._done.get(name, 0) >= number for name, number in wanted.items())

        self._at_once_until = self._clock.now() + AT_ONCE_MS
        async with self._changed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait_for(all_read), limit_s)

    async def _follow(self, source: Source) -> None:
        name = source.name
        wake = self._wake[name]
        while True:
            wake.clear()
            self._begun[name] = number = self._begun.get(name, 0) + 1
            await self._read(source)
            async with self._changed:
                self._done[name] = number
                self._changed.notify_all()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(wake.wait(), source.every_ms / SECOND)

    async def _read(self, source: Source) -> None:
        now = self._clock.now()
        reading = in_thread(lambda: source.read(now), name=f"signals-{source.name}")
        done, _ = await asyncio.wait([reading], timeout=source.limit_ms / SECOND)
        if not done:
            self._watch(source, hangs=True)
            await asyncio.wait([reading])
        if self._hanging or self._incidents.shows(WATCHDOG):
            self._watch(source, hangs=False)
        error = reading.exception()
        if error is not None:
            self._warn(source, error)
            return
        self._warned.pop(source.name, None)
        note = self._incidents.sighted if source.events else self._incidents.observed
        note(reading.result(), source=source.key, now=self._clock.now())
        self._say()

    def _watch(self, source: Source, *, hangs: bool) -> None:
        """Keep in view which sources do not answer."""
        if hangs:
            self._hanging[source.name] = None
        else:
            self._hanging.pop(source.name, None)
        now = self._clock.now()
        text = "it did not answer in time"
        signals = [
            raise_signal("source_hangs", Severity.WATCH, text, source=WATCHDOG, at=now, device=name)
            for name in self._hanging
        ]
        self._incidents.observed(signals, source=WATCHDOG, now=now)
        self._say()

    def _warn(self, source: Source, error: BaseException) -> None:
        """Say in the agent's own log, once a kind of trouble, what cannot be read."""
        words = f"{type(error).__name__}: {error}"
        if self._warned.get(source.name) != words:
            self._warned[source.name] = words
            logger.warning("%s cannot be read for signals of health: %s", source.name, words)

    async def _remind(self) -> None:
        """Time alone ends incidents and lets waiting ones be said."""
        while True:
            await asyncio.sleep(SAY_EVERY_MS / SECOND)
            if self._incidents.waiting:
                self._say()

    def _say(self) -> None:
        """Hand on what is due, unless a report is on its way or the last one was just now."""
        if self._pending is not None:
            return
        now = self._clock.now()
        due = self._incidents.due(now)
        grave = (Severity.FATAL, Severity.DRAIN) if now < self._at_once_until else (Severity.FATAL,)
        at_once = any(signal.severity in grave and not signal.over for signal in due)
        if not due or (now - self._said_at < SAY_EVERY_MS and not at_once):
            return
        self._pending = HostSignal(at=now, id=FactId(f"{self._host}-health-{now}"), host=self._host, signals=tuple(due))
        self.report(self._pending)
