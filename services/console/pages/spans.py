"""The stretch of time that a page looks back over: `days` in the address."""

import time
from dataclasses import dataclass

from services.console.asked import Asked
from tenure.domain.units import DAY, HOUR, MINUTE, SECOND, Millis

DAYS = ("1", "7", "30", "90")


@dataclass(frozen=True, slots=True)
class Span:
    """[since, until), in epoch milliseconds."""

    since: Millis
    until: Millis

    @property
    def hours_step_s(self) -> int:
        """Whole hours, so that a chart has some 200 points at most."""
        return max(1, -(-(self.until - self.since) // (200 * HOUR))) * (HOUR // SECOND)

    @property
    def step_s(self) -> int:
        """The same in steps of five minutes."""
        return max(1, -(-(self.until - self.since) // (200 * 5 * MINUTE))) * (5 * MINUTE // SECOND)


def days_of(asked: Asked) -> str:
    """How many days are asked for. Raises `Refusal`."""
    return asked.choice("days", "7", DAYS)


def span_of(asked: Asked) -> Span:
    """Those days, up to now in steps of ten seconds: so that pages share answers. Raises `Refusal`."""
    until = time.time_ns() // 1_000_000 // (10 * SECOND) * (10 * SECOND)
    return Span(until - int(days_of(asked)) * DAY, until)
