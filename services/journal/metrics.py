"""What the journal that writes tells of ClickHouse. Costs nothing where nobody is told."""

import time

from tenure.runtime.metric import counter, gauge
from tenure.runtime.telemetry import Counts, Gauges, Reading

WRITTEN = counter("tenure.clickhouse.written", "{fact}", "facts that it has written to ClickHouse")
REACHABLE = gauge("tenure.clickhouse.reachable", "", "1 while ClickHouse takes what the journal writes, else 0")
WAITING = gauge("tenure.clickhouse.waiting", "{fact}", "positions of the log that ClickHouse does not have yet")
LAST_WRITE = gauge("tenure.clickhouse.last_write.age", "s", "since when nothing was written, or nothing was to write")
GAUGES = (REACHABLE, WAITING, LAST_WRITE)
METRICS = (WRITTEN, *GAUGES)


class WriteMetrics:
    """How far the database has come."""

    def __init__(self) -> None:
        self._gauges, self._counts = Gauges(GAUGES), Counts([WRITTEN])
        self.wanted = self._gauges.wanted
        """Whether anybody is told."""
        self._at_s = time.monotonic()

    def wrote(self, facts: int) -> None:
        """A batch of so many facts is in the database."""
        self._at_s = time.monotonic()
        self._counts.add(WRITTEN, facts)

    def tell(self, *, reachable: bool, waiting: int | None) -> None:
        """How it is now. `waiting`: facts not in the database yet; None: not known, since it does not answer."""
        if waiting == 0:
            self._at_s = time.monotonic()
        told: dict[str, list[Reading]] = {
            REACHABLE.name: [(float(reachable), {})],
            LAST_WRITE.name: [(time.monotonic() - self._at_s, {})],
        }
        if waiting is not None:
            told[WAITING.name] = [(float(waiting), {})]
        self._gauges.set(told)

    def stand_by(self) -> None:
        """Another journal writes, and tells."""
        self._at_s = time.monotonic()
        self._gauges.set({})
