"""Two or more reports side by side: what each says, and whether that is better or worse than what the first says."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from simulator.pictures.words import duration, percent

Report = Mapping[str, Any]
Verdict = Literal["", "better", "worse", "same"]
QUANTILES = ("p50_s", "p90_s", "p99_s")
LABELS = {"lost_gpu_hours": "GPU-hours lost"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure of all reports, in their order. None: a report does not have it."""

    group: str
    name: str
    values: tuple[float | None, ...]
    shown: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    """Against the first report; empty for the first itself, and where neither more nor less is better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Figure:
    group: str
    name: str
    path: tuple[str, ...]
    shown: Callable[[float], str]
    better: Literal["more", "less", "neither"]


def comparison_table(reports: Sequence[Report]) -> list[Row]:
    """The rows of the table, in the order in which people ask. `reports` are as in `report.json`.

    What no report says anything of has no row.
    """
    rows = [_row(figure, [_number(report, figure.path) for report in reports]) for figure in _figures(reports)]
    for path in dict.fromkeys(budget["path"] for report in reports for budget in _budgets(report)):
        figure = _Figure(group="delivered of owed", name=path, path=(), shown=percent, better="more")
        rows.append(_row(figure, [_ratio(report, path) for report in reports]))
    return [row for row in rows if any(value is not None for value in row.values)]


def names(reports: Sequence[Report]) -> list[str]:
    """What to call each report: its policy, numbered where several have the same."""
    policies = [str(report.get("policy", "report")) for report in reports]
    alike = {policy for policy in policies if policies.count(policy) > 1}
    return [f"{policy} ({place})" if policy in alike else policy for place, policy in enumerate(policies, start=1)]


def _figures(reports: Sequence[Report]) -> list[_Figure]:
    """Which figures are compared."""
    found = [
        _Figure(group="delivery", name="delivered of owed", path=("delivered", "ratio"), shown=percent, better="more"),
        _Figure(group="delivery", name="worst budget", path=("delivered", "worst"), shown=percent, better="more"),
        _Figure(
            group="delivery", name="budgets with 95 %", path=("delivered", "at_least_95"), shown=_count, better="more"
        ),
        _Figure(group="delivery", name="any 7 days", path=("rolling_7d", "ratio"), shown=percent, better="more"),
        _Figure(group="delivery", name="worst 7 days", path=("rolling_7d", "worst"), shown=percent, better="more"),
        _Figure(group="use", name="occupancy", path=("occupancy",), shown=percent, better="more"),
        _Figure(group="use", name="goodput", path=("goodput",), shown=percent, better="more"),
        _Figure(group="use", name="unallocated", path=("unallocated_fraction",), shown=percent, better="neither"),
        _Figure(group="use", name="availability", path=("availability",), shown=percent, better="neither"),
    ]
    classes = dict.fromkeys(name for report in reports for name in report.get("waits", {}))
    waits = [(name, quantile) for name in classes for quantile in QUANTILES]
    found += [
        _Figure(
            group="waits",
            name=f"{name}, {quantile.removesuffix('_s')}",
            path=("waits", name, quantile),
            shown=duration,
            better="less",
        )
        for name, quantile in waits
    ]
    counts = [("preemptions", name) for name in ("total", "allocated", "unallocated", "drain", "lost_gpu_hours")]
    found += [
        _Figure(group=group, name=LABELS.get(name, name), path=(group, name), shown=_count, better="less")
        for group, name in counts
    ]
    found.append(_Figure(group="promises", name="violations", path=("violations",), shown=_count, better="less"))
    found += [
        _Figure(group="size", name=name, path=(name,), shown=_count, better="neither") for name in ("jobs", "runs")
    ]
    return found


def _row(figure: _Figure, values: Sequence[float | None]) -> Row:
    shown = tuple("–" if value is None else figure.shown(value) for value in values)
    verdicts = ["" if not place else _verdict(figure, values, shown, place) for place in range(len(values))]
    return Row(
        group=figure.group,
        name=figure.name,
        values=tuple(values),
        shown=shown,
        verdicts=tuple(verdicts),
    )


def _verdict(figure: _Figure, values: Sequence[float | None], shown: Sequence[str], place: int) -> Verdict:
    """What looks the same is the same: a difference that is not shown is none."""
    first, own = values[0], values[place]
    if first is None or own is None or figure.better == "neither":
        return ""
    if shown[0] == shown[place]:
        return "same"
    return "better" if (own > first) == (figure.better == "more") else "worse"


def _number(report: Report, path: Sequence[str]) -> float | None:
    found: Any = report
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return None if found is None else float(found)


def _budgets(report: Report) -> Sequence[Mapping[str, Any]]:
    budgets: Sequence[Mapping[str, Any]] = report.get("delivered", {}).get("budgets", ())
    return budgets


def _ratio(report: Report, path: str) -> float | None:
    """Up to what it is owed: what a budget got beyond that was left over, and is no merit."""
    found = [min(1.0, float(budget["ratio"])) for budget in _budgets(report) if budget["path"] == path]
    return found[0] if found else None


def _count(number: float) -> str:
    return f"{number:,.0f}"
