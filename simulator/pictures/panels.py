"""The panels of the static image, each drawn into axes that are given."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from simulator.pictures.hues import GREY, HUES, RED, hues
from simulator.pictures.stretch import Stretch
from simulator.pictures.told import Told
from simulator.pictures.waits import QUANTILES, quantiles
from simulator.pictures.words import duration
from tenure.domain.units import DAY, HOUR, SECOND

INK, SOFT, ACCENT = "#1f2328", "#59636e", "#0969da"
STYLES = ("-", "--", ":", "-.")
HOST_NAMES_MAX = 17
CLASSES_MAX = 16
CURVE = 400
"""Points of a distribution's curve at most."""
WAIT_TICKS = {
    1: "≤ 1 s",
    10: "10 s",
    60: "1 min",
    600: "10 min",
    3600: "1 h",
    21600: "6 h",
    86400: "1 d",
    604800: "7 d",
    2419200: "28 d",
}


def largest(told: Told, most: int) -> list[int]:
    """The leaves with the largest shares, in order of path."""
    shares = told.history.trees[-1][1]
    first = sorted(range(len(shares)), key=lambda leaf: (-shares[leaf], leaf))[:most]
    return sorted(first)


def time_axis(axes: Axes, told: Told) -> None:
    """Days, or hours in a log of less than two; the warm-up is marked."""
    end, stretch = max(told.history.end, 1), told.stretch
    axes.set_xlim(0, end / DAY)
    if end < 2 * DAY:
        step = next((hours for hours in (1 / 6, 1, 2, 6) if end / HOUR / hours <= 9), 12)
        ticks = np.arange(0, end / HOUR + 1e-9, step)
        axes.set_xticks(ticks / 24, [f"{hour:.3g} h" for hour in ticks.tolist()])
    else:
        step = next((days for days in (1, 2, 7, 14, 28) if end / DAY / days <= 9), 91)
        day = np.arange(0, end / DAY + 1e-9, step)
        axes.set_xticks(day, [f"day {number:.0f}" for number in day.tolist()])
    if stretch.start:
        axes.axvline(stretch.start / DAY, color=INK, linewidth=0.9, linestyle=(0, (5, 4)))


def host_names(axes: Axes, told: Told) -> None:
    """Names of some hosts beside their first GPU."""
    history = told.history
    every = max(1, -(-len(history.hosts) // HOST_NAMES_MAX))
    shown = range(0, len(history.hosts), every)
    axes.set_yticks([int(history.first_row[host]) for host in shown], [history.hosts[host] for host in shown])
    axes.grid(visible=False)


def legend(axes: Axes, told: Told) -> None:
    """The colours of all budgets, a column a team."""
    axes.set_axis_off()
    leaves = largest(told, 24)
    colours = hues(told.history.leaves)
    patches = [Patch(color=colours[leaf].light, label=told.history.leaves[leaf]) for leaf in leaves]
    columns = min(8, max(1, len(patches)))
    axes.legend(handles=patches, ncols=columns, loc="upper left", frameon=False, fontsize=7.5, borderaxespad=0)


def delivered(axes: Axes, told: Told, leaf: int) -> None:
    """Owed (dashed) against delivered, summed up, in GPU-hours."""
    series, colour = told.series, hues(told.history.leaves)[leaf].light
    at = series.edges / DAY
    axes.plot(at, _running(series.charged[leaf]), color=colour, linewidth=1.8)
    axes.plot(at, _running(series.owed[leaf]), color=INK, linewidth=0.9, linestyle="--")
    got, due = _measured(series.charged[leaf], told), _measured(series.owed[leaf], told)
    part = f", {got / due:.1%}" if due else ""
    axes.set_title(f"{told.history.leaves[leaf]}{part}")
    axes.set_ylim(bottom=0)
    time_axis(axes, told)
    _sparse(axes)


def ratio(axes: Axes, told: Told, team: str) -> None:
    """The ratio of each leaf of a team; below 1 the budget is owed time."""
    series, top = told.series, 1.5
    of_team = [leaf for leaf, hue in enumerate(hues(told.history.leaves)) if hue.team == team]
    for place, leaf in enumerate(of_team):
        line = series.ratio[leaf]
        settled = series.instants >= max(told.stretch.start, told.history.end // 10)  # the first hours say little
        top = max([top, *line[settled & np.isfinite(line)].tolist()])
        name = told.history.leaves[leaf].removeprefix(f"{team}/")
        colour = hues(told.history.leaves)[leaf].light
        style = STYLES[place % len(STYLES)]
        axes.plot(series.instants / DAY, line, color=colour, linewidth=1.4, linestyle=style, label=name)
    axes.axhspan(0, 1, color=ACCENT, alpha=0.07)
    axes.axhline(1, color=INK, linewidth=0.9)
    axes.set_ylim(0, min(3, top) * 1.2)  # room for the names
    axes.set_title(team)
    axes.legend(fontsize=6.5, frameon=False, ncols=3, loc="upper right", handlelength=1.8, columnspacing=0.8)
    time_axis(axes, told)
    _sparse(axes)


def parts(axes: Axes, told: Told) -> None:
    """What became of all GPUs, stacked."""
    series, hours = told.series, np.diff(told.series.edges)
    layers = (
        ("charged", series.charged.sum(axis=0), ACCENT, ""),
        ("unallocated", series.unallocated.sum(axis=0), "#b6d4f5", "////"),
        ("lost to host faults", series.lost, RED, ""),
        ("idle", series.idle, "#eef0f2", ""),
        ("not available", series.unavailable, GREY, ""),
    )
    at, base = series.edges / DAY, np.zeros(len(hours))
    for name, amount, colour, hatch in layers:
        top = base + amount / hours
        axes.fill_between(
            at,
            np.append(base, base[-1]),
            np.append(top, top[-1]),
            step="post",
            facecolor=colour,
            edgecolor=ACCENT if hatch else "none",
            hatch=hatch,
            linewidth=0,
            label=name,
        )
        base = top
    axes.set_ylim(0, max(told.history.installed, 1))
    axes.set_title("Occupancy and its parts: GPUs")
    axes.legend(ncols=5, fontsize=7, loc="lower left", framealpha=0.9)
    time_axis(axes, told)


def waits(axes: Axes, told: Told) -> None:
    """Part of the jobs that had started after a time, by class."""
    axes.set_title("Waits: part of the jobs that had started after ... (p90 in the legend)")
    longest = 60.0
    for place, (name, lengths) in enumerate(list(told.waits.items())[:CLASSES_MAX]):
        places = np.unique(np.linspace(0, len(lengths) - 1, min(CURVE, len(lengths))).round().astype(np.int64))
        seconds = np.maximum(lengths[places] / SECOND, 1)
        longest = max(longest, float(seconds[-1]))
        p90 = quantiles(lengths)[QUANTILES.index(90)] / SECOND
        part = (places + 1) / len(lengths)
        axes.step(
            np.concatenate([[1], seconds]),
            np.concatenate([[0], part]),
            where="post",
            color=HUES[place % len(HUES)],
            linestyle=STYLES[place // len(HUES)],
            linewidth=2.2 if name == "all" else 1.3,
            label=f"{name}: {duration(p90)}",
        )
    axes.set_xscale("log")
    ticks = [tick for tick in WAIT_TICKS if tick <= longest * 1.05]
    axes.set_xlim(1, longest * 1.05)
    axes.set_xticks(ticks, [WAIT_TICKS[tick] for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(0, 1.02)
    if told.waits:
        axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    box = axes.get_position()  # room for the legend
    axes.set_position((box.x0, box.y0, box.width - 0.05, box.height))


def stops(axes: Axes, told: Told) -> None:
    """Runs ended early by cause: how many, and the GPU-hours lost and spent on restarts."""
    axes.set_title("Ended early, by cause: GPU-hours lost, and restarts (grey)")
    listed = told.stops[::-1]
    names = [
        f"{stop.label}\n{'allocated' if stop.allocated else 'unallocated'}, {stop.count:,} runs" for stop in listed
    ]
    lost = [stop.lost_gpu_ms / HOUR for stop in listed]
    again = [stop.restart_gpu_ms / HOUR for stop in listed]
    place = range(len(listed))
    axes.barh(place, lost, color=RED, height=0.6)
    axes.barh(place, again, left=lost, color=GREY, height=0.6)
    axes.set_yticks(list(place), names, fontsize=6.5)
    for y, (work, restart) in enumerate(zip(lost, again, strict=True)):
        axes.text(work + restart, y, f" {work:,.0f} + {restart:,.0f}", va="center", fontsize=7, color=SOFT)
    axes.set_xlim(0, max([work + restart for work, restart in zip(lost, again, strict=True)], default=1) * 1.2 or 1)
    box = axes.get_position()  # room for the names
    axes.set_position((box.x0 + 0.08, box.y0, box.width - 0.08, box.height))


def _running(hourly: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> list[float]:
    return [0.0, *(np.cumsum(hourly) / HOUR).tolist()]


def _measured(hourly: "np.ndarray[tuple[int], np.dtype[np.float64]]", told: Told) -> float:
    """The sum over the stretch that is measured."""
    inside = _inside(told.series.edges, told.stretch)
    return float(hourly[inside].sum())


def _inside(edges: "np.ndarray[tuple[int], np.dtype[np.int64]]", stretch: Stretch) -> slice:
    first, last = np.searchsorted(edges, [stretch.start, stretch.end])
    return slice(int(first), int(last))


def _sparse(axes: Axes) -> None:
    """Few words on the axes of a small panel."""
    axes.tick_params(labelsize=6.5)
    axes.locator_params(axis="y", nbins=4)
    axes.yaxis.set_major_formatter("{x:,g}")
    ticks = axes.get_xticks().tolist()
    if len(ticks) > 4:
        labels = [label.get_text() for label in axes.get_xticklabels()]
        axes.set_xticks(ticks[::2], labels[::2])
