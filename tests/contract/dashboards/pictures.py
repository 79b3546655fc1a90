"""A dashboard as an image: its committed JSON and the rows of the real engine, drawn so that a person can judge both.

There is no Grafana where tests run. Places, sizes, colours, units, thresholds and legends are those of the JSON.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from textwrap import wrap
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.dates as dates
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tests.contract.dashboards.expand import PIXELS_A_COLUMN
from tests.contract.dashboards.words import written

DPI = 100
PIXELS_A_ROW = 38
INK, FAINT, GROUND = "#24292f", "#6e7781", "#eef1f4"
Row = Sequence[Any]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a panel was told."""

    columns: Sequence[str]
    rows: Sequence[Row]


@dataclass(kw_only=True)
class Canvas:
    """A figure on Grafana's grid. `drawn`: the marks of each panel, by title; `legends` by their panel's place."""

    figure: Figure
    width: int
    height: int
    since: datetime
    until: datetime
    drawn: dict[str, int] = field(default_factory=dict)
    legends: dict[tuple[int, int], Legend] = field(default_factory=dict)

    def axes(self, place: Mapping[str, int], *, left: int, right: int, top: int, bottom: int) -> Axes:
        """Axes inside a panel, with so many pixels kept free at its edges."""
        x, y = place["x"] * PIXELS_A_COLUMN + left, place["y"] * PIXELS_A_ROW + top
        wide = place["w"] * PIXELS_A_COLUMN - left - right
        high = place["h"] * PIXELS_A_ROW - top - bottom
        box = (x / self.width, 1 - (y + high) / self.height, wide / self.width, high / self.height)
        return self.figure.add_axes(box)

    def card(self, place: Mapping[str, int], title: str) -> Axes:
        """The ground of a panel with its title; its coordinates are pixels from the upper left."""
        axes = self.axes(place, left=3, right=3, top=3, bottom=3)
        wide, high = place["w"] * PIXELS_A_COLUMN - 6, place["h"] * PIXELS_A_ROW - 6
        axes.set_xlim(0, wide)
        axes.set_ylim(high, 0)
        axes.axis("off")
        axes.add_patch(Rectangle((0, 0), wide, high, color="white"))
        axes.text(10, 14, title, fontsize=9.5, fontweight="bold", color=INK, va="center")
        return axes


def draw(
    dashboard: Mapping[str, Any], answers: Mapping[str, Answer], path: Path, *, since: datetime, until: datetime
) -> Canvas:
    """Draw all panels; `answers` by title. Returns the canvas, for questions about what was drawn."""
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in dashboard["panels"])
    width, height = 24 * PIXELS_A_COLUMN, rows * PIXELS_A_ROW
    figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor=GROUND)
    canvas = Canvas(figure=figure, width=width, height=height, since=since, until=until)
    for panel in dashboard["panels"]:
        place, kind = panel["gridPos"], panel["type"]
        if kind == "row":
            axes = canvas.axes(place, left=6, right=6, top=0, bottom=0)
            axes.axis("off")
            axes.text(0, 0.4, panel["title"], fontsize=11, fontweight="bold", color=FAINT, va="center")
        elif kind == "text":
            card = canvas.card(place, panel["title"])
            lines = wrap(panel["options"]["content"].replace("*", ""), 190)
            card.text(10, 30, "\n".join(lines), fontsize=8.5, color=INK, va="top", linespacing=1.5)
        else:
            canvas.drawn[panel["title"]] = DRAWN[kind](canvas, panel, answers[panel["title"]])
    figure.savefig(path)
    return canvas


def settings(panel: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What the JSON says of one field: defaults, and its own."""
    config = panel["fieldConfig"]
    found = dict(config["defaults"])
    for override in config["overrides"]:
        if override["matcher"] == {"id": "byName", "options": name}:
            found.update({each["id"]: each["value"] for each in override["properties"]})
    return found


def stepped(value: Any, said: Mapping[str, Any]) -> str:
    """The colour of a value by its thresholds."""
    colour = INK
    for step in said.get("thresholds", {}).get("steps", ()):
        if isinstance(value, int | float) and (step["value"] is None or value >= step["value"]):
            colour = step["color"]
    return colour


def stat(canvas: Canvas, panel: Mapping[str, Any], answer: Answer) -> int:
    """Large numbers side by side."""
    place = panel["gridPos"]
    card = canvas.card(place, panel["title"])
    wide, high = place["w"] * PIXELS_A_COLUMN - 6, place["h"] * PIXELS_A_ROW - 6
    if not answer.rows:
        card.text(wide / 2, high / 2, "nothing in this time", color=FAINT, ha="center")
        return 0
    each = wide / len(answer.columns)
    for number, (name, value) in enumerate(zip(answer.columns, answer.rows[-1], strict=True)):
        said = settings(panel, name)
        text = written(value, said["unit"], said.get("decimals"))
        card.text(number * each + 14, high * 0.42, name, fontsize=9, color=FAINT, va="center")
        card.text(number * each + 14, high * 0.7, text, fontsize=19, color=stepped(value, said), va="center")
    return len(answer.columns)


def timeseries(canvas: Canvas, panel: Mapping[str, Any], answer: Answer) -> int:
    """Lines, areas or bars over time, with the legend below."""
    canvas.card(panel["gridPos"], panel["title"])
    room = 34 + 18 * legend_lines(panel["gridPos"], answer.columns[1:])
    axes = canvas.axes(panel["gridPos"], left=84, right=18, top=30, bottom=room)
    custom = panel["fieldConfig"]["defaults"]["custom"]
    names = list(answer.columns[1:])
    colours = [settings(panel, name)["color"]["fixedColor"] for name in names]
    times = [row[0] for row in answer.rows]
    lines = [
        [float("nan") if row[at] is None else float(row[at]) for row in answer.rows] for at in range(1, len(names) + 1)
    ]
    stacked = custom["stacking"]["mode"] == "normal"
    step = "post" if custom["lineInterpolation"] == "stepAfter" else None
    if custom["drawStyle"] == "bars" and times:
        wide = min((b - a for a, b in pairwise(times)), default=timedelta(hours=1)) * 0.8
        below = [0.0] * len(times)
        for line, colour in zip(lines, colours, strict=True):
            axes.bar(times, line, width=wide, bottom=below, color=colour, align="edge")
            below = [a + b for a, b in zip(below, line, strict=True)]
    elif stacked and times:
        axes.stackplot(times, *lines, colors=colours, linewidth=0, step=step)
    else:
        for line, colour in zip(lines, colours, strict=True):
            axes.plot(times, line, color=colour, linewidth=1.4, drawstyle="steps-post" if step else "default")
    defaults = panel["fieldConfig"]["defaults"]
    if "min" in defaults:
        axes.set_ylim(bottom=defaults["min"])
    if "max" in defaults:
        axes.set_ylim(top=defaults["max"] * 1.02)
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: written(value, defaults["unit"], defaults.get("decimals")))
    )
    if defaults.get("decimals") == 0:
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    over_time(canvas, axes)
    legend(canvas, panel["gridPos"], dict(zip(names, colours, strict=True)))
    return sum(value == value for line in lines for value in line)


def over_time(canvas: Canvas, axes: Axes) -> None:
    """The axis of what is looked at."""
    axes.set_xlim(canvas.since, canvas.until)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(axes.xaxis.get_major_locator(), show_offset=False))
    dressed(axes)


def dressed(axes: Axes) -> None:
    """Quiet axes."""
    axes.tick_params(labelsize=8, colors=FAINT, length=0)
    axes.grid(axis="y", color=GROUND, linewidth=0.8)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_visible(False)


def legend_lines(place: Mapping[str, int], names: Sequence[str]) -> int:
    """How many lines a legend takes."""
    wide = place["w"] * PIXELS_A_COLUMN - 30
    return max(1, int(-(-sum(40 + 6.6 * len(name) for name in names) // wide)))


def legend(canvas: Canvas, place: Mapping[str, int], colours: Mapping[str, str]) -> None:
    """At the bottom of the panel, from its left edge, as a list; in two lines where one is too short."""
    handles = [Patch(color=colour, label=name) for name, colour in colours.items()]
    lines = legend_lines(place, list(colours))
    corner = (
        (place["x"] * PIXELS_A_COLUMN + 10) / canvas.width,
        1 - ((place["y"] + place["h"]) * PIXELS_A_ROW - 6) / canvas.height,
    )
    canvas.legends[place["x"], place["y"]] = canvas.figure.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=corner,
        ncols=-(-len(handles) // lines),
        fontsize=8,
        frameon=False,
        handlelength=1.2,
        columnspacing=1.2,
        borderpad=0.2,
    )


def barchart(canvas: Canvas, panel: Mapping[str, Any], answer: Answer) -> int:
    """Bars with their names."""
    canvas.card(panel["gridPos"], panel["title"])
    options = panel["options"]
    upright = options["orientation"] == "vertical"
    names = [str(row[0]) for row in answer.rows]
    left = 60 if upright else 24 + 6 * max([len(name) for name in names], default=0)
    fields = list(answer.columns[1:])
    room = 34 + 18 * legend_lines(panel["gridPos"], fields)
    axes = canvas.axes(panel["gridPos"], left=left, right=40, top=30, bottom=room)
    colours = [settings(panel, name)["color"]["fixedColor"] for name in fields]
    unit = panel["fieldConfig"]["defaults"]["unit"]
    decimals = panel["fieldConfig"]["defaults"].get("decimals")
    stacked = options["stacking"] == "normal"
    thick = 0.8 if stacked else 0.8 / len(fields)
    below = [0.0] * len(names)
    for number, (_, colour) in enumerate(zip(fields, colours, strict=True)):
        values = [float(row[number + 1] or 0) for row in answer.rows]
        places = [at + (0 if stacked else (number - (len(fields) - 1) / 2) * thick) for at in range(len(names))]
        bars = (
            axes.bar(places, values, width=thick, bottom=below, color=colour)
            if upright
            else axes.barh(places, values, height=thick, left=below, color=colour)
        )
        if not stacked:
            axes.bar_label(
                bars, [written(value, unit, decimals) for value in values], fontsize=7, padding=2, color=FAINT
            )
        if stacked:
            below = [a + b for a, b in zip(below, values, strict=True)]
    numbers = FuncFormatter(lambda value, _: written(value, unit, decimals))
    dressed(axes)
    if upright:
        axes.set_xticks(range(len(names)), names)
        axes.yaxis.set_major_formatter(numbers)
    else:
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.xaxis.set_major_formatter(numbers)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        axes.grid(visible=False, axis="y")
    axes.margins(**{"y" if upright else "x": 0.1})
    legend(canvas, panel["gridPos"], dict(zip(fields, colours, strict=True)))
    return len(names) * len(fields)


def table(canvas: Canvas, panel: Mapping[str, Any], answer: Answer) -> int:
    """Rows of text, numbers to the right; what does not fit is scrolled to in Grafana."""
    place = panel["gridPos"]
    card = canvas.card(place, panel["title"])
    wide, high = place["w"] * PIXELS_A_COLUMN - 6, place["h"] * PIXELS_A_ROW - 6
    said = [settings(panel, name) for name in answer.columns]
    fixed = [each.get("custom.width") for each in said]
    rest = (wide - 20 - sum(each or 0 for each in fixed)) / max(1, fixed.count(None))
    lefts, at = [], 10.0
    for each in fixed:
        lefts.append(at)
        at += each or rest
    edges = [*lefts[1:], wide - 10.0]
    fits = int((high - 52) // 22)
    for column, name in enumerate(answer.columns):
        is_number = any(isinstance(row[column], int | float) for row in answer.rows)
        x, side = (edges[column] - 8, "right") if is_number else (lefts[column] + 4, "left")
        card.text(x, 38, name, fontsize=8.5, color=FAINT, ha=side, va="center", fontweight="bold")
        for number, row in enumerate(answer.rows[:fits]):
            text = written(row[column], said[column]["unit"], said[column].get("decimals"))
            coloured = "custom.cellOptions" in said[column]
            colour = stepped(row[column], said[column]) if coloured else INK
            card.text(x, 60 + number * 22, text, fontsize=8.5, color=colour, ha=side, va="center", clip_on=True)
    if len(answer.rows) > fits:
        card.text(wide - 10, 14, f"{len(answer.rows)} rows", fontsize=8, color=FAINT, ha="right", va="center")
    return len(answer.rows) * len(answer.columns)


def timeline(canvas: Canvas, panel: Mapping[str, Any], answer: Answer) -> int:
    """A row for each name, in the colour of its value."""
    canvas.card(panel["gridPos"], panel["title"])
    names = sorted({row[1] for row in answer.rows})
    defaults = panel["fieldConfig"]["defaults"]
    mapped = {key: each for mapping in defaults.get("mappings", ()) for key, each in mapping["options"].items()}
    told = {each["text"]: each["color"] for each in mapped.values()} or dict(_spans(defaults))
    left, room = 24 + 6 * max(map(len, names), default=0), 34 + 18 * legend_lines(panel["gridPos"], list(told))
    axes = canvas.axes(panel["gridPos"], left=left, right=18, top=30, bottom=room)
    for at, name in enumerate(names):
        own = [(row[0], row[2]) for row in answer.rows if row[1] == name]
        spans, colours = [], []
        for (since, value), (until, _) in pairwise([*own, (canvas.until, None)]):
            spans.append((dates.date2num(since), (until - since) / timedelta(days=1)))
            colours.append(mapped[str(value)]["color"] if mapped else stepped(value, defaults))
        axes.broken_barh(spans, (at - 0.42, 0.84), facecolors=colours)
    over_time(canvas, axes)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(visible=False)
    legend(canvas, panel["gridPos"], told)
    return len(answer.rows)


def _spans(defaults: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    steps = defaults["thresholds"]["steps"]
    for step, later in zip(steps, [*steps[1:], None], strict=True):
        low, high = (
            written(each["value"], defaults["unit"], defaults.get("decimals"))
            if each and each["value"] is not None
            else ""
            for each in (step, later)
        )
        yield f"{low} to {high}" if low and high else f"< {high}" if high else f"{low}+", step["color"]


DRAWN = {
    "stat": stat,
    "timeseries": timeseries,
    "barchart": barchart,
    "table": table,
    "state-timeline": timeline,
}
