"""Everything that pictures of one log are drawn from, made in one go."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from simulator.pictures.history import History, Ints, Line, read_history
from simulator.pictures.series import Series, build_series
from simulator.pictures.stops import Stops, stops
from simulator.pictures.stretch import Stretch, stretch_of, window_end
from simulator.pictures.waits import waits


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A log's history with the numbers of each chart. `waits` are sorted milliseconds by class."""

    history: History
    stretch: Stretch
    series: Series
    waits: Mapping[str, Ints]
    stops: tuple[Stops, ...]
    report: Mapping[str, Any]

    @property
    def title(self) -> str:
        """What stands above the pictures."""
        policy = self.report.get("policy")
        return f"tenure: policy {policy}" if policy else "tenure: who held the GPUs"


def tell(
    lines: Iterable[Line], *, report: Mapping[str, Any], budgets: Mapping[str, float], kinds: Mapping[str, str] | None
) -> Told:
    """Read the log and count. The arguments are those of `write_html`."""
    history = read_history(lines, budgets=budgets, until=window_end(report))
    stretch = stretch_of(report, log_end=history.end)
    return Told(
        history=history,
        stretch=stretch,
        series=build_series(history, lookback_ms=stretch.lookback),
        waits=waits(history, stretch=stretch, kinds=kinds or {}),
        stops=tuple(stops(history, stretch=stretch)),
        report=report,
    )
