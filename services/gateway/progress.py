"""Who waits for what: for the fold to reach a position, or for a job or host to change. One event loop, no locks."""

import asyncio
import heapq
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count

from services.gateway.decider import Folded
from tenure.domain.ids import LOG_START, Position


class Progress:
    """How far the fold has come, and those it wakes. `stopped` is set once, when the gateway goes down."""

    def __init__(self) -> None:
        self.position: Position = LOG_START
        self.stopped = asyncio.Event()
        self._waiting: list[tuple[Position, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self._watching: dict[str, dict[asyncio.Event, None]] = {}

    @property
    def stopping(self) -> bool:
        """The gateway goes down: whatever waits is to end."""
        return self.stopped.is_set()

    async def perform(self, instructions: Sequence[Folded]) -> None:
        """The loop's hands."""
        for folded in instructions:
            self.advance(folded.position, folded.changed)

    def advance(self, position: Position, changed: Iterable[str]) -> None:
        """The fold has come to `position`; jobs and hosts of these ids have changed."""
        self.position = position
        while self._waiting and self._waiting[0][0] <= position:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)
        if self._watching:
            for name in changed:
                for event in self._watching.get(name, ()):
                    event.set()

    async def reached(self, position: Position, *, timeout_s: float) -> bool:
        """Wait until the fold has come to `position`; False when time is up."""
        if position <= self.position:
            return True
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (position, next(self._numbers), future))
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            return False
        return True

    @contextmanager
    def watching(self, name: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever the job or host changes, and when the gateway goes down."""
        event = asyncio.Event()
        self._watching.setdefault(name, {})[event] = None
        try:
            yield event
        finally:
            watchers = self._watching[name]
            del watchers[event]
            if not watchers:
                del self._watching[name]

    @property
    def watched(self) -> int:
        """How many jobs and hosts somebody watches."""
        return len(self._watching)

    def stop(self) -> None:
        """Wake every watcher for good."""
        self.stopped.set()
        for watchers in self._watching.values():
            for event in watchers:
                event.set()
