"""Group commit: appends that come while others are being written go together in the next atomic batch.

The server makes each acknowledged write durable with a disk sync, which takes the same time for one fact as for a
thousand. So sixteen callers cost hardly more than one, and each still gets its own position and its own refusal.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from tenure.log.port import ATOMIC_MAX, LogFull
from tenure.log.publish import Letter, Place

BYTES_MAX = 4 << 20
"""Payload of one group, unless a single append is larger."""
BATCH_PAYS_FROM = 8
"""A batch costs the server about 3 ms however small it is, a plain publish 0.3 ms: so many of those cost the same."""

IN_FLIGHT_MAX = 2
"""Groups on their way at a time: the next is encoded and sent while the server commits the one before."""

Write = Callable[[Sequence[Letter]], Awaitable[list[Place]]]


@dataclass(slots=True, eq=False)
class _Entry:
    letters: Sequence[Letter]
    placed: "asyncio.Future[list[Place]]"
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = sum(len(letter.payload) for letter in self.letters)


class GroupCommit:
    """Collects unconditional appends and writes them with `write`, few groups at a time, begun in order."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._queue: deque[_Entry] = deque()
        self._writing: asyncio.Task[None] | None = None

    async def append(self, letters: Sequence[Letter]) -> list[Place]:
        """Write the letters with whatever else is waiting. Returns and raises what `write` does for them alone."""
        entry = _Entry(letters, asyncio.get_running_loop().create_future())
        self._queue.append(entry)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all())
        return await entry.placed

    async def close(self) -> None:
        """Wait for what is being written."""
        if self._writing is not None:
            await self._writing

    async def _write_all(self) -> None:
        flying: deque[asyncio.Task[None]] = deque()
        try:
            while self._queue or flying:
                while self._queue and len(flying) < IN_FLIGHT_MAX:
                    flying.append(asyncio.create_task(self._write_group(self._next_group())))
                await flying.popleft()
        finally:
            self._writing = None

    def _next_group(self) -> list[_Entry]:
        """The entries that go together: at least one, in order, with different ids."""
        group = [self._queue.popleft()]
        ids = {letter.id for letter in group[0].letters}
        count, size = len(group[0].letters), group[0].size
        while self._queue:
            entry = self._queue[0]
            count, size = count + len(entry.letters), size + entry.size
            if count > ATOMIC_MAX or size > BYTES_MAX or any(letter.id in ids for letter in entry.letters):
                break
            ids.update(letter.id for letter in entry.letters)
            group.append(self._queue.popleft())
        return group

    async def _write_group(self, group: Sequence[_Entry]) -> None:
        letters = [letter for entry in group for letter in entry.letters]
        if len(group) == len(letters) < BATCH_PAYS_FROM:
            await self._write_each(group)
            return
        try:
            placed = await self._write(letters)
        except LogFull:
            await self._write_each(group)  # a small one may still fit where all of them do not
            return
        except Exception as error:  # noqa: BLE001  # whatever it is belongs to those who wait, not to this task
            for entry in group:
                _settle(entry, error)
            return
        start = 0
        for entry in group:
            _settle(entry, placed[start : start + len(entry.letters)])
            start += len(entry.letters)

    async def _write_each(self, group: Sequence[_Entry]) -> None:
        writes = (self._write(entry.letters) for entry in group)
        for entry, result in zip(group, await asyncio.gather(*writes, return_exceptions=True), strict=True):
            _settle(entry, result)


def _settle(entry: _Entry, result: list[Place] | BaseException) -> None:
    if entry.placed.done():
        return  # its caller was cancelled meanwhile
    if isinstance(result, BaseException):
        entry.placed.set_exception(result)
    else:
        entry.placed.set_result(result)
