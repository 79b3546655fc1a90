"""The hands of the health role: they have the repair plug mend and test hosts, and write its answer into the log.

The plug is told once for each key, by however many processes: it is to do the same thing once (`Idempotency-Key`,
`TENURE_KEY`). Before each attempt the process makes sure that it still leads. What may pass is tried again, longer and
longer apart; what does not is said, and a person is needed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import tenacity

from services.health.instructions import Mend
from services.health.plug import Answer, Passing, run_command, send
from tenure.domain.ids import LOG_START, FactId, Position, UserName
from tenure.events.intake import RepairCompleted
from tenure.log.port import Log, LogFull, Unavailable
from tenure.runtime.clock import Clock
from tenure.runtime.repair_options import RepairOptions

logger = logging.getLogger(__name__)

PLUG = UserName("repair-plug")
WAIT_FIRST_S, WAIT_LONGEST_S = 2.0, 300.0
CONFIRM_S = 0.5
"""How often the store of leases is asked again when it did not answer."""


async def _alone() -> Position | None:
    return LOG_START


class Hands:
    """One task for each thing that the plug is doing."""

    def __init__(
        self, log: Log, clock: Clock, options: RepairOptions, *, cluster: str, wait_first_s: float = WAIT_FIRST_S
    ) -> None:
        self.epoch: Callable[[], Awaitable[Position | None]] = _alone
        """Since which position this process leads, asked just now; None: it is not sure to."""
        self._log, self._clock, self._options, self._cluster = log, clock, options, cluster
        self._wait = tenacity.wait_exponential_jitter(multiplier=wait_first_s, max=WAIT_LONGEST_S)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def perform(self, instructions: Sequence[Any]) -> None:
        """Begin what is not under way yet."""
        for order in instructions:
            assert isinstance(order, Mend), "these hands only mend"
            if order.key not in self._tasks:
                self._tasks[order.key] = asyncio.create_task(self._mend(order))

    async def rest(self) -> None:
        """Let go: another process will ask the plug again, with the same keys."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()

    async def _mend(self, order: Mend) -> None:
        logger.info("%s %s for incident %s", order.step, order.host, order.incident)
        answer = await self._ask(order)
        if answer is None:
            logger.info("%s of %s goes on elsewhere: its answer comes through the gateway", order.step, order.host)
        else:
            await self._say(order, answer)
        self._tasks.pop(order.key, None)

    async def _ask(self, order: Mend) -> Answer | None:
        """The plug's answer; None if it will come by another way."""
        attempts = self._options.attempts
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(Passing),
            stop=tenacity.stop_after_attempt(attempts),
            wait=self._wait,
            before_sleep=lambda call: logger.warning("%s %s: %s; trying again", order.step, order.host, _trouble(call)),
            reraise=True,
        )
        try:
            return await retrying(self._attempt, order)
        except Passing as trouble:
            return Answer(ok=False, detail=f"{trouble} ({attempts} attempts)")

    async def _attempt(self, order: Mend) -> Answer | None:
        while (epoch := await self.epoch()) is None:  # who does not lead any more is told to rest
            await asyncio.sleep(CONFIRM_S)
        plug: Callable[..., Coroutine[Any, Any, Answer | None]] = run_command if self._options.command else send
        return await plug(order, self._options, epoch=epoch)

    async def _say(self, order: Mend, answer: Answer) -> None:
        level = logging.INFO if answer.ok else logging.WARNING
        logger.log(level, "%s of %s: %s (%s)", order.step, order.host, "ok" if answer.ok else "not ok", answer.detail)
        fact = RepairCompleted(
            at=self._clock.now(),
            id=FactId(f"repair-{order.key}"),
            cluster=self._cluster,
            host=order.host,
            by=PLUG,
            comment=answer.detail,
            incident=order.incident,
            step=order.step,
            ok=answer.ok,
        )
        async for attempt in tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type((Unavailable, LogFull)), wait=self._wait
        ):
            with attempt:
                await self._log.append([fact])


def _trouble(call: tenacity.RetryCallState) -> str:
    return str(call.outcome.exception()) if call.outcome is not None else ""
