"""Lines over time as the geometry of an inline SVG: no script draws it, and its colours follow the page's."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tenure.domain.units import DAY, HOUR, MINUTE, Millis

WIDTH, HEIGHT = 600, 230
LEFT, RIGHT, TOP, BOTTOM = 48, 12, 10, 26
_NICE: tuple[float, ...] = (1.0, 2.0, 2.5, 5.0, 10.0)
_TIME_STEPS = (5 * MINUTE, 15 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 30 * DAY)
Points = Sequence[tuple[Millis, float]]


@dataclass(frozen=True, slots=True)
class Series:
    """One line: its name, the class of its colour, instants with values; `area`: filled down to zero."""

    name: str
    colour: str
    points: Points
    area: bool = False


@dataclass(frozen=True, slots=True)
class Tick:
    """A line of the grid with its text."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Drawn:
    """A series as paths."""

    name: str
    colour: str
    line: str
    area: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """All that a template needs."""

    says: str
    drawn: Sequence[Drawn]
    across: Sequence[Tick]
    up: Sequence[Tick]
    mark: float | None
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    bottom: int = HEIGHT - BOTTOM


def line_chart(
    series: Sequence[Series], *, since: Millis, until: Millis, says: str, mark: float | None = None
) -> Chart | None:
    """The chart of [since, until]; `mark`: a value with a line of its own; None where no line has two points."""
    shown = [each for each in series if len(each.points) > 1]
    if not shown:
        return None
    top = max([value for each in shown for _, value in each.points] + ([mark] if mark is not None else []))
    step = _step(top / 4 or 1.0)
    most = step * max(1, math.ceil(top / step - 1e-9))

    def x(when: Millis) -> float:
        part = (when - since) / max(1, until - since)
        return round(LEFT + min(1.0, max(0.0, part)) * (WIDTH - LEFT - RIGHT), 1)

    def y(value: float) -> float:
        return round(HEIGHT - BOTTOM - value / most * (HEIGHT - TOP - BOTTOM), 1)

    return Chart(
        says=says,
        drawn=[_drawn(each, [(x(when), y(value)) for when, value in each.points], zero=y(0)) for each in shown],
        across=_across(since, until, x),
        up=[Tick(y(number * step), f"{number * step:g}") for number in range(round(most / step) + 1)],
        mark=None if mark is None else y(mark),
    )


def _drawn(series: Series, points: Sequence[tuple[float, float]], *, zero: float) -> Drawn:
    line = "M" + "L".join(f"{x} {y}" for x, y in points)
    area = f"{line}L{points[-1][0]} {zero}L{points[0][0]} {zero}Z" if series.area else ""
    return Drawn(series.name, series.colour, line, area)


def _step(least: float) -> float:
    """The next larger number that reads well."""
    size = 10.0 ** math.floor(math.log10(least))
    return next(nice * size for nice in _NICE if nice * size >= least * (1 - 1e-9))


def _across(since: Millis, until: Millis, x: Callable[[Millis], float]) -> list[Tick]:
    step = next((each for each in _TIME_STEPS if (until - since) / each <= 8), _TIME_STEPS[-1])
    first = -(-since // step) * step
    shape = "%b %d" if step >= DAY else "%H:%M"
    return [
        Tick(x(when), datetime.fromtimestamp(when / 1000, UTC).strftime(shape))
        for when in range(first, until + 1, step)
    ]
