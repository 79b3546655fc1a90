"""Asking what may hang, a sick driver or a dead file system, without being held up by it.

A question is asked in a thread that nobody has to wait for: asyncio's own are joined when the process ends.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Generic, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_S = 2.0
"""How long an answer is waited for, the first time that it does not come."""


class Patience(Generic[T]):
    """One question that is asked again and again, never twice at a time. Belongs to one event loop."""

    def __init__(self, what: str, *, limit_s: float = PATIENCE_S) -> None:
        """`what` names the question in the agent's log."""
        self._what, self._limit_s = what, limit_s
        self._asking: asyncio.Future[T] | None = None
        self._late = False
        self._lock = asyncio.Lock()

    async def ask(self, question: Callable[[], T]) -> T | None:
        """The answer, perhaps to the question before this one; None while it does not come. Raises what that raised.

        Waited for is `limit_s` at most, and no time at all while an earlier question is not answered.
        """
        async with self._lock:
            if self._asking is None:
                self._asking = in_thread(question, name=self._what)
            done, _ = await asyncio.wait([self._asking], timeout=0 if self._late else self._limit_s)
            if not done:
                if not self._late:
                    logger.warning("%s: no answer within %g s, going on without", self._what, self._limit_s)
                self._late = True
                return None
            answered, self._asking, self._late = self._asking, None, False
            return answered.result()


async def in_time(question: Callable[[], T], *, name: str, limit_s: float = PATIENCE_S) -> T | None:
    """The answer to this very question; None when it does not come within `limit_s`. Raises what that raised."""
    asking = in_thread(question, name=name)
    done, _ = await asyncio.wait([asking], timeout=limit_s)
    return asking.result() if done else None


def in_thread(read: Callable[[], T], *, name: str) -> "asyncio.Future[T]":
    """Call `read` in a thread of its own; what it returned or raised."""
    return asyncio.get_running_loop().run_in_executor(_ThreadOfItsOwn(name), read)


class _ThreadOfItsOwn(Executor):
    """Runs each call in a thread that ends with the process, whatever it waits for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Call it now; the future has what it returned or raised."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()  # it cannot be cancelled any more

        def work() -> None:
            try:
                outcome = fn(*args, **kwargs)
            except Exception as trouble:  # noqa: BLE001 (whatever it meets is for who asked)
                future.set_exception(trouble)
            else:
                future.set_result(outcome)

        threading.Thread(target=work, name=self._name, daemon=True).start()
        return future
