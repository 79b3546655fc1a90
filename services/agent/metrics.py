"""What an agent counts of its starts. Costs nothing where nobody is told."""

from tenure.runtime.metric import counter, histogram
from tenure.runtime.telemetry import Counts

REFUSED = counter("tenure.runs.refused", "{replica}", "replicas that were not started for what they are", "why")
LAUNCH = histogram(
    "tenure.launch.duration",
    "s",
    "from the moment it was to be started to the first instruction of a replica",
    bounds=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0),
)
METRICS = (REFUSED, LAUNCH)


class StartMetrics:
    """Runs that were not started for what they are, not for what the host lacks; and how long those took that were."""

    def __init__(self) -> None:
        self._counts = Counts(METRICS)

    def refused(self, why: str) -> None:
        """A replica was refused; `why` is one word."""
        self._counts.add(REFUSED, 1, why=why)

    def launched(self, seconds: float) -> None:
        """A replica's process exists, so long after it was to be started."""
        self._counts.record(LAUNCH, seconds)
