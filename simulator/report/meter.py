"""GPU-time read at fixed instants: from steps of a rate to the amount gained until each of them."""

from bisect import bisect_right
from collections.abc import Sequence

from tenure.domain.units import GpuMillis, Millis


class Meter:
    """Sums GPUs over time. A step costs a bisection, a reading O(instants), however many steps there were."""

    __slots__ = ("_cuts", "_moments", "_rates")

    def __init__(self, cuts: Sequence[Millis]) -> None:
        """`cuts`: the instants that will be asked about, in order."""
        self._cuts = cuts
        # The amount at cut i is rate * cut - moment, both summed over the steps that lie before it.
        self._rates = [0] * (len(cuts) + 1)
        self._moments = [0] * (len(cuts) + 1)

    def step(self, at: Millis, change: int) -> None:
        """The rate changes by `change` GPUs at `at`."""
        index = bisect_right(self._cuts, at)
        self._rates[index] += change
        self._moments[index] += change * at

    def read(self) -> list[GpuMillis]:
        """The amount gained until each cut."""
        amounts, rate, moment = [], 0, 0
        for cut, change, shift in zip(self._cuts, self._rates, self._moments, strict=False):
            rate += change
            moment += shift
            amounts.append(rate * cut - moment)
        return amounts
