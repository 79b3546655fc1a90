"""Whether this process leads its role: holds the lease while it can, and looks again and again while another does.

A leader that the store does not answer goes on: its appends show whether it still leads. It stops leading when the
store says that the lease is another's, or when the log has another leader's fact (`tenure/runtime/loop.py`).
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable

import msgspec

from tenure.domain.units import Millis
from tenure.log.lease import Lease, StoreAway
from tenure.runtime.telemetry import LEADING, Gauges

logger = logging.getLogger(__name__)

RENEW_S = 1.0
LOOK_S = 0.25
"""How often a standby looks whether the lease is free."""
STAND_BACK_S = 30.0
"""How long a process that cannot do the leader's work leaves it to others."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Who leads, as this process knows it. `since`: since when it does, `leader` empty if nobody is known to."""

    leading: bool
    leader: str
    since: Millis


class Leadership:
    """One process's part in leading. `term` counts how often it got the lease anew."""

    def __init__(self, lease: Lease) -> None:
        self.term = 0
        self.on_change: list[Callable[[], None]] = []
        """Called when `standing` has changed."""
        self._lease = lease
        self._asking = asyncio.Lock()
        self._standing = Standing(leading=False, leader="", since=0)
        self._back_at = 0.0
        self._is_away = False
        self._gauges = Gauges([LEADING])
        self._tell_metric()

    @property
    def held(self) -> bool:
        """Whether this process is to lead, as far as it knows."""
        return self._lease.held

    @property
    def standing(self) -> Standing:
        """Who leads now."""
        return self._standing

    @property
    def holder(self) -> str:
        """This process as others read it."""
        return self._lease.holder.name

    async def run(self) -> None:
        """Renew or look, until cancelled and told to `leave`: nats-py may overlook a cancellation and go on."""
        while self._back_at < math.inf:
            await self.look()
            await asyncio.sleep(RENEW_S if self.held else LOOK_S)

    async def look(self) -> None:
        """Renew the lease, or take it if it is free."""
        async with self._asking:
            try:
                if not (self.held and await self._ask(self._lease.renew)):
                    await self._claim()
            except StoreAway:
                await self._lease.mend()
        self._tell()

    async def confirm(self) -> bool:
        """Whether the store says, now, that the lease is ours. False as well when it does not answer."""
        try:
            async with self._asking:
                return await self._ask(self._lease.renew)
        except StoreAway:
            return False
        finally:
            self._tell()

    def retire(self) -> None:
        """Claim nothing any more."""
        self._back_at = math.inf

    async def leave(self) -> None:
        """Give the lease up at once: this process is about to end."""
        self.retire()
        await self._give_up()

    async def stand_back(self) -> None:
        """Leave the lead to others for a while."""
        self._back_at = time.monotonic() + STAND_BACK_S
        await self._give_up()

    async def close(self) -> None:
        """Let go of the store."""
        await self._lease.close()

    async def _claim(self) -> None:
        if time.monotonic() >= self._back_at and await self._ask(self._lease.claim):
            self.term += 1

    async def _give_up(self) -> None:
        async with self._asking:
            await self._lease.release()
        self._tell()

    async def _ask(self, question: Callable[[], Awaitable[bool]]) -> bool:
        try:
            answer = await question()
        except StoreAway as trouble:
            if not self._is_away:
                follows = "leading on" if self.held else "following"
                logger.warning("the store of leases does not answer, %s: %s", follows, trouble)
            self._is_away = True
            raise
        self._is_away = False
        return answer

    def _tell(self) -> None:
        """Say a change of who leads once."""
        lease = self._lease
        seen = lease.holder if lease.held else lease.seen
        if seen is lease.holder and not lease.held:
            seen = None
        standing = Standing(
            leading=lease.held, leader="" if seen is None else seen.name, since=0 if seen is None else seen.since
        )
        if standing == self._standing:
            return
        before, self._standing = self._standing, standing
        if standing.leading:
            logger.info("%s: leading as %s", lease.name, standing.leader)
        elif standing.leader:
            logger.info("%s: following %s", lease.name, standing.leader)
        elif before.leading:
            logger.info("%s: not leading any more", lease.name)
        self._tell_metric()
        for listener in self.on_change:
            listener()

    def _tell_metric(self) -> None:
        self._gauges.set({LEADING.name: [(float(self.held), {"lease": self._lease.name})]})
