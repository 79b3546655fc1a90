"""A log as one static image, PNG or SVG: the timeline and the charts of the page, for documents and paper."""

import io
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.typing import RcKeyType

from simulator.pictures import panels
from simulator.pictures.history import Line
from simulator.pictures.hues import hues
from simulator.pictures.page import write_whole
from simulator.pictures.raster import paint
from simulator.pictures.told import Told, tell
from tenure.domain.refusal import Refusal
from tenure.domain.units import DAY

FORMATS = (".png", ".svg")
DPI = 110
WIDTH = 15.0
"""Inches, as are all lengths here."""
TIMELINE, MARGIN, GAP = 8.2, 0.75, 0.55
HEADING = 0.3
COLUMNS = 5
LEAVES_MAX = 40
"""Budgets with a panel of their own: the largest."""
DELIVERED = "Owed (dashed) against delivered, GPU-hours summed up; delivered / owed in the time that is measured"
RATIO = (
    "Ratio by which the queue is sorted: below 1 = is owed time and comes first, above 1 = has had more than its share"
)
STYLE: dict[RcKeyType, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e7ea",
    "axes.axisbelow": True,
    "hatch.linewidth": 0.8,
    "svg.fonttype": "none",
    "svg.hashsalt": "tenure",
}


def write_image(
    path: Path,
    *,
    lines: Iterable[Line],
    report: Mapping[str, Any],
    budgets: Mapping[str, float],
    kinds: Mapping[str, str] | None = None,
) -> None:
    """Draw a log to `path`, whose ending says as what: `.png` or `.svg`. The arguments are those of `write_html`.

    Raises `Refusal` on another ending.
    """
    with_format(path)
    told = tell(lines, report=report, budgets=budgets, kinds=kinds)
    with mpl.rc_context(STYLE):
        save(path, _figure(told))


def with_format(path: Path) -> str:
    """The format that the ending of `path` names. Raises `Refusal` if it is none of `FORMATS`."""
    if path.suffix.lower() not in FORMATS:
        raise Refusal(
            field=str(path),
            problem=f"{path.suffix or 'no ending'} is no format of images",
            fix="end it in .png or .svg",
        )
    return path.suffix.lower()[1:]


def save(path: Path, figure: Figure) -> None:
    """Write a figure; the same figure is the same bytes."""
    made = io.BytesIO()
    kind = with_format(path)
    figure.savefig(made, format=kind, dpi=DPI, metadata={"Date": None} if kind == "svg" else {"Software": None})
    write_whole(path, made.getvalue())


def _figure(told: Told) -> Figure:
    """All panels from top to bottom; lengths are laid out first, since the timeline is painted pixel by pixel."""
    leaves = panels.largest(told, LEAVES_MAX)
    teams = list(dict.fromkeys(hue.team for hue in hues(told.history.leaves)))
    rows: list[tuple[str, float, int, list[Callable[[Axes], None]]]] = []
    delivered: list[Callable[[Axes], None]] = [
        lambda axes, leaf=leaf: panels.delivered(axes, told, leaf)  # type: ignore[misc]
        for leaf in leaves
    ]
    ratios: list[Callable[[Axes], None]] = [
        lambda axes, team=team: panels.ratio(axes, told, team)  # type: ignore[misc]
        for team in teams
    ]
    for heading, group, tall in ((DELIVERED, delivered, 1.25), (RATIO, ratios, 1.7)):
        for begin in range(0, len(group), COLUMNS):
            rows.append(("" if begin else heading, tall, COLUMNS, group[begin : begin + COLUMNS]))
    rows.append(("", 2.2, 1, [lambda axes: panels.parts(axes, told)]))
    rows.append(("", 2.6, 2, [lambda axes: panels.waits(axes, told), lambda axes: panels.stops(axes, told)]))
    height = 1.3 + TIMELINE + GAP + sum(tall + GAP + HEADING * bool(heading) for heading, tall, _, _ in rows) + 0.2
    figure = Figure(figsize=(WIDTH, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    y = _header(figure, told, height)
    y = _timeline(figure, told, height, y)
    for heading, tall, columns, drawn in rows:
        if heading:
            figure.text(MARGIN / WIDTH, 1 - y / height, heading, size=9, weight="bold", va="center")
            y += HEADING
        each = (WIDTH - 2 * MARGIN - (columns - 1) * GAP) / columns
        for place, draw in enumerate(drawn):
            left = MARGIN + place * (each + GAP)
            draw(_axes(figure, height, left=left, top=y, wide=each, tall=tall))
        y += tall + GAP
    return figure


def _axes(figure: Figure, height: float, *, left: float, top: float, wide: float, tall: float) -> Axes:
    """Axes at a place counted in inches from the top left."""
    return figure.add_axes((left / WIDTH, 1 - (top + tall) / height, wide / WIDTH, tall / height))


def _header(figure: Figure, told: Told, height: float) -> float:
    history = told.history
    figure.text(MARGIN / WIDTH, 1 - 0.3 / height, told.title, size=14, weight="bold", va="center")
    said = f"{history.installed:,} GPUs on {len(history.hosts):,} hosts, {history.end / DAY:.3g} days, "
    said += f"{len(history.jobs.ids):,} jobs in {len(history.runs.job):,} runs. A row for each GPU. Solid: protected. "
    said += "Striped: may be interrupted. Red edge: ended early. Grey: not available."
    figure.text(MARGIN / WIDTH, 1 - 0.58 / height, said, size=9, color="#444", va="center")
    axes = _axes(figure, height, left=MARGIN, top=0.68, wide=WIDTH - 2 * MARGIN, tall=0.5)
    panels.legend(axes, told)
    return 1.3


def _timeline(figure: Figure, told: Told, height: float, top: float) -> float:
    wide = WIDTH - 2 * MARGIN
    axes = _axes(figure, height, left=MARGIN, top=top, wide=wide, tall=TIMELINE)
    picture = paint(told.history, width=round(wide * DPI), height=round(TIMELINE * DPI))
    days = max(told.history.end, 1) / DAY
    axes.imshow(picture, aspect="auto", interpolation="nearest", extent=(0, days, max(told.history.installed, 1), 0))
    panels.host_names(axes, told)
    panels.time_axis(axes, told)
    return top + TIMELINE + GAP
