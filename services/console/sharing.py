"""Answers that many readers share for a moment: who asks while an answer is under way waits for that one.

So a hundred open pages cost the gateway what one does. Only what is the same for all who may look is shared.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar, cast

A = TypeVar("A")

KEPT_MAX = 500
SWEEP_S, BEFORE_S = 5.0, 10.0
"""How often what is old is forgotten, and how long after its time."""


class Shared:
    """`clock` gives seconds, of any origin."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._before: dict[Hashable, Any] = {}
        self._swept_at = clock()
        self._kept: OrderedDict[Hashable, tuple[float, asyncio.Future[Any]]] = OrderedDict()

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[A]], *, keep_s: float) -> A:
        """The answer under `key`, asked for when there is none that is younger than `keep_s` seconds.

        Trouble is told to all who wait for it, and is not kept.
        """
        answer = self._asked(key, ask, keep_s)
        return cast(A, await asyncio.shield(answer))  # a reader that goes away does not end the others' question

    async def latest(
        self, key: Hashable, ask: Callable[[], Awaitable[A]], *, keep_s: float, wait_s: float | None
    ) -> A | None:
        """The same, waited for no longer than `wait_s` seconds: then the answer before, None if there was none."""
        answer = self._asked(key, ask, keep_s)
        await asyncio.wait({answer}, timeout=wait_s)
        return cast(A, answer.result()) if answer.done() else cast("A | None", self._before.get(key))

    def _asked(self, key: Hashable, ask: Callable[[], Awaitable[Any]], keep_s: float) -> "asyncio.Future[Any]":
        self._sweep()
        found = self._kept.get(key)
        if found is None or (found[1].done() and self._clock() >= found[0]):
            found = (self._clock() + keep_s, asyncio.ensure_future(ask()))
            self._kept[key] = found
            self._kept.move_to_end(key)
            found[1].add_done_callback(lambda done: self._note(key, done))
            while len(self._kept) > KEPT_MAX:
                self._before.pop(self._kept.popitem(last=False)[0], None)
        return found[1]

    def _sweep(self) -> None:
        """Forget now and then what is too old to be told: answers may be large."""
        now = self._clock()
        if now >= self._swept_at + SWEEP_S:
            self._swept_at = now
            old = [key for key, (until, answer) in self._kept.items() if answer.done() and now >= until + BEFORE_S]
            for key in old:
                del self._kept[key]
                self._before.pop(key, None)

    def _note(self, key: Hashable, done: "asyncio.Future[Any]") -> None:
        """Keep a good answer as the one before the next; forget trouble."""
        if not done.cancelled() and done.exception() is None:
            if key in self._kept:
                self._before[key] = done.result()
        elif key in self._kept and self._kept[key][1] is done:
            del self._kept[key]
