"""What a running role says of itself in numbers: OpenTelemetry metrics, by OTLP and to Prometheus.

    tell_of(...) once, at the start of the process -> Counts, Gauges, LoopMetrics wherever there are values

Off unless one of both is configured, and then it costs nothing: the OpenTelemetry SDK is imported only when it is
used, since it costs more start-up time than a whole role.
"""

import atexit
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING

from tenure.domain.refusal import Refusal
from tenure.runtime.metric import Metric, MetricKind, counter, gauge, histogram
from tenure.runtime.telemetry_options import Address

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Counter, Histogram, Observation
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.resources import Resource

logger = logging.getLogger(__name__)

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
SERIES_MAX = 2_000
"""Of one metric in one process; further ones are told together, as OpenTelemetry's overflow."""

FOLDED = counter("tenure.facts.folded", "{fact}", "facts that its loop has folded")
APPENDED = counter("tenure.facts.appended", "{fact}", "facts that its loop has written to the log")
QUARANTINED = counter("tenure.facts.quarantined", "{fact}", "what it passed over because it is no fact, or condemned")
CONFLICTS = counter("tenure.append.conflicts", "{conflict}", "decisions that another writer overtook; decided again")
DECIDE = histogram(
    "tenure.decide.duration",
    "s",
    "how long one decision took",
    bounds=(0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0),
)
LEADING = gauge("tenure.leading", "", "1 in the process that leads its role, 0 in those that follow", "lease")
LOOP_METRICS = (FOLDED, APPENDED, QUARANTINED, CONFLICTS, DECIDE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Teller:
    """Who this process is to those that watch it, and where Prometheus may ask. `log`: the log's name."""

    role: str
    log: str
    listen: Address | None = None

    @property
    def labels(self) -> dict[str, str]:
        """What every value is labelled with."""
        return {"role": self.role, "log": self.log}


_teller: list[Teller] = []


def tell_of(role: str, *, log: str, listen: Address | None) -> None:
    """Say who this process is, and answer Prometheus from now on. Raises `Refusal` if the address cannot be had."""
    _teller[:] = [Teller(role=role, log=log, listen=listen)]
    provider.cache_clear()
    if listen is not None:
        provider()


def present_teller() -> Teller:
    """Who this process was said to be."""
    return _teller[0] if _teller else Teller(role="", log="")


@cache
def provider() -> "MeterProvider | None":
    """What tells this process's metrics; None where nobody is told. Raises `Refusal`."""
    teller = present_teller()
    readers = _readers(teller.listen)
    if not readers:
        return None
    from opentelemetry.sdk.metrics import MeterProvider

    return MeterProvider(readers, resource_of(teller))


def resource_of(teller: Teller) -> "Resource":
    """This process as OpenTelemetry describes it."""
    from opentelemetry.sdk.resources import Resource

    return Resource.create(
        {
            "service.name": f"tenure-{teller.role}",
            "service.namespace": teller.log,
            "service.version": version("tenure"),
            "service.instance.id": f"{os.uname().nodename}:{os.getpid()}",
        }
    )


def is_told(signal: str) -> bool:
    """Whether metrics or traces (`METRICS`, `TRACES`) go to an OTLP endpoint, as OpenTelemetry's variables say."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if os.environ.get(f"OTEL_{signal}_EXPORTER", "otlp") != "otlp":
        return False
    return bool(os.environ.get(ENDPOINT) or os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"))


def _readers(listen: Address | None) -> "list[MetricReader]":
    readers: list[MetricReader] = []
    if is_told("METRICS"):
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
    if listen is not None:
        readers.append(_answer_prometheus(listen))
    return readers


def _answer_prometheus(listen: Address) -> "MetricReader":
    """Answer at the address from a thread. Raises `Refusal`."""
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from prometheus_client import start_http_server

    reader = PrometheusMetricReader(scope_info_enabled=False)
    try:
        server, thread = start_http_server(listen.port, listen.host)
    except OSError as error:
        raise Refusal(
            field=f"--metrics-listen {listen.shown}",
            problem=error.strerror or str(error),
            fix="stop what listens there, or choose another port (0: any free one)",
        ) from error
    atexit.register(server.shutdown)
    thread.name = "metrics"
    shown = Address(host=listen.host, port=server.server_port).shown
    logger.info("metrics at http://%s/metrics", shown)
    return reader


class Counts:
    """Counters and histograms of this process. Costs nothing where nobody is told."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        """The counters begin at 0 where they have no labels of their own, so that the first count is seen as one."""
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        self._labels = present_teller().labels
        told_by = provider()
        self.wanted = told_by is not None
        """Whether anybody is told."""
        if told_by is None:
            return
        meter = told_by.get_meter("tenure")
        for metric in metrics:
            if metric.kind is MetricKind.COUNTER:
                made = meter.create_counter(metric.name, metric.unit, metric.meaning)
                self._counters[metric.name] = made
                if not metric.labels:
                    made.add(0, self._labels)
            else:
                assert metric.kind is MetricKind.HISTOGRAM, "gauges are `Gauges`"
                self._histograms[metric.name] = meter.create_histogram(
                    metric.name, metric.unit, metric.meaning, explicit_bucket_boundaries_advisory=metric.bounds
                )

    def add(self, metric: Metric, number: int, **of: str) -> None:
        """So many more."""
        if self.wanted:
            self._counters[metric.name].add(number, {**self._labels, **of})

    def record(self, metric: Metric, value: float, **of: str) -> None:
        """One more value of a histogram."""
        if self.wanted:
            self._histograms[metric.name].record(value, {**self._labels, **of})


class LoopMetrics:
    """Counts of what the loop of one role does. Costs nothing where nobody is told."""

    def __init__(self) -> None:
        self._counts = Counts(LOOP_METRICS)
        self._passed_over = 0

    def folded(self, count: int) -> None:
        """`count` facts were folded."""
        self._counts.add(FOLDED, count)

    def quarantined(self, total: int) -> None:
        """So many have been passed over since the role was started."""
        if total > self._passed_over:
            self._counts.add(QUARANTINED, total - self._passed_over)
            self._passed_over = total

    def decided(self, seconds: float) -> None:
        """One decision took so long."""
        self._counts.record(DECIDE, seconds)

    def appended(self, count: int) -> None:
        """`count` facts were appended."""
        self._counts.add(APPENDED, count)

    def conflict(self) -> None:
        """An append met a conflict."""
        self._counts.add(CONFLICTS, 1)


Reading = tuple[float, Mapping[str, str]]
"""A value, and what it is of."""


class Gauges:
    """Values that a role looks up now and then. They are set all at once: what is not set again is not told any more.

    Those who tell read them from threads of their own, so they are replaced, never changed.
    """

    def __init__(self, metrics: Sequence[Metric]) -> None:
        """Gauges, and counters that are counted elsewhere: they are set to how many there are."""
        self._readings: Mapping[str, Sequence[Reading]] = {}
        self._labels = present_teller().labels
        told_by = provider()
        self.wanted = told_by is not None
        """Whether anybody is told."""
        if told_by is None:
            return
        meter = told_by.get_meter("tenure")
        for metric in metrics:
            is_counter = metric.kind is MetricKind.COUNTER
            create = meter.create_observable_counter if is_counter else meter.create_observable_gauge
            create(metric.name, [self._teller(metric.name)], metric.unit, metric.meaning)

    def set(self, readings: Mapping[str, Sequence[Reading]]) -> None:
        """The readings of all gauges from now on."""
        self._readings = readings

    def _teller(self, name: str) -> "Callable[[CallbackOptions], Iterable[Observation]]":
        from opentelemetry.metrics import Observation

        return lambda _: [Observation(value, {**self._labels, **of}) for value, of in self._readings.get(name, ())]
