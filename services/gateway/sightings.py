"""When each host was last heard, for people to see. Apart from the fold: no answer waits for a heartbeat."""

import asyncio
import logging
from collections.abc import Mapping

from tenure.domain.ids import LOG_START, HostId, Position
from tenure.domain.units import Millis
from tenure.events.reports import Heartbeat
from tenure.log.port import Log, Unavailable

logger = logging.getLogger(__name__)

REST_S = 1.0
LOOKS_BACK = 50_000
"""So many facts before the log's end are looked through at the start: several intervals of the largest cluster."""
RETRY_S = 2.0


class Sightings:
    """The last heartbeat of each host, a second late at most."""

    def __init__(self, log: Log) -> None:
        self._log, self._at = log, dict[HostId, Millis]()

    @property
    def at(self) -> Mapping[HostId, Millis]:
        """When each host that was heard lately was heard last."""
        return self._at

    async def run(self) -> None:
        """Follow the heartbeats until cancelled. An outage of the log leaves the hosts as old as they were."""
        while True:
            try:
                after = Position(max(LOG_START, await self._log.head() - LOOKS_BACK))
                feed = await self._log.follow([Heartbeat], after=after, rest_s=REST_S)
                try:
                    while True:
                        for recorded in await feed.next(None):
                            self._hear(recorded.fact)
                finally:
                    await feed.close()
            except Unavailable as trouble:
                logger.warning("heartbeats cannot be followed, trying again: %s", trouble)
            await asyncio.sleep(RETRY_S)

    def _hear(self, fact: object) -> None:
        assert isinstance(fact, Heartbeat), "nothing else was asked for"
        for beat in fact.hosts:
            if fact.at > self._at.get(beat.host, 0):
                self._at[beat.host] = fact.at
