"""P3, commitment: GPU-time that is promised and still ahead.

Of a run that has not started and of a reservation it is all of GPUs x minimum runtime; of a running one GPUs x the
protected milliseconds that are left. Kept as sums, so that asking costs a bisection however many runs there are.
"""

from tenure.domain.curve import Curve
from tenure.domain.units import GpuMillis, Millis


class Commitment:
    """What is promised to the runs and reservations of one budget, or of one of its users.

    Equals `whole` + the sum over started runs of gpus x max(0, protected_until - t).
    """

    __slots__ = ("_ends", "_gpus", "_moment", "whole")

    def __init__(self) -> None:
        self.whole: GpuMillis = 0
        """Promised to runs that have not started and to reservations: does not decline."""
        # The sum without the max() is moment - gpus x t; the curve gains what of it lies below zero.
        self._gpus = 0
        self._moment: GpuMillis = 0
        self._ends = Curve()

    @property
    def nothing(self) -> bool:
        """Whether no run and no reservation is left, protected or not."""
        return self.whole == 0 and self._gpus == 0

    def protect(self, *, gpus: int, until: Millis) -> None:
        """A run holds `gpus` that are protected until then. With negative `gpus`: no longer."""
        self._gpus += gpus
        self._moment += gpus * until
        self._ends.step(until, gpus)

    def at(self, now: Millis) -> GpuMillis:
        """The commitment at `now`."""
        (rate, constant), _ = self.line(now)
        return rate * now + constant

    def line(self, now: Millis) -> tuple[tuple[int, GpuMillis], Millis | None]:
        """The commitment around `now` as (rate, constant): rate x t + constant, and from when that no longer holds."""
        rate, moment, until = self._ends.line(now)
        return (rate - self._gpus, self.whole + self._moment + moment), until

    def forget(self, before: Millis) -> None:
        """Drop what no question after `before` can see."""
        self._ends.forget(before)
