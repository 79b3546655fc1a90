"""What an agent counts of its starts. Costs nothing where no endpoint is configured."""

from typing import TYPE_CHECKING

from tenure.runtime.telemetry import provider_of

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter


class StartMetrics:
    """Runs that were not started for what they are, not for what the host lacks."""

    def __init__(self) -> None:
        self._refused: Counter | None = None
        provider = provider_of("agent")
        if provider is not None:
            self._refused = provider.get_meter("tenure").create_counter("tenure.runs.refused", unit="{replica}")

    def refused(self, why: str) -> None:
        """A replica was refused; `why` is one word."""
        if self._refused is not None:
            self._refused.add(1, {"why": why})
