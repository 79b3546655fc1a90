"""The agent's clock: the machine's, unless that is far from the log's server, whose time counts then.

A clock that is hours off would charge hours that nobody had, or make a host that works look dead. Between two looks at
the server time goes on by the machine's uptime, so setting the machine's clock changes nothing meanwhile.
"""

import asyncio
import json
import logging
import time
from datetime import datetime

import nats.errors
from nats.aio.client import Client

from tenure.domain.units import MINUTE, SECOND, Millis
from tenure.log.subjects import Subjects

logger = logging.getLogger(__name__)

FAR_MS: Millis = 10 * SECOND
"""A clock that is less far off is left as it is: heartbeats allow for it."""
LOOK_EVERY_MS: Millis = 5 * MINUTE
_ANSWER_S = 5.0
_TRIES = 3


class LogClock:
    """See `Clock`. `offset_ms`: how far the machine's clock is ahead of the log's server, None: not known yet."""

    def __init__(self) -> None:
        self.offset_ms: Millis | None = None
        self._booted_at = _wall() - _uptime()
        self._latest: Millis = 0

    def now(self) -> Millis:
        """See `Clock.now`."""
        self._latest = max(self._latest, self._booted_at + _uptime())
        return self._latest

    @property
    def ahead_ms(self) -> Millis:
        """What is to be taken from an instant of the machine's clock: 0 unless that is far off."""
        return self.offset_ms if self.offset_ms is not None and abs(self.offset_ms) >= FAR_MS else 0

    def compare(self, offset_ms: Millis) -> None:
        """The machine's clock was found to be `offset_ms` ahead of the server's."""
        before, self.offset_ms = self.ahead_ms, offset_ms
        self._booted_at = _wall() - self.ahead_ms - _uptime()
        if self.ahead_ms and not before:
            logger.warning("this machine's clock is %.1f s ahead of the log's; the log's counts", offset_ms / SECOND)

    async def look(self, connection: Client, *, cluster: str) -> None:
        """Compare with the server's clock, by the quickest of some answers. Changes nothing where none comes."""
        best: tuple[float, Millis] | None = None
        for _ in range(_TRIES):
            asked = time.monotonic()
            try:
                answer = await connection.request(
                    f"$JS.API.STREAM.INFO.{Subjects(cluster).stream}", b"", timeout=_ANSWER_S
                )
                at = datetime.fromisoformat(json.loads(answer.data)["ts"])
            except (nats.errors.Error, ValueError, KeyError, TypeError, OSError):
                continue
            took = time.monotonic() - asked
            offset = _wall() - int((at.timestamp() + took / 2) * SECOND)
            if best is None or took < best[0]:
                best = (took, offset)
        if best is not None:
            self.compare(best[1])

    async def keep(self, connection: Client, *, cluster: str) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_MS / SECOND)
            await self.look(connection, cluster=cluster)


def _wall() -> Millis:
    return time.time_ns() // 1_000_000


def _uptime() -> Millis:
    """Suspension counts."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
