"""The comparison of reports as a page or an image; better and worse are said with a word, not by colour alone."""

from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from simulator.pictures.comparison import Report, Row, comparison_table, names
from simulator.pictures.hues import HUES
from simulator.pictures.image import DPI, STYLE, save, with_format
from simulator.pictures.page import asset, write_whole
from simulator.pictures.panels import WAIT_TICKS

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
<h1>{title}</h1>
<p class="note">Better and worse are against {first}. What a budget got beyond what it was owed is not counted.</p>
{tables}
</body>
</html>
"""
_SIGNS = {"better": "better ▲", "worse": "worse ▼", "same": "same", "": ""}


def write_comparison(path: Path, reports: Sequence[Report]) -> None:
    """Write reports side by side to `path`: a page (`.html`) or an image (`.png`, `.svg`).

    Raises `Refusal` on another ending.
    """
    rows, called = comparison_table(reports), names(reports)
    if path.suffix.lower() == ".html":
        write_whole(path, _page(rows, called))
        return
    with_format(path)
    with mpl.rc_context(STYLE):
        save(path, _figure(rows, called))


def _page(rows: Sequence[Row], called: Sequence[str]) -> str:
    tables = "\n".join(_table(group, list(members), called) for group, members in groupby(rows, lambda row: row.group))
    title = "tenure: " + " and ".join(called)
    return _PAGE.format(title=escape(title), style=asset("report.css"), first=escape(called[0]), tables=tables)


def _table(group: str, rows: Sequence[Row], called: Sequence[str]) -> str:
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in called)
    lines = [f"<h2>{escape(group.capitalize())}</h2>", '<div class="scroll compared"><table>']
    lines.append(f'<thead><tr><th scope="col">figure</th>{heads}</tr></thead><tbody>')
    for row in rows:
        most = max((value for value in row.values if value is not None), default=0.0)
        cells = "".join(
            f'<td>{escape(shown)} <span class="{verdict}">{_SIGNS[verdict]}</span>{_bar(value, most, place)}</td>'
            for place, (value, shown, verdict) in enumerate(zip(row.values, row.shown, row.verdicts, strict=True))
        )
        lines.append(f'<tr><th scope="row">{escape(row.name)}</th>{cells}</tr>')
    return "\n".join([*lines, "</tbody></table></div>"])


def _bar(value: float | None, most: float, place: int) -> str:
    wide = 0.0 if value is None or most <= 0 else max(0.0, value / most) * 130
    return f'<br><span class="bar" style="width:{wide:.1f}px;background:{HUES[place % len(HUES)]}"></span>'


def _figure(rows: Sequence[Row], called: Sequence[str]) -> Figure:
    """A panel for each group of figures that share a scale."""
    groups = {group: list(members) for group, members in groupby(rows, lambda row: row.group)}
    parts = [row for group in ("delivery", "use") for row in groups.get(group, []) if row.name != "budgets with 95 %"]
    wanted = (
        ("Delivery and use, per cent: more is better", parts, 100.0, False),
        ("Waits, each step ten times as long: less is better", groups.get("waits", []), 1.0, True),
        ("Preemptions, and GPU-hours lost: less is better", groups.get("preemptions", []), 1.0, False),
        ("Delivered of owed by budget, per cent: more is better", groups.get("delivered of owed", []), 100.0, False),
    )
    panels = [panel for panel in wanted if panel[1]]
    tall = [0.5 + len(panel[1]) * (0.14 + 0.13 * len(called)) for panel in panels]
    height = 1.0 + sum(tall) + 0.65 * len(panels)
    figure = Figure(figsize=(11, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    figure.text(0.03, 1 - 0.35 / height, "tenure: " + " and ".join(called), size=14, weight="bold", va="center")
    top = 0.9
    for (title, members, scale, logarithmic), part in zip(panels, tall, strict=True):
        axes = figure.add_axes((0.2, 1 - (top + part) / height, 0.74, part / height))
        _bars(axes, members, called, scale=scale, logarithmic=logarithmic)
        axes.set_title(title)
        top += part + 0.65
    return figure


def _bars(axes: Axes, rows: Sequence[Row], called: Sequence[str], *, scale: float, logarithmic: bool) -> None:
    """A group of bars a row, one for each report, with its value and its verdict in words."""
    each = 0.8 / len(called)
    least = 0.5 if logarithmic else 0.0  # a logarithm has no zero
    for place, name in enumerate(called):
        values = [max(least, (row.values[place] or 0.0) * scale) for row in rows]
        y = np.arange(len(rows)) - 0.4 + each * (place + 0.5)
        axes.barh(y, values, height=each * 0.9, color=HUES[place % len(HUES)], label=name)
        for at, value, row in zip(y.tolist(), values, rows, strict=True):
            axes.text(value, at, f" {row.shown[place]}  {row.verdicts[place]}", va="center", fontsize=6.5)
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    most = max([(value or 0.0) * scale for row in rows for value in row.values], default=1.0)
    if logarithmic:
        axes.set_xscale("log")
        axes.set_xlim(least, max(10.0, most * 6))
        ticks = [tick for tick in WAIT_TICKS if tick <= most * 6]
        axes.set_xticks(ticks, [WAIT_TICKS[tick] for tick in ticks])
        axes.minorticks_off()
    else:
        axes.set_xlim(0, most * 1.18 or 1.0)
    axes.legend(fontsize=7, frameon=False, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(called))
