"""Answers that many readers share for a moment: who asks while an answer is under way waits for that one.

So a hundred open pages cost the gateway what one does. Only what is the same for all who may look is shared.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar, cast

A = TypeVar("A")

KEPT_MAX = 500
SWEEP_S = 5.0


class Shared:
    """`clock` gives seconds, of any origin."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._swept_at = clock()
        self._kept: OrderedDict[Hashable, tuple[float, asyncio.Future[Any]]] = OrderedDict()

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[A]], *, keep_s: float) -> A:
        """The answer under `key`, asked for when there is none that is younger than `keep_s` seconds.

        Trouble is told to all who wait for it, and is not kept.
        """
        self._sweep()
        found = self._kept.get(key)
        if found is None or (found[1].done() and self._clock() >= found[0]):
            found = (self._clock() + keep_s, asyncio.ensure_future(ask()))
            self._kept[key] = found
            self._kept.move_to_end(key)
            found[1].add_done_callback(lambda done: self._forget_trouble(key, done))
            while len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        return cast(A, await asyncio.shield(found[1]))  # a reader that goes away does not end the others' question

    def _sweep(self) -> None:
        """Forget now and then what is too old to be told: answers may be large."""
        now = self._clock()
        if now >= self._swept_at + SWEEP_S:
            self._swept_at = now
            old = [key for key, (until, answer) in self._kept.items() if answer.done() and now >= until]
            for key in old:
                del self._kept[key]

    def _forget_trouble(self, key: Hashable, done: "asyncio.Future[Any]") -> None:
        found = self._kept.get(key)
        if (done.cancelled() or done.exception() is not None) and found is not None and found[1] is done:
            del self._kept[key]
