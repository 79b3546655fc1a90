"""How much one user, and all together, may ask for: submissions in a window, jobs that wait, submissions under way.

A refusal says when to ask again (`retry-after`), and the SDK does. What was accepted before is not counted as a new
submission, so a repeated idempotency key is always answered.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from limits import RateLimitItemPerSecond
from limits.aio.storage import MemoryStorage
from limits.aio.strategies import SlidingWindowCounterRateLimiter

from services.gateway.refusals import Limited
from services.gateway.state import State
from tenure.domain.ids import LOG_START, Position, UserName
from tenure.domain.policy import Policy

WINDOW_S = 10
STREAMS_MAX = 2_000
"""Streams of one user at a time, over all connections."""
ORDERS_MAX = 1_000
"""Orders of one user (cancel, drain, resume, set shares, set the policy) within a window: each becomes a fact."""
SOON_S, LATER_S = 1.0, 60.0
"""When to ask again where nothing is known of when it will be better: writing takes moments, queues take longer."""


class Rate:
    """How often each user may do one kind of thing within a window that slides."""

    def __init__(self, *, what: str, fix: str) -> None:
        """`what` is counted, in the plural; `fix`: what else a user who is refused can do."""
        self._what, self._fix = what, fix
        self._window = SlidingWindowCounterRateLimiter(MemoryStorage())

    async def count(self, user: UserName, *, most: int) -> None:
        """One more of this user; `most` 0: no limit. Raises `Limited`."""
        rate = RateLimitItemPerSecond(most or 1, WINDOW_S)
        if not most or await self._window.hit(rate, user):
            return
        again_s = (await self._window.get_window_stats(rate, user)).reset_time - time.time()
        raise Limited(
            field="user",
            problem=f"more than {most} {self._what} of {user} in {WINDOW_S} s",
            fix=self._fix,
            retry_after_s=min(max(again_s, SOON_S), WINDOW_S),
        )


class Streams:
    """How many answers without an end (Watch, Logs, reflection) each user has under way: each costs for as long."""

    def __init__(self) -> None:
        self._open: Counter[UserName] = Counter()

    @contextmanager
    def one_of(self, user: UserName) -> Iterator[None]:
        """One more of this user, for the length of the block. Raises `Limited`."""
        if self._open[user] >= STREAMS_MAX:
            raise Limited(
                field="user",
                problem=f"{self._open[user]} streams of {user} (watch, logs) are open",
                fix="end some, or ask for lists instead",
                retry_after_s=LATER_S,
            )
        self._open[user] += 1
        try:
            yield
        finally:
            self._open[user] -= 1
            if not self._open[user]:
                del self._open[user]


class Limits:
    """The counts of one gateway. 0 as a limit: none."""

    def __init__(self, policy: Callable[[], Policy]) -> None:
        """`policy`: the one that counts at the moment."""
        self._policy = policy
        self._submissions = Rate(what="submissions", fix="submit many jobs as one batch (SubmitBatch), or more slowly")
        self._under_way = 0
        self._unseen: Counter[UserName] = Counter()
        """Jobs of each user that are being written, or are written and not in the state yet."""
        self._written: deque[tuple[Position, UserName, int]] = deque()
        """Of these, where in the log those lie that are written."""

    async def count(self, user: UserName) -> None:
        """One more submission of this user. Raises `Limited`."""
        await self._submissions.count(user, most=self._policy().submissions_per_user)

    @contextmanager
    def writing(
        self, state: State, user: UserName, jobs: int, *, written: Callable[[], Position] = lambda: LOG_START
    ) -> Iterator[None]:
        """So many jobs of this user are written during the block, then up to where `written` says. Raises `Limited`."""
        self._check_queue(state, user, jobs)
        if 0 < self._policy().submissions_at_once <= self._under_way:
            raise Limited(
                field="jobs",
                problem=f"{self._under_way} submissions are being written at this moment",
                fix="submit again in a moment",
                retry_after_s=SOON_S,
            )
        self._under_way += 1
        self._unseen[user] += jobs
        try:
            yield
        finally:
            self._under_way -= 1
            self._written.append((written(), user, jobs))

    def _check_queue(self, state: State, user: UserName, jobs: int) -> None:
        """A batch that is being written may count for one more than it has: its first job is folded before the rest."""
        while self._written and self._written[0][0] <= state.position:
            _, known, seen = self._written.popleft()
            self._unseen[known] -= seen
            if not self._unseen[known]:
                del self._unseen[known]
        most, waiting = self._policy().queued_per_user, state.waiting[user] + self._unseen[user]
        if most and waiting + jobs > most:
            raise Limited(
                field="jobs",
                problem=f"{waiting} jobs of {user} wait already, {most} may",
                fix=f"submit at most {max(0, most - waiting)} more, or cancel some",
                retry_after_s=LATER_S,
            )
