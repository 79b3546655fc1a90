"""Values as Grafana writes them, for the units that the dashboards use."""

from datetime import datetime
from typing import Any

_LENGTHS = ((604_800, "weeks"), (86_400, "days"), (3_600, "hours"), (60, "mins"), (1, "s"))


def written(value: Any, unit: str, decimals: int | None = None) -> str:
    """A value in a unit of Grafana's."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M")
    if isinstance(value, str):
        return value
    if unit == "percentunit":
        return f"{value * 100:.{1 if decimals is None else decimals}f} %"
    if unit == "s":
        return length(value)
    if unit.startswith("suffix:"):
        return f"{number(value, decimals)} {unit.removeprefix('suffix:')}"
    if unit == "locale":
        return f"{value:,.{decimals or 0}f}"
    if unit == "short" and abs(value) >= 10_000:
        return f"{value / 1000:.1f} K"
    return number(value, decimals)


def number(value: float, decimals: int | None) -> str:
    """With so many decimals, or as few as say enough."""
    if decimals is not None:
        return f"{value:.{decimals}f}"
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def length(seconds: float) -> str:
    """A length of time in its largest unit."""
    for size, name in _LENGTHS:
        if abs(seconds) >= size:
            return f"{seconds / size:.1f} {name}"
    return "0 s" if not seconds else f"{seconds * 1000:.0f} ms"
