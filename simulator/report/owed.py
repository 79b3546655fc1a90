"""Owed and delivered, leaf by leaf: the words of the glossary (P1, P2), as `deploy/clickhouse/003_owed.sql` has them.

Owed is, hour by hour, the smaller of the leaf's share of the available capacity and its demand: both are sums over the
hour, by the tree that was in force. An hour that the asked window cuts counts with what of it lies inside. All of it is
in the unit of account; a job wants GPUs at the rate of the type it names, or of the
cheapest that it accepts of those that hosts offered in that hour; of none at 1.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from simulator.report.history import History, Pool
from simulator.report.meter import Meter
from simulator.report.weighing import Weighing
from tenure.domain.ids import BudgetPath
from tenure.domain.job import Wanted
from tenure.domain.rates import Rates
from tenure.domain.units import HOUR, GpuMillis, Millis

Sums = list[float]


class Books:
    """What every leaf was entitled to, wanted and got until each of the instants that matter."""

    def __init__(self, history: History, *, until: Millis, edges: Iterable[Millis], since: Millis = 0) -> None:
        """`edges`: where windows that will be asked about begin and end; none after `until`, none before `since`."""
        self._hours = list(range(since // HOUR * HOUR, until + 1, HOUR))
        eras = [at for at, _ in history.trees if at <= until]
        self._cuts = sorted({*self._hours, *edges, *eras, until})
        self._index = {cut: index for index, cut in enumerate(self._cuts)}
        self._weighing = Weighing(history.rates, history.types)
        self._offered = self._sums(_offered_steps(history, Weighing(Rates({}), ())), unit=1)
        self._available = self._sums(_offered_steps(history, self._weighing), unit=self._weighing.unit)
        self._entitled = self._entitlements(history)
        self._demand = self._read(_demand_steps(history, self._weighing))
        self._charged = self._read(_charged_steps(history, self._weighing, until))
        self._nothing = [0.0] * len(self._cuts)
        self._owed_by_hour = {leaf: self._whole_hours(leaf) for leaf in self.leaves}

    @property
    def leaves(self) -> Sequence[BudgetPath]:
        """Every budget that ever was a leaf, in order of path."""
        return tuple(sorted(self._entitled))

    def available(self, since: Millis, until: Millis) -> GpuMillis:
        """GPU-time that hosts offered in [since, until), of whatever type."""
        return round(self._offered[self._index[until]] - self._offered[self._index[since]])

    def delivered(self, leaf: BudgetPath, since: Millis, until: Millis) -> float:
        """Charged occupancy in [since, until), less what was refunded of it."""
        amounts = self._charged.get(leaf)
        return 0 if amounts is None else amounts[self._index[until]] - amounts[self._index[since]]

    def owed(self, leaf: BudgetPath, since: Millis, until: Millis) -> float:
        """GPU-milliseconds owed in [since, until)."""
        first, last = bisect_left(self._hours, since), bisect_right(self._hours, until) - 1
        if first > last:
            return self._owed_piece(leaf, since, until)
        sums = self._owed_by_hour[leaf]
        before = self._owed_piece(leaf, since, self._hours[first])
        return before + sums[last] - sums[first] + self._owed_piece(leaf, self._hours[last], until)

    def _owed_piece(self, leaf: BudgetPath, since: Millis, until: Millis) -> float:
        """Of (a part of) one hour."""
        if since >= until:
            return 0.0
        one, other = self._index[since], self._index[until]
        entitled, demand = self._entitled[leaf], self._demand.get(leaf, self._nothing)
        return min(entitled[other] - entitled[one], demand[other] - demand[one])

    def _whole_hours(self, leaf: BudgetPath) -> Sums:
        """Owed from the first hour's beginning to each hour's."""
        sums = [0.0]
        for since, until in zip(self._hours, self._hours[1:], strict=False):
            sums.append(sums[-1] + self._owed_piece(leaf, since, until))
        return sums

    def _entitlements(self, history: History) -> dict[BudgetPath, Sums]:
        """P1: the integral of (product of shares x available GPUs) until each cut."""
        entitled: dict[BudgetPath, Sums] = {}
        eras = [(at, {leaf: tree.fractions[leaf] for leaf in tree.leaves}) for at, tree in history.trees]
        for _, fractions in eras:
            for leaf in fractions:
                entitled.setdefault(leaf, [0.0])
        changes = iter(eras)
        coming = next(changes, None)
        now: dict[BudgetPath, float] = {}
        for index, cut in enumerate(self._cuts[:-1]):
            while coming is not None and coming[0] <= cut:
                now, coming = coming[1], next(changes, None)
            gained = self._available[index + 1] - self._available[index]
            for leaf, sums in entitled.items():
                sums.append(sums[-1] + now.get(leaf, 0.0) * gained)
        return entitled

    def _read(self, steps: Iterable[tuple[BudgetPath, Millis, int]]) -> dict[BudgetPath, Sums]:
        meters: dict[BudgetPath, Meter] = {}
        for budget, at, change in steps:
            meter = meters.get(budget)
            if meter is None:
                meter = meters[budget] = Meter(self._cuts)
            meter.step(at, change)
        return {budget: _in_unit(meter, self._weighing.unit) for budget, meter in meters.items()}

    def _sums(self, steps: Iterable[tuple[Millis, int]], *, unit: int) -> Sums:
        meter = Meter(self._cuts)
        for at, change in steps:
            meter.step(at, change)
        return _in_unit(meter, unit)


def _in_unit(meter: Meter, unit: int) -> Sums:
    """What was gained until each cut: whole GPU-milliseconds where there are no rates."""
    return [amount / unit for amount in meter.read()] if unit > 1 else [*meter.read()]


def _offered_steps(history: History, weighing: Weighing) -> Iterable[tuple[Millis, int]]:
    """What hosts offer."""
    for at, (_, gpu_type), change in history.offered:
        yield from weighing.steps(at, [(0, [gpu_type])], change)


def _demand_steps(history: History, weighing: Weighing) -> Iterable[tuple[BudgetPath, Millis, int]]:
    """Allocated jobs, from submission to their end, queued or running."""
    pools = pools_by_hour(history.offered)
    known: dict[Wanted, Sequence[tuple[Millis, Sequence[str]]]] = {}
    for job in history.jobs.values():
        if job.allocated:
            types = known.get(job.wanted)
            if types is None:
                types = known[job.wanted] = _types(job.wanted, pools)
            yield from _of(job.budget, weighing.steps(job.submitted_at, types, job.gpus))
            if job.finished_at is not None:
                yield from _of(job.budget, weighing.steps(job.finished_at, types, -job.gpus))


def pools_by_hour(offered: Iterable[tuple[Millis, Pool, int]]) -> list[tuple[Millis, frozenset[Pool]]]:
    """The pools that offer anything at some time of an hour, from which full hour on; oldest first, from 0 on."""
    steps: dict[Millis, dict[Pool, int]] = {0: {}}
    for at, pool, change in offered:
        of_time = steps.setdefault(at, {})
        of_time[pool] = of_time.get(pool, 0) + change
    gpus: dict[Pool, int] = {}
    of_hour: dict[Millis, set[Pool]] = {}
    for at in sorted(steps):
        hour = at // HOUR * HOUR
        before = {pool for pool, count in gpus.items() if count > 0}
        for pool, change in steps[at].items():
            gpus[pool] = gpus.get(pool, 0) + change
        there = {pool for pool, count in gpus.items() if count > 0}
        of_hour[hour] = there | (of_hour.get(hour, before) if at > hour else set())
        of_hour[hour + HOUR] = there
    return [(hour, frozenset(of_hour[hour])) for hour in sorted(of_hour)]


def _types(wanted: Wanted, pools: Iterable[tuple[Millis, Iterable[Pool]]]) -> list[tuple[Millis, list[str]]]:
    """The types that such a job may have: the one it names, or what it accepts of what is offered in an hour."""
    if wanted.gpu_type is not None:
        return [(0, [wanted.gpu_type])]
    return [(hour, [pool[1] for pool in sorted(offered) if wanted.accepts(pool)]) for hour, offered in pools]


def _charged_steps(history: History, weighing: Weighing, until: Millis) -> Iterable[tuple[BudgetPath, Millis, int]]:
    """P2: charged runs from start to end, or to where what they held was given back."""
    for run in history.runs.values():
        if run.charged:
            end = until if run.ended_at is None else run.ended_at
            if run.refund_since is not None:
                end = min(end, max(run.refund_since, run.started_at))
            types = [(0, [run.gpu_type])]
            yield from _of(run.job.budget, weighing.steps(run.started_at, types, run.gpus))
            yield from _of(run.job.budget, weighing.steps(end, types, -run.gpus))


def _of(budget: BudgetPath, steps: Iterable[tuple[Millis, int]]) -> Iterable[tuple[BudgetPath, Millis, int]]:
    return ((budget, at, change) for at, change in steps)
