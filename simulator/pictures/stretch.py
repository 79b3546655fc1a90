"""The stretch of a log that is measured, and what a report says of how it was simulated."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tenure.domain.units import DAY, MINUTE, SECOND, Millis

TAIL_MS = 2 * DAY
"""Jobs submitted so shortly before the end are left out of the waits: most of them could not have started yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """From `start` to `end`, in milliseconds of the log; before `start` is warm-up. Lengths of time in milliseconds."""

    start: Millis
    end: Millis
    lookback: Millis
    restart_overhead: Millis
    checkpoint_interval: Millis

    @property
    def last_submission(self) -> Millis:
        """Waits are over jobs submitted up to this; all of a stretch that is too short to leave out its end."""
        return self.end - TAIL_MS if self.end - self.start > TAIL_MS else self.end


def stretch_of(report: Mapping[str, Any], *, log_end: Millis) -> Stretch:
    """What `report` says of it. Without a word (a live log may have no report): the whole log, a week, usual work."""
    window = report.get("window", {})
    return Stretch(
        start=round(window.get("start_s", 0) * SECOND),
        end=window_end(report) or log_end,
        lookback=round(report["lookback_s"] * SECOND) if "lookback_s" in report else 7 * DAY,
        restart_overhead=2 * MINUTE,
        checkpoint_interval=30 * MINUTE,
    )


def window_end(report: Mapping[str, Any]) -> Millis:
    """The end of the stretch that `report` is over; 0 if it does not say."""
    end_s: float = report.get("window", {}).get("end_s", 0)
    return round(end_s * SECOND)
