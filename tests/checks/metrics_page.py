"""Writes docs/metrics.md from the metrics that the roles declare: `python -m tests.checks.metrics_page`."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from services.agent import metrics as agent
from services.console import guard as console
from services.gateway import metrics as gateway
from services.journal import metrics as journal
from tenure.runtime.lag import LAG_METRICS
from tenure.runtime.metric import Metric, MetricKind
from tenure.runtime.telemetry import LEADING, LOOP_METRICS

PAGE = Path(__file__).parents[2] / "docs/metrics.md"
GROUPS: tuple[tuple[str, str, Sequence[Metric]], ...] = (
    (
        "Every role",
        "How far it has come. The journal has no loop: only the lag.",
        (*LAG_METRICS, *LOOP_METRICS),
    ),
    ("Roles of which one leads", "budget, ranker, placer, health, journal.", (LEADING,)),
    ("The gateway", "Looked up every 15 seconds. Of several gateways each tells the same: take one.", gateway.METRICS),
    ("The journal", "Told by the journal that writes.", journal.METRICS),
    ("Agents", "", agent.METRICS),
    ("The web console", "", console.METRICS),
)
HEAD = f"""\
# Metrics

This page is made from the code: `python -m tests.checks.metrics_page` writes it. [operations.md](operations.md#metrics)
says how to turn metrics on and which alerts there are.

Names are OpenTelemetry's, as OTLP has them; Prometheus has them with `_`, the unit, and `_total` for what only grows.
Every value has the labels `role` and `log` (the log's name, `--cluster`). The resource has `service.name`
(`tenure-ROLE`), `service.namespace` (the log), `service.version` and `service.instance.id`. A Prometheus endpoint has
Python's own `process_*` and `python_*` metrics, too.

## How many series

Labels are words of fixed lists (states, reasons, classes of jobs), clusters, GPU types, and topmost budgets: at most
{gateway.BUDGETS_MAX} of them, those that are owed most; the rest is told together as `{gateway.OTHER}`. No label is a
job, a run, a user, a host or a fact. So their number does not grow with the queue, and hardly with the cluster.
"""
TABLE = ("| Prometheus | OpenTelemetry | type | unit | labels | what |", "|---|---|---|---|---|---|")


def lines() -> Iterator[str]:
    """The page."""
    yield HEAD
    for title, note, metrics in GROUPS:
        yield f"## {title}\n"
        if note:
            yield f"{note}\n"
        yield from TABLE
        for metric in metrics:
            yield row(metric)
        yield ""


def row(metric: Metric) -> str:
    """One line of a table."""
    tail = "" if metric.kind is not MetricKind.HISTOGRAM else "_bucket"
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    cells = (f"`{metric.prometheus_name}{tail}`", f"`{metric.name}`", metric.kind.value, metric.unit, labels)
    return f"| {' | '.join((*cells, metric.meaning))} |"


def text() -> str:
    """The whole page."""
    return "\n".join(lines()).rstrip("\n") + "\n"


def all_metrics() -> list[Metric]:
    """Every metric that there is."""
    return [metric for _, _, metrics in GROUPS for metric in metrics]


if __name__ == "__main__":
    PAGE.write_text(text())
