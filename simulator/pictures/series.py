"""The numbers behind the charts over time, from a history: owed, delivered, ratio, and what became of all GPU-time.

All are GPU-milliseconds an hour (the last hour may be cut short), an entry each for the hours between `edges`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.pictures.curve import Curve, changes, value_at
from simulator.pictures.history import CAUSES, RUNNING, Floats, History, Ints
from tenure.domain.units import HOUR, Millis

RATIO_POINTS = 160
"""About how many points a ratio's line has at most: a month by six hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """What each leaf got, and the parts of all GPU-time (I5): they sum to the GPUs installed, hour by hour."""

    edges: Ints
    entitled: Floats
    """[leaf, hour] P1: the leaf's share of what is available."""
    demand: Floats
    """[leaf, hour] GPU-time asked for by allocated jobs, queued or running."""
    charged: Floats
    """[leaf, hour] P2, after refunds: this is what is delivered."""
    unallocated: Floats
    """[leaf, hour] held by unallocated runs."""
    lost: Floats
    """[hour] held, and taken back from the charge after a host fault."""
    idle: Floats
    unavailable: Floats
    """[hour] neither held nor available."""
    instants: Ints
    """Where the ratio is taken."""
    ratio: Floats
    """[leaf, instant] P3; NaN where the leaf is entitled to nothing."""
    behind: Floats
    """[leaf, instant] GPU-milliseconds below the entitlement of the window; negative: ahead."""

    @property
    def owed(self) -> Floats:
        """[leaf, hour] the smaller of entitlement and demand."""
        return np.minimum(self.entitled, self.demand)

    @property
    def days(self) -> Ints:
        """The first hour of each day, and the end."""
        hours = len(self.edges) - 1
        return np.append(np.arange(0, hours, 24), hours)

    def daily(self, hourly: Floats) -> Floats:
        """[..., day] sums of an hourly series."""
        return np.asarray(np.add.reduceat(hourly, self.days[:-1], axis=-1))


def build_series(history: History, *, lookback_ms: Millis) -> Series:
    """The series of a whole log. `lookback_ms`: the length of the window of the ratio."""
    end = max(history.end, 1)
    edges = np.append(np.arange(0, end, HOUR), end)
    runs, leaves = history.runs, len(history.leaves)
    charged_until = runs.end - runs.refunded // np.maximum(runs.gpus, 1)
    budget = history.jobs.budget[runs.job]
    entitled, charged, free, asked = [], [], [], []
    fractions = _fractions(history)
    for leaf in range(leaves):
        entitled.append(_entitlement(history, fractions[leaf]))
        paid = (budget == leaf) & runs.charged
        charged.append(Curve.of_spans(runs.start[paid], charged_until[paid], runs.gpus[paid]))
        unpaid = (budget == leaf) & ~runs.charged
        free.append(Curve.of_spans(runs.start[unpaid], runs.end[unpaid], runs.gpus[unpaid]))
        jobs = (history.jobs.budget == leaf) & (history.jobs.min_runtime > 0)
        asked.append(Curve.of_spans(history.jobs.submitted[jobs], history.jobs.finished[jobs], history.jobs.gpus[jobs]))
    lost = Curve.of_spans(charged_until[runs.charged], runs.end[runs.charged], runs.gpus[runs.charged])
    held = Curve.of_spans(runs.start, runs.end, runs.gpus).between(edges)
    unavailable = _unavailable(history, edges)
    instants = _instants(edges)
    ratio, behind = _ratio(history, entitled, charged, instants, lookback_ms=lookback_ms)
    return Series(
        edges=edges,
        entitled=_stack(entitled, edges),
        demand=_stack(asked, edges),
        charged=_stack(charged, edges),
        unallocated=_stack(free, edges),
        lost=lost.between(edges),
        idle=history.installed * np.diff(edges) - held - unavailable,
        unavailable=unavailable,
        instants=instants,
        ratio=ratio,
        behind=behind,
    )


def _stack(curves: list[Curve], edges: Ints) -> Floats:
    return np.array([curve.between(edges) for curve in curves]).reshape(len(curves), len(edges) - 1)


def _instants(edges: Ints) -> Ints:
    step = max(1, -(-len(edges) // RATIO_POINTS))
    step = next(hours for hours in (1, 2, 3, 6, 12, 24, step) if hours >= min(step, 24))
    return np.unique(np.append(edges[step::step], edges[-1]))


def _fractions(history: History) -> list[tuple[Ints, Floats]]:
    """Of each leaf: instants, and its share of the whole from each on."""
    at = np.array([when for when, _ in history.trees], dtype=np.int64)
    shares = np.array([fractions for _, fractions in history.trees]).reshape(len(at), len(history.leaves))
    return [(at, shares[:, leaf]) for leaf in range(len(history.leaves))]


def _entitlement(history: History, fraction: tuple[Ints, Floats]) -> Curve:
    """P1: the leaf's share of the whole times the available GPUs, at each instant."""
    at, available = _available(history)
    knots = np.union1d(at, fraction[0])
    return Curve.of_rates(knots, value_at(*fraction, knots) * value_at(at, available, knots))


def _available(history: History) -> tuple[Ints, Floats]:
    """Instants, and the available GPUs of all hosts from each on."""
    offers = history.capacity
    before = np.zeros(len(offers.at), dtype=np.int64)
    last = np.zeros(len(history.hosts), dtype=np.int64)
    for place, (host, gpus) in enumerate(zip(offers.host.tolist(), offers.gpus.tolist(), strict=True)):
        before[place], last[host] = last[host], gpus
    return offers.at, np.cumsum(offers.gpus - before).astype(np.float64)


def _unavailable(history: History, edges: Ints) -> Floats:
    """[hour] GPU-time that was neither held nor offered: of each host its size less the larger of the two.

    Only hosts that ever offer less than all their GPUs are looked at; of one that was never told of, all are available.
    """
    total = np.zeros(len(edges) - 1)
    offers, spans, runs = history.capacity, history.spans, history.runs
    offering = offers.gpus < history.gpus[offers.host]
    late = np.full(len(history.hosts), history.end)
    np.minimum.at(late, offers.host, offers.at)
    told = np.isin(np.arange(len(history.hosts)), offers.host)
    for host in np.union1d(offers.host[offering], np.flatnonzero(told & (late > 0))).tolist():
        mine, on_it = offers.host == host, spans.host == host
        held_at, by = changes(runs.start[spans.run[on_it]], runs.end[spans.run[on_it]], spans.count[on_it])
        knots = np.union1d(np.union1d(held_at, offers.at[mine]), [0])
        used = np.maximum(value_at(held_at, np.cumsum(by), knots), value_at(offers.at[mine], offers.gpus[mine], knots))
        total += Curve.of_rates(knots, history.gpus[host] - used).between(edges)
    return total


def _ratio(
    history: History, entitled: list[Curve], charged: list[Curve], instants: Ints, *, lookback_ms: Millis
) -> tuple[Floats, Floats]:
    """P3 of each leaf at each instant, and how far it is behind its entitlement."""
    begins = np.maximum(instants - lookback_ms, 0)
    ratio = np.full((len(entitled), len(instants)), np.nan)
    behind = np.zeros((len(entitled), len(instants)))
    budget = history.jobs.budget[history.runs.job]
    for leaf, (entitlement, charge) in enumerate(zip(entitled, charged, strict=True)):
        due = entitlement.at(instants) - entitlement.at(begins)
        got = charge.at(instants) - charge.at(begins) + _commitment(history, budget == leaf, instants)
        np.divide(got, due, out=ratio[leaf], where=due > 0)
        behind[leaf] = due - got
    return ratio, behind


def _commitment(history: History, of_leaf: NDArray[np.bool_], instants: Ints) -> Floats:
    """GPUs x protected time still ahead of the runs at each instant, which is a sum of (until - now) x GPUs."""
    runs = history.runs
    own = of_leaf & runs.charged & (runs.protected_until > runs.start)
    start, until, gpus = runs.start[own], runs.protected_until[own], runs.gpus[own]
    stop = np.where(runs.cause[own] == CAUSES.index(RUNNING), until, np.minimum(runs.end[own], until))
    at, by = changes(start, stop, gpus)
    _, by_until = changes(start, stop, gpus * until)
    return value_at(at, np.cumsum(by_until), instants) - instants * value_at(at, np.cumsum(by), instants)
