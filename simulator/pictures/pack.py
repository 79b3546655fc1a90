"""What the page draws from, packed for it: columns of small integers where there are many of them.

The page's script unpacks this (`assets/data.js`); both change together. Instants and lengths of time are in units of
`unit_ms`; a column marked `delta` holds differences. GPU-time is in GPU-hours, rounded.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from simulator.pictures.history import CAUSES, Floats, History, Ints
from simulator.pictures.hues import hues
from simulator.pictures.series import Series
from simulator.pictures.told import Told
from simulator.pictures.waits import QUANTILES, quantiles
from tenure.domain.units import HOUR, SECOND

STEPS = (1, 2, 3, 6, 12, 24)
"""Hours that one point of a chart may stand for: the fewest that keep it under `POINTS`."""
POINTS = 170
CURVE = 200
"""Points of a distribution's curve at most."""
_HOURLY_MAX = 2_000


def pack(told: Told) -> dict[str, Any]:
    """Everything the page shows, ready to be written as JSON."""
    history, stretch, report = told.history, told.stretch, told.report
    unit = _unit(history)
    return {
        "policy": report.get("policy", ""),
        "unit_ms": unit,
        "epoch_ms": history.epoch_ms,
        "end": history.end // unit,
        "start": stretch.start // unit,
        "stop": stretch.end // unit,
        "lookback": stretch.lookback // unit,
        "hosts": {"names": history.hosts, "gpus": history.gpus.tolist()},
        "budgets": _budgets(history),
        "jobs": _jobs(history, unit),
        "runs": _runs(history, unit),
        "spans": _spans(history),
        "capacity": {
            "at": (history.capacity.at // unit).tolist(),
            "host": history.capacity.host.tolist(),
            "gpus": history.capacity.gpus.tolist(),
        },
        "series": _series(told.series, unit),
        "waits": {name: _wait(lengths) for name, lengths in told.waits.items()},
        "stops": [
            {
                "label": stop.label,
                "allocated": stop.allocated,
                "count": stop.count,
                "lost": round(stop.lost_gpu_ms / HOUR, 2),
                "restart": round(stop.restart_gpu_ms / HOUR, 2),
            }
            for stop in told.stops
        ],
        "report": _figures(report),
        "what_if": _what_if(report),
    }


def _unit(history: History) -> int:
    """A second if every instant is a whole one, else a millisecond."""
    runs, jobs = history.runs, history.jobs
    columns = (runs.start, runs.end, runs.protected_until, jobs.submitted, history.capacity.at)
    return SECOND if not any(np.any(column % SECOND) for column in columns) else 1


def _budgets(history: History) -> list[dict[str, Any]]:
    shares = history.trees[-1][1].tolist()
    return [
        {"path": leaf, "team": hue.team, "light": hue.light, "dark": hue.dark, "share": round(share, 5)}
        for leaf, hue, share in zip(history.leaves, hues(history.leaves), shares, strict=True)
    ]


def _jobs(history: History, unit: int) -> dict[str, Any]:
    jobs = history.jobs
    users = sorted(set(jobs.users))
    index = {user: place for place, user in enumerate(users)}
    return {
        "ids": jobs.ids,
        "users": users,
        "user": [index[user] for user in jobs.users],
        "budget": jobs.budget.tolist(),
        "submitted_delta": _delta(jobs.submitted // unit),
        "gpus": jobs.gpus.tolist(),
        "min_runtime": (jobs.min_runtime // unit).tolist(),
        "resumable": jobs.resumable.astype(np.int64).tolist(),
        "priority": jobs.priority.tolist(),
    }


def _runs(history: History, unit: int) -> dict[str, Any]:
    """`by`: an index into `names`. `why`: into `reasons`, whose `keys` name each run's `numbers`."""
    runs = history.runs
    names: dict[str, int] = {"": 0}
    reasons: dict[tuple[str, ...], int] = {}
    why, by, numbers = [], [], {}
    for run, (told, name) in enumerate(zip(runs.reasons, runs.by, strict=True)):
        by.append(names.setdefault(name, len(names)))
        said = told.get("numbers") or {}
        key = (str(told.get("rule", "")), str(told.get("reason", "")), *said)
        why.append(reasons.setdefault(key, len(reasons)))
        if said and name:  # an end of its own has nothing to compare
            numbers[run] = [round(value, 4) if isinstance(value, float) else value for value in said.values()]
    return {
        "start_delta": _delta(runs.start // unit),
        "length": ((runs.end - runs.start) // unit).tolist(),
        "job": runs.job.tolist(),
        "number": runs.number.tolist(),
        "guard": (np.maximum(runs.protected_until - runs.start, 0) // unit).tolist(),
        "charged": runs.charged.astype(np.int64).tolist(),
        "cause": runs.cause.tolist(),
        "causes": CAUSES,
        "names": list(names),
        "by": by,
        "reasons": [{"rule": key[0], "reason": key[1], "keys": key[2:]} for key in reasons],
        "why": why,
        "numbers": numbers,
    }


def _spans(history: History) -> dict[str, Any]:
    """`n` of each run, and the rows they hold: neighbouring hosts of one run are one span."""
    spans = history.spans
    row = history.first_row[spans.host] + spans.first if len(spans.run) else spans.run
    order = np.lexsort((row, spans.run))
    run, row, count = spans.run[order], row[order], spans.count[order]
    joined = (run[1:] == run[:-1]) & (row[1:] == row[:-1] + count[:-1])
    first = np.flatnonzero(np.concatenate([[True], ~joined])[: len(run)])
    return {
        "n": np.bincount(run[first], minlength=len(history.runs.job)).tolist(),
        "row": row[first].tolist(),
        "count": np.add.reduceat(count, first).tolist() if len(first) else [],
    }


def _series(series: Series, unit: int) -> dict[str, Any]:
    """Budgets by steps of some hours, the parts of all GPU-time hour by hour (by the same steps in a long log)."""
    hours = len(series.edges) - 1
    step = next((hours_ for hours_ in STEPS if hours_ * POINTS >= hours), STEPS[-1])
    fine = 1 if hours <= _HOURLY_MAX else step
    parts = {
        "charged": series.charged.sum(axis=0),
        "unallocated": series.unallocated.sum(axis=0),
        "lost": series.lost,
        "idle": series.idle,
        "unavailable": series.unavailable,
    }
    return {
        "step_hours": step,
        "edges": _edges(series.edges, step, unit),
        "owed": [_sums(leaf, step) for leaf in series.owed],
        "delivered": [_sums(leaf, step) for leaf in series.charged],
        "entitled": [_sums(leaf, step) for leaf in series.entitled],
        "instants": (series.instants // unit).tolist(),
        "ratio": [[None if np.isnan(value) else round(value, 4) for value in leaf.tolist()] for leaf in series.ratio],
        "behind": [(np.round(leaf / HOUR, 1) + 0.0).tolist() for leaf in series.behind],
        "part_edges": _edges(series.edges, fine, unit),
        "parts": {name: _sums(hourly, fine) for name, hourly in parts.items()},
    }


def _edges(edges: Ints, step: int, unit: int) -> list[int]:
    return list(dict.fromkeys([*(edges[:-1:step] // unit).tolist(), int(edges[-1] // unit)]))


def _sums(hourly: Floats, step: int) -> list[float]:
    """GPU-hours of every `step` hours; the last may be fewer."""
    sums = np.add.reduceat(hourly, np.arange(0, len(hourly), step)) / HOUR
    return [round(value, 2) + 0.0 for value in sums.tolist()]


def _wait(lengths: Ints) -> dict[str, Any]:
    """Seconds: quantiles, and the curve of the distribution by even parts of the jobs."""
    places = np.unique(np.linspace(0, len(lengths) - 1, min(CURVE, len(lengths))).round().astype(np.int64))
    named = {f"p{percent}": length / SECOND for percent, length in zip(QUANTILES, quantiles(lengths), strict=True)}
    return {
        "n": len(lengths),
        **named,
        "seconds": [length / SECOND for length in lengths[places].tolist()],
        "part": [round((place + 1) / len(lengths), 5) for place in places.tolist()],
    }


def _delta(column: Ints) -> list[int]:
    return [int(step) for step in np.diff(column, prepend=0)]


def _what_if(report: Mapping[str, Any]) -> dict[str, Any] | None:
    """Who gains and who loses, where a log was replayed: of each its name, GPU-hours before and after, mean waits."""
    found = report.get("what_if")
    if not found:
        return None
    lists = {part: [_gain(gain) for gain in found[part]] for part in ("budgets", "users")}
    return {"changes": found["changes"], "compared_with": found["compared_with"], **lists}


def _gain(gain: Mapping[str, Any]) -> list[Any]:
    before, after = gain["before"], gain["after"]
    figures = [
        gain["really"]["delivered_gpu_hours"],
        before["delivered_gpu_hours"],
        after["delivered_gpu_hours"],
        gain["delivered_change_gpu_hours"],
        gain["unallocated_change_gpu_hours"],
        before["wait_mean_s"],
        after["wait_mean_s"],
    ]
    return [gain["name"], *(None if figure is None else round(figure, 2) for figure in figures)]


def _figures(report: Mapping[str, Any]) -> dict[str, Any]:
    """The report's own figures that the page says at its top."""
    delivered = report.get("delivered", {})
    own = {name: report[name] for name in ("occupancy", "goodput", "violations", "wall_seconds") if name in report}
    return own | {f"delivered_{name}": delivered[name] for name in ("ratio", "worst") if name in delivered}
