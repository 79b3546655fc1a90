"""P3, commitment: GPU-time that is promised and still ahead.

Of a run that has not started and of a reservation it is all of GPUs x minimum runtime; of a running one GPUs x the
protected milliseconds that are left. Each is weighed by the rate of its GPUs that was said last, in thousandths. Kept
as sums, so that asking costs a bisection however many runs there are.
"""

from collections.abc import Iterable

from services.ranker.job import Job
from services.ranker.policy.alike import Pool
from tenure.domain.curve import Curve
from tenure.domain.job import Wanted
from tenure.domain.policy import Policy
from tenure.domain.rates import MILLI, MilliGpuMillis
from tenure.domain.units import Millis


class Commitment:
    """What is promised to the runs and reservations of one budget, or of one of its users.

    Equals `whole` + the sum over started runs of weight x max(0, protected_until - t).
    """

    __slots__ = ("_ends", "_moment", "_weight", "whole")

    def __init__(self) -> None:
        self.whole: MilliGpuMillis = 0
        """Promised to runs that have not started and to reservations: does not decline."""
        # The sum without the max() is moment - weight x t; the curve gains what of it lies below zero.
        self._weight = 0
        self._moment: MilliGpuMillis = 0
        self._ends = Curve()

    @property
    def nothing(self) -> bool:
        """Whether no run and no reservation is left, protected or not."""
        return self.whole == 0 and self._weight == 0

    def protect(self, *, weight: int, until: Millis) -> None:
        """A run holds GPUs of this weight (GPUs x rate) that are protected until then. Negative: no longer."""
        self._weight += weight
        self._moment += weight * until
        self._ends.step(until, weight)

    def at(self, now: Millis) -> MilliGpuMillis:
        """The commitment at `now`."""
        (rate, constant), _ = self.line(now)
        return rate * now + constant

    def line(self, now: Millis) -> tuple[tuple[int, MilliGpuMillis], Millis | None]:
        """The commitment around `now` as (rate, constant): rate x t + constant, and from when that no longer holds."""
        rate, moment, until = self._ends.line(now)
        return (rate - self._weight, self.whole + self._moment + moment), until

    def forget(self, before: Millis) -> None:
        """Drop what no question after `before` can see."""
        self._ends.forget(before)


def dearest_milli(job: Job, pools: Iterable[Pool], policy: Policy) -> int:
    """The rate a queued job counts at: its type's; of any, the dearest, so that no cycle over-starts a budget.

    `pools` are those that have GPUs when every host works; of them the ones in which the job may lie count.
    """
    if job.gpu_type is not None:
        return policy.rate_milli(job.gpu_type)
    if not policy.rates_milli:
        return MILLI
    wanted = Wanted(job.cluster, None)
    return max([policy.rate_milli(pool[1]) for pool in pools if wanted.accepts(pool)], default=MILLI)
