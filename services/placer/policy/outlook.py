"""The ratios to come, for P5 at a latest start (P8): if everybody keeps what they hold and nobody starts.

What a run has inside its protection is in its budget's commitment already; what it has after that is added to it. What
leaves the window meanwhile is taken to be the average of what was charged in it.
"""

from collections import Counter
from functools import cached_property

from services.placer.loose import Bunch
from services.placer.standings import Standings
from services.placer.state import State
from tenure.domain.host import CPU
from tenure.domain.ids import BudgetPath, RunId
from tenure.domain.policy import Policy
from tenure.domain.rates import MILLI, MilliGpuMillis, to_account
from tenure.domain.tree import lineage
from tenure.domain.units import HOUR, GpuMillis, Millis

STEP: Millis = HOUR


class Outlook:
    """The ratios of now and of each later hour, worked out when they are asked for."""

    def __init__(self, state: State, now: Millis, *, standings: Standings, policy: Policy) -> None:
        self.policy, self.standings = policy, standings
        self.instants = range(now, now + policy.promise_horizon_ms + 1, STEP)
        self._state, self._now = state, now
        self._beyond: dict[BudgetPath, list[MilliGpuMillis]] | None = None
        self._costs_alike = not policy.rates_milli and all(pool[1] != CPU for pool in state.layouts.of_pool)
        self._ratios: dict[tuple[BudgetPath, Millis], float] = {}

    def ratio(self, path: BudgetPath, at: Millis, *, less: GpuMillis = 0) -> float:
        """What is expected at one of the instants. `less`: of the commitment so much is not to be counted."""
        if at == self._now:
            return self.standings.ratio(path, less=less)
        if less:
            return self._ratio(path, at, less=less)
        known = self._ratios.get((path, at))
        if known is None:
            known = self._ratios[path, at] = self._ratio(path, at, less=0)
        return known

    @cached_property
    def held(self) -> dict[BudgetPath, int]:
        """GPUs of allocated runs that were not told to end, by their budget."""
        held = Counter[BudgetPath]()
        for key, bunch in self._state.loose.bunches.items():
            if key is not None:
                held[key.budget] += bunch.gpus
        for firm in self._state.firm.values():
            held[firm.holding.budget] += firm.gpus
        return held

    def _ratio(self, path: BudgetPath, at: Millis, *, less: GpuMillis) -> float:
        if self._beyond is None:
            self._beyond = self._had_beyond()
        ahead = at - self._now
        beyond = self._beyond.get(path)
        more = 0 if beyond is None else to_account(beyond[ahead // STEP])
        return self.standings.ratio(path, less=less - more, faded=ahead / self.policy.lookback_ms)

    def _weight(self, bunch: Bunch) -> int:
        """GPUs of a bunch, weighed by their rates in thousandths."""
        if self._costs_alike:
            return bunch.gpus * MILLI
        return sum([gpus * self._milli(run) for run, ((gpus, _), _) in bunch.runs.items()])

    def _milli(self, run: RunId) -> int:
        if self._costs_alike:
            return MILLI
        return self.policy.rate_milli(self._state.core.type_of(self._state.core.runs[run].placement))

    def _had_beyond(self) -> dict[BudgetPath, list[MilliGpuMillis]]:
        """By budget, and by hour, what the allocated runs at or below it will have had beyond their protections.

        A run of a weight from `past` on has weight x (hour - past) by then: the sum over runs takes two numbers.
        """
        hours, now = len(self.instants), self._now
        slope: dict[BudgetPath, list[int]] = {}
        offset: dict[BudgetPath, list[MilliGpuMillis]] = {}
        for key, bunch in self._state.loose.bunches.items():
            if key is not None:
                slope.setdefault(key.budget, [0] * hours)[0] += self._weight(bunch)
        for run, (until, gpus, _, (budget, _)) in self._state.firm.items():
            past = until - now if until > now else 0
            hour = -(-past // STEP)
            if hour < hours:
                if budget not in offset:
                    slope.setdefault(budget, [0] * hours)
                    offset[budget] = [0] * hours
                weight = gpus * self._milli(run)
                slope[budget][hour] += weight
                offset[budget][hour] += weight * past
        beyond: dict[BudgetPath, list[MilliGpuMillis]] = {}
        for budget, slopes in slope.items():
            rate = behind = 0
            offsets = offset.get(budget)
            above = [beyond.setdefault(path, [0] * hours) for path in lineage(budget)]
            for hour in range(hours):
                rate += slopes[hour]
                behind += offsets[hour] if offsets is not None else 0
                for had in above:
                    had[hour] += rate * hour * STEP - behind
        return beyond
