"""What a running role says of itself: log lines on stderr, and OpenTelemetry metrics when an endpoint is configured.

The OpenTelemetry SDK is imported only when `OTEL_EXPORTER_OTLP_ENDPOINT` is set: it costs more start-up time than a
whole role.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Counter, Histogram, Observation
    from opentelemetry.sdk.metrics import MeterProvider

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


def set_up_logging(role: str, *, level: str) -> None:
    """Send this process's log lines of at least `level` to stderr, one line each, with the role's name."""
    logging.basicConfig(
        level=level.upper(),
        stream=sys.stderr,
        format=f"%(asctime)s {role} %(levelname)s %(message)s",
    )


@cache
def provider_of(role: str) -> "MeterProvider | None":
    """What sends this role's metrics to the endpoint; None where none is configured."""
    if not os.environ.get(ENDPOINT):
        return None
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource

    resource = Resource.create({"service.name": f"tenure-{role}"})
    return MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], resource)


class LoopMetrics:
    """Counts of what the loop of one role does. Costs nothing where no endpoint is configured."""

    def __init__(self, role: str) -> None:
        self._attributes = {"role": role}
        self._passed_over = 0
        self._folded: Counter | None = None
        provider = provider_of(role)
        if provider is None:
            return
        meter = provider.get_meter("tenure")
        self._folded = meter.create_counter("tenure.facts.folded", unit="{fact}")
        self._appended: Counter = meter.create_counter("tenure.facts.appended", unit="{fact}")
        self._quarantined: Counter = meter.create_counter("tenure.facts.quarantined", unit="{fact}")
        self._conflicts: Counter = meter.create_counter("tenure.append.conflicts", unit="{conflict}")
        self._decide: Histogram = meter.create_histogram("tenure.decide.duration", unit="s")

    def folded(self, count: int) -> None:
        """`count` facts were folded."""
        if self._folded is not None:
            self._folded.add(count, self._attributes)

    def quarantined(self, total: int) -> None:
        """So many have been passed over since the role was started."""
        if self._folded is not None and total > self._passed_over:
            self._quarantined.add(total - self._passed_over, self._attributes)
            self._passed_over = total

    def decided(self, seconds: float) -> None:
        """One decision took so long."""
        if self._folded is not None:
            self._decide.record(seconds, self._attributes)

    def appended(self, count: int) -> None:
        """`count` facts were appended."""
        if self._folded is not None:
            self._appended.add(count, self._attributes)

    def conflict(self) -> None:
        """An append met a conflict."""
        if self._folded is not None:
            self._conflicts.add(1, self._attributes)


Reading = tuple[float, Mapping[str, str]]
"""A value, and what it is of."""


class Gauges:
    """Values that a role looks up now and then. They are set all at once: what is not set again is not told any more.

    The exporter reads them from a thread of its own, so they are replaced, never changed.
    """

    def __init__(self, role: str, units: Mapping[str, str]) -> None:
        """`units` by name of the gauge."""
        self._readings: Mapping[str, Sequence[Reading]] = {}
        provider = provider_of(role)
        self.wanted = provider is not None
        """Whether anybody is told."""
        if provider is None:
            return
        for name, unit in units.items():
            provider.get_meter("tenure").create_observable_gauge(name, [self._teller(name)], unit=unit)

    def set(self, readings: Mapping[str, Sequence[Reading]]) -> None:
        """The readings of all gauges from now on."""
        self._readings = readings

    def _teller(self, name: str) -> "Callable[[CallbackOptions], Iterable[Observation]]":
        from opentelemetry.metrics import Observation

        return lambda _: [Observation(value, dict(of)) for value, of in self._readings.get(name, ())]
