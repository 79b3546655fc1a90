"""The ratios to come, for P5 at a latest start (P8): if everybody keeps what they hold and nobody starts.

What a run has inside its protection is in its budget's commitment already; what it has after that is added to it. What
leaves the window meanwhile is taken to be the average of what was charged in it.
"""

from services.placer.standings import Standings
from services.placer.state import State
from tenure.domain.ids import BudgetPath
from tenure.domain.policy import Policy
from tenure.domain.units import HOUR, GpuMillis, Millis

STEP: Millis = HOUR


class Outlook:
    """The standings of now and of each later hour, worked out when they are asked for."""

    def __init__(self, state: State, now: Millis, *, standings: Standings, policy: Policy) -> None:
        self.policy = policy
        self.instants = range(now, now + policy.promise_horizon_ms + 1, STEP)
        self._state, self._now = state, now
        self._known = {now: standings}

    @property
    def standings(self) -> Standings:
        """Those of now."""
        return self._known[self._now]

    def at(self, instant: Millis) -> Standings:
        """What is expected then."""
        known = self._known.get(instant)
        if known is None:
            faded = (instant - self._now) / self.policy.lookback_ms
            known = self._known[instant] = self.standings.plus(self._had_until(instant), faded=faded)
        return known

    def _had_until(self, instant: Millis) -> dict[BudgetPath, GpuMillis]:
        """By budget what its allocated runs will have had beyond their protections."""
        core, now = self._state.core, self._now
        had: dict[BudgetPath, GpuMillis] = {}
        for key, bunch in self._state.loose.bunches.items():
            if key is not None:
                had[key.budget] = had.get(key.budget, 0) + bunch.gpus * (instant - now)
        for run_id in self._state.firm:
            run = core.runs[run_id]
            past = instant - max(now, run.protected_until or now)
            if past > 0:
                spec = core.jobs[run.job].spec
                had[spec.budget] = had.get(spec.budget, 0) + spec.gpus * past
        return had
