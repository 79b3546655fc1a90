"""Notices on their way: one thread sends them in order, tries again what may pass, and remembers what arrived."""

import hashlib
import json
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import tenacity

from tenure.cli.files import replacing, writable
from tenure.cli.notices import Notice
from tenure.cli.sending import Channel, Passing, Refused
from tenure.cli.terminal import clean
from tenure.domain.refusal import Refusal

WAITING_MAX = 1_000
"""Notices that wait to be sent; more are not sent, and that is said."""
BURST, BURST_S = 20, 20.0
"""At most so many are sent in so many seconds: hooks refuse who is quicker than one a second for long."""
ATTEMPTS = 8
WAIT_FIRST_S, WAIT_LONGEST_S = 1.0, 60.0


class Told:
    """What arrived, by job, kept in a file if there is one. `following`: what is followed, and where it is told."""

    def __init__(self, file: Path | None, following: Sequence[str]) -> None:
        """Raises `Refusal` for a file that is of another following, or damaged."""
        self.since = 0
        """Jobs that were over before this instant are of no interest (epoch milliseconds); 0: nothing was looked at."""
        self._of = hashlib.sha256("\n".join(following).encode()).hexdigest()
        self._file = None if file is None else writable(file, field="--state")
        self._told: dict[str, set[str]] = {}
        self._lock = threading.Lock()
        if self._file is not None and self._file.exists():
            self._load(self._file)

    def knows(self, job: str) -> bool:
        """Whether anything was noted of it."""
        return job in self._told

    def note(self, job: str, keys: set[str]) -> None:
        """These need not be said, or are."""
        with self._lock:
            self._told.setdefault(job, set()).update(keys)

    def keep(self, jobs: set[str]) -> None:
        """Forget all other jobs."""
        with self._lock:
            self._told = {job: keys for job, keys in self._told.items() if job in jobs}

    def has(self, notice: Notice) -> bool:
        """Whether it arrived."""
        return notice.key in self._told.get(notice.job, ())

    def save(self) -> None:
        """Write the file, whole or not at all."""
        if self._file is None:
            return
        with self._lock:
            told = {job: sorted(keys) for job, keys in self._told.items()}
            with replacing(self._file) as file:
                file.write(json.dumps({"of": self._of, "since_ms": self.since, "told": told}).encode())

    def _load(self, file: Path) -> None:
        fix = "name another --state"
        try:
            kept = json.loads(file.read_bytes())
            of, since = str(kept["of"]), int(kept["since_ms"])
            told = {str(job): {str(key) for key in keys} for job, keys in kept["told"].items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Refusal(field="--state", problem=f"{file} is no file of tenure follow", fix=fix) from None
        if of != self._of:
            raise Refusal(field="--state", problem=f"{file} is of something else that is followed", fix=fix)
        self.since, self._told = since, told


class Outbox:
    """Sends what it is given, in order, from a thread of its own. Nobody waits for it but `close`."""

    def __init__(
        self, channel: Channel, arrived: Callable[[Notice], None], *, wait_first_s: float = WAIT_FIRST_S
    ) -> None:
        """`arrived` hears of each notice that the receiver has taken."""
        self.lost = 0
        """Notices that were given up."""
        self._channel, self._arrived = channel, arrived
        self._wait = tenacity.wait_exponential_jitter(multiplier=wait_first_s, max=WAIT_LONGEST_S)
        self._waiting: queue.Queue[Notice | None] = queue.Queue(WAITING_MAX)
        self._sent_at: deque[float] = deque(maxlen=BURST)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def put(self, notice: Notice) -> None:
        """Have it sent."""
        try:
            self._waiting.put_nowait(notice)
        except queue.Full:
            self._give_up(notice, f"{WAITING_MAX} wait already")

    def close(self) -> int:
        """Wait until all is sent or given up. How many were given up."""
        self._waiting.put(None)
        self._thread.join()
        return self.lost

    def _run(self) -> None:
        while (notice := self._waiting.get()) is not None:
            self._keep_to_the_rate()
            try:
                self._deliver(notice)
            except (Passing, Refused) as trouble:
                self._give_up(notice, str(trouble))
            else:
                self._arrived(notice)

    def _keep_to_the_rate(self) -> None:
        if len(self._sent_at) == BURST:
            time.sleep(max(0.0, self._sent_at[0] + BURST_S - time.monotonic()))
        self._sent_at.append(time.monotonic())

    def _deliver(self, notice: Notice) -> None:
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(Passing),
            stop=tenacity.stop_after_attempt(ATTEMPTS),
            wait=self._wait,
            before_sleep=lambda call: self._say(notice, f"{call.outcome and call.outcome.exception()}; trying again"),
            reraise=True,
        )
        retrying(self._channel.send, notice)

    def _give_up(self, notice: Notice, why: str) -> None:
        self.lost += 1
        self._say(notice, f"given up: {why}")

    def _say(self, notice: Notice, trouble: str) -> None:
        print(clean(f"tenure follow: {notice.key} to {self._channel.name}: {trouble}"), file=sys.stderr, flush=True)
