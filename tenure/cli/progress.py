"""How far a simulation is, on stderr: a bar with simulated days a second and the time left, or a line now and then."""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tenure.cli.terminal import is_terminal
from tenure.domain.units import DAY, SECOND, Millis, format_duration

if TYPE_CHECKING:
    from rich.progress import Progress

REDRAW_S = 0.2
SAY_S = 10.0
Passed = Callable[[Millis], None]
"""Told the simulated instant that is behind us."""


class Simulating:
    """The progress of one simulation from 0 to `end`, as a context."""

    def __init__(self, *, end: Millis) -> None:
        self._end = max(1, end)
        self._began = self._shown = time.monotonic()
        self._bar: Progress | None = None
        self._line: Any = None

    def __enter__(self) -> "Simulating":
        self._began = self._shown = time.monotonic()
        if is_terminal(sys.stderr):
            from rich.console import Console
            from rich.progress import Progress

            words_and_bar = Progress.get_default_columns()[:2]
            self._bar = Progress(*words_and_bar, console=Console(stderr=True), auto_refresh=False, transient=True)
            self._line = self._bar.add_task("simulating", total=self._end)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def passed(self, now: Millis) -> None:
        """The simulation has come to `now`. Cheap enough to be told often."""
        clock = time.monotonic()
        over = self._bar is not None and now >= self._end  # a bar is seen full, however quick it was
        if clock - self._shown < (SAY_S if self._bar is None else REDRAW_S) and not over:
            return
        self._shown = clock
        words = speed(now, end=self._end, took_s=clock - self._began)
        if self._bar is None:
            print(words, file=sys.stderr, flush=True)
        else:
            self._bar.update(self._line, completed=now, description=words, refresh=True)


def speed(now: Millis, *, end: Millis, took_s: float) -> str:
    """`day 12.3 of 37, 5.1 days/s, 5s left`."""
    rate = now / DAY / max(took_s, 1e-9)
    left = format_duration(round((end - now) / DAY / max(rate, 1e-9)) * SECOND)
    return f"day {now / DAY:.1f} of {end / DAY:g}, {rate:.2g} days/s, {left} left"
