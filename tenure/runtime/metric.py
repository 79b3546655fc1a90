"""What a metric is. Each role declares its own as values of this type; `docs/metrics.md` is made from them.

Names are OpenTelemetry's; Prometheus has them with `_` for `.`, the unit's name, and `_total` for a counter.
"""

from dataclasses import dataclass
from enum import StrEnum


class MetricKind(StrEnum):
    """How its values are to be read."""

    COUNTER = "counter"
    """Grows as long as the process lives."""
    GAUGE = "gauge"
    """A value of now."""
    HISTOGRAM = "histogram"
    """How often values of which size came, as long as the process lives."""


UNIT_NAMES = {"s": "seconds", "1": "ratio"}
"""Units that Prometheus writes into a name; `{gpu}` and the like say what is counted and are not written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric. `labels` beside `role` and `log`, which all have; `bounds`: of a histogram's buckets."""

    name: str
    kind: MetricKind
    unit: str
    meaning: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()

    @property
    def prometheus_name(self) -> str:
        """As Prometheus has it; of a histogram without `_bucket`, `_sum` and `_count`."""
        words = [self.name.replace(".", "_")]
        unit = UNIT_NAMES.get(self.unit, "")
        if unit and not words[0].endswith(f"_{unit}"):
            words.append(unit)
        if self.kind is MetricKind.COUNTER:
            words.append("total")
        return "_".join(words)


def counter(name: str, unit: str, meaning: str, *labels: str) -> Metric:
    """A metric that only grows."""
    return Metric(name=name, kind=MetricKind.COUNTER, unit=unit, meaning=meaning, labels=labels)


def gauge(name: str, unit: str, meaning: str, *labels: str) -> Metric:
    """A metric of now."""
    return Metric(name=name, kind=MetricKind.GAUGE, unit=unit, meaning=meaning, labels=labels)


def histogram(name: str, unit: str, meaning: str, *labels: str, bounds: tuple[float, ...]) -> Metric:
    """A metric of many values."""
    return Metric(name=name, kind=MetricKind.HISTOGRAM, unit=unit, meaning=meaning, labels=labels, bounds=bounds)
