"""The comparison of the ranker's books with ClickHouse: at the start, and then once a minute.

Decisions follow the log alone and never wait for this (a database that is away changes no order). The result is one log
line and `DATA/ranker/drift.json`.
"""

import asyncio
import json
import logging
import os
from dataclasses import asdict
from pathlib import Path

from services.ranker.policy.drift import comparable_until, compare, is_forgotten
from services.ranker.state import State
from services.ranker.window import Away, Database
from tenure.domain.units import MINUTE, Millis
from tenure.log.port import Log, Unavailable
from tenure.runtime.clock import Clock
from tenure.runtime.loop import Loop

logger = logging.getLogger(__name__)

EVERY_S = 60.0
AGAIN_S = 5.0
"""The same while the database is away: at the start it may take longer than we do."""
FOLLOW_S = 10.0
"""How long the ranker may be behind the log before a comparison is put off."""
BEHIND: Millis = 10 * MINUTE
"""A database further behind the clock than this is said to be behind."""

Report = dict[str, object]


class DriftCheck:
    """Compares the state of a running loop with a database. Reads the state only between two folds."""

    def __init__(self, loop: Loop[State], log: Log, database: Database, *, clock: Clock, file: Path) -> None:
        self._loop, self._log, self._database = loop, log, database
        self._clock, self._file = clock, file
        self._said: str | None = None

    async def run(self) -> None:
        """Compare at once and then every minute, until cancelled."""
        await self._loop.caught_up.wait()
        while True:
            report = await self.check()
            await asyncio.sleep(AGAIN_S if report["status"] == "away" else EVERY_S)

    async def check(self) -> Report:
        """Compare once; the report, which says what was in the way, is logged and written to the file."""
        try:
            report = await self._compare()
        except (Away, Unavailable) as away:
            report = {"status": "away", "reason": str(away)}
        report = {"checked_at_ms": self._clock.now(), **report}
        self._log_line(report)
        try:
            write_report(self._file, report)
        except OSError as error:
            logger.warning("%s cannot be written: %s", self._file, error)
        return report

    async def _compare(self) -> Report:
        known = await asyncio.to_thread(self._database.known)
        if not await self._has_folded_all():
            return {"status": "behind", "reason": "the ranker has not caught up with the log"}
        state = self._loop.state
        until = comparable_until(
            state, reported=known.reported, known_at=known.at, settle_ms=state.policy.suspect_after_ms
        )
        since = until - state.window_ms
        if until < self._clock.now() - BEHIND or is_forgotten(state, since):
            reason = f"ClickHouse knows every host only up to {until}"
            return {"status": "behind", "reason": reason, "position": known.position, "until_ms": until}
        found = await asyncio.to_thread(self._database.window, since_ms=since, until_ms=until, position=known.position)
        budgets = compare(self._loop.state, found, since=since, until=until)
        return {
            "status": "compared",
            "position": known.position,
            "since_ms": since,
            "until_ms": until,
            "drift_gpu_ms": sum(abs(drift.drift_gpu_ms) for drift in budgets.values()),
            "budgets": {path: {**asdict(drift), "drift_gpu_ms": drift.drift_gpu_ms} for path, drift in budgets.items()},
        }

    async def _has_folded_all(self) -> bool:
        """Wait until the loop has folded what is in the log now: the database cannot know more."""
        head = await self._log.head(self._loop.role.reads)
        for _ in range(int(FOLLOW_S / 0.05)):
            if self._loop.state.position >= head:
                return True
            await asyncio.sleep(0.05)
        return False

    def _log_line(self, report: Report) -> None:
        """One line a comparison; of a database that is away or behind only when that begins."""
        status = str(report["status"])
        if status == "compared":
            drift, position = report["drift_gpu_ms"], report["position"]
            level = logging.WARNING if drift else logging.INFO
            logger.log(level, "%s GPU-ms between the books and ClickHouse (at position %s)", drift, position)
        elif status != self._said:
            logger.warning("no comparison with ClickHouse, going on with the log alone: %s", report["reason"])
        self._said = status


def write_report(file: Path, report: Report) -> None:
    """Replace the file: a reader sees the old report or the new one. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(report))
    os.replace(fresh, file)
