"""What the three services share: the folded state, the way to the log, and waiting for the one to show the other."""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from services.gateway.entries import JobEntry
from services.gateway.evolve import READS
from services.gateway.identity.asking import acting_as, who
from services.gateway.order import Order
from services.gateway.progress import Progress
from services.gateway.refusals import Away, Full
from services.gateway.sightings import Sightings
from services.gateway.state import State
from tenure.domain.ids import LOG_START, FactId, JobId, Position
from tenure.domain.job_id import MAKERS, JobIdMaker, is_job_id
from tenure.domain.names import check_label
from tenure.domain.policy import Policy
from tenure.domain.refusal import Refusal
from tenure.domain.units import Millis
from tenure.events.fact import Fact, Lane
from tenure.events.plausible import impossible
from tenure.log.port import Appended, Conflict, Expect, FactTooLarge, Log, LogFull, Unavailable
from tenure.runtime.clock import Clock
from tenure.runtime.loop import Loop
from tenure.runtime.poison import end_of_lane

FOLD_WAIT_S = 5.0
"""How long an answer waits for the fold to show what was written before."""
CATCH_UP_S = 1.0
TRIES = 10
"""How often a change is decided again because others wrote first."""
APPEND_WAIT_S = 12.0
"""A little longer than the log itself tries."""

F = TypeVar("F", bound=Fact)


class Gateway:
    """One gateway process as its servicers see it. The loop owns the state; here it is only read."""

    def __init__(
        self, loop: Loop[State], log: Log, clock: Clock, progress: Progress, *, cluster: str, policy: Policy
    ) -> None:
        """`progress` is told by the loop's hands how far the fold has come; `policy` counts while the log has none."""
        self.at_start, self.cluster, self.progress = policy, cluster, progress
        self.sightings = Sightings(log)
        self.job_ids = JobIdMaker(maker=int.from_bytes(os.urandom(4)) % MAKERS)
        self._loop, self._log, self._clock = loop, log, clock
        self._written: Position = LOG_START

    def now(self) -> Millis:
        """The present instant."""
        return self._clock.now()

    @property
    def policy(self) -> Policy:
        """The policy that counts now."""
        return self._loop.state.policy or self.at_start

    @property
    def state(self) -> State:
        """The state as it is, for decisions. Raises `Away` until the fold has caught up with the log."""
        if not self._loop.caught_up.is_set():
            raise Away("the gateway is still reading the log; try again in a moment")
        if self.progress.stopping:
            raise Away("the gateway is stopping; try again in a moment")
        return self._loop.state

    @property
    def written(self) -> Position:
        """The last fact that was written through this gateway."""
        return self._written

    async def read(self) -> State:
        """The state, no older than the last fact that was written through this gateway. Raises `Away`."""
        state = self.state
        if not await self.progress.reached(self._written, timeout_s=FOLD_WAIT_S):
            raise Away("the gateway cannot follow the log now; try again in a moment")
        return state

    async def job(self, job: JobId) -> JobEntry | None:
        """The job, if it is kept; one that another gateway took a moment ago is. Raises `Away`."""
        state = await self.read()
        if job not in state.jobs and is_job_id(job):
            await self.catch_up()
        return state.jobs.get(job)

    async def append(self, facts: Sequence[Fact], *, expect: Expect | None = None) -> Appended:
        """Write facts durably. Raises `Away`, `Full`, or `Conflict` when a condition does not hold.

        Raises `Refusal` for one that every reader would pass over: nobody is told that what comes to nothing was done.
        """
        if wrong := next(filter(None, map(impossible, facts)), ""):
            raise Refusal(field="request", problem=f"cannot be: {wrong}", fix="ask for something else")
        try:
            async with asyncio.timeout(APPEND_WAIT_S):
                appended = await self._log.append(facts, expect=expect)
        except (Unavailable, TimeoutError) as trouble:
            raise Away(
                "the log cannot be reached, so it is unknown whether this was written; try again in a moment "
                "(with the same idempotency_key it is never written twice)"
            ) from trouble
        except LogFull as trouble:
            raise Full(
                field="log", problem="full, nothing was written", fix="free disk space on its server"
            ) from trouble
        except FactTooLarge as trouble:
            raise Refusal(field="request", problem=f"cannot be written: {trouble}", fix="ask for less") from trouble
        self._written = max(self._written, appended.last)
        return appended

    async def agree(self, change: Callable[[State], F | None], *, what: str) -> tuple[Position, F] | None:
        """Write what `change` makes of the state as it is then, in the budget lane, and fold it: its position and it.

        None if it makes nothing. Decided again when others wrote first. Raises what `change` raises, and `Away`.
        """
        passed = LOG_START
        for _ in range(TRIES):
            state = await self.read()
            fact = change(state)
            if fact is None:
                return None
            try:
                expect = Expect(lane=Lane.BUDGET, last=max(state.budget_lane, passed))
                appended = await self.append([fact], expect=expect)
            except Conflict:
                await self.catch_up()
                passed = await self.passed_in(Lane.BUDGET, after=state.budget_lane)
                continue
            await self.folded(appended.last)
            return appended.last, fact
        raise Away(f"others kept writing while {what} was being changed ({TRIES} tries); try again in a moment")

    def writing_first(self) -> AbstractContextManager[None]:
        """Fold nothing new while this lasts: many facts are being written, and their sender waits."""
        return self._loop.held()

    async def folded(self, position: Position) -> None:
        """Wait until the fold has come to `position`. Raises `Away` when it does not."""
        if not await self.progress.reached(position, timeout_s=FOLD_WAIT_S):
            raise Away("it was written, but the gateway cannot follow the log now; look again in a moment")

    async def is_well(self, *, timeout_s: float) -> bool:
        """Whether the fold has caught up, and the log answers in time."""
        if not self._loop.caught_up.is_set() or self.progress.stopping:
            return False
        try:
            async with asyncio.timeout(timeout_s):
                await self._log.head()
        except (Unavailable, TimeoutError):
            return False
        return True

    async def catch_up(self) -> None:
        """Wait until the fold has come to where the log is now, or a while. Raises `Away`.

        It may never come quite there: a fact of a newer version cannot be folded.
        """
        try:
            async with asyncio.timeout(FOLD_WAIT_S):
                head = await self._log.head(READS)
        except (Unavailable, TimeoutError) as trouble:
            raise Away("the log cannot be reached; nothing was written, try again in a moment") from trouble
        await self.progress.reached(head, timeout_s=CATCH_UP_S)

    async def passed_in(self, lane: Lane, *, after: Position) -> Position:
        """Where a lane ends if that is folded or no fact of any version, else 0. Raises `Away`."""
        try:
            end = await end_of_lane(self._log, lane, after=after)
        except Unavailable as trouble:
            raise Away("the log cannot be reached; nothing was written, try again in a moment") from trouble
        return LOG_START if end is None or self._loop.passed < end else end

    def order(self, *, user: str, comment: str = "", fact_id: str = "") -> Order:
        """Who asks now, for whom, and why. A fresh fact id unless one is given.

        Raises `Denied` for acting as somebody else, and `Refusal` for unusable text.
        """
        check_label(user, field="user")
        if len(comment) > 1_000 or not comment.isprintable():
            raise Refusal(
                field="comment", problem="too long or not printable", fix="use one line of up to 1000 letters"
            )
        return Order(
            by=acting_as(user, field="user"),
            comment=comment.strip(),
            now=self.now(),
            fact_id=FactId(fact_id or f"gateway-{os.urandom(12).hex()}"),
            cluster=self.cluster,
            origin=who().origin,
        )
