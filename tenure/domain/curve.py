"""An amount that grows over time at a rate that steps: GPU-time charged, or GPU-time entitled.

The window sums of P1 and P2 are differences of two points of such a curve: `curve.at(t) - curve.at(t - W)`. That is
exact to the millisecond and costs a bisection, however many runs there were.
"""

from bisect import bisect_right

from tenure.domain.units import Millis


class Curve:
    """A piecewise linear curve of integer amounts, zero before its first step.

    One owner, one thread. `rate` is the amount gained per millisecond (GPUs, for GPU-milliseconds).
    """

    __slots__ = ("_amounts", "_rates", "_times")

    def __init__(self) -> None:
        self._times: list[Millis] = []
        self._amounts: list[int] = []
        self._rates: list[int] = []

    @property
    def rate(self) -> int:
        """The rate since the last step."""
        return self._rates[-1] if self._rates else 0

    def at(self, when: Millis) -> int:
        """The amount gained until `when`."""
        index = bisect_right(self._times, when) - 1
        if index < 0:
            return 0
        return self._amounts[index] + self._rates[index] * (when - self._times[index])

    def gained(self, *, since: Millis, until: Millis) -> int:
        """The amount gained in (since, until]."""
        return self.at(until) - self.at(since)

    def step(self, when: Millis, change: int) -> None:
        """Change the rate by `change` from `when` on, for good. `when` may lie before earlier steps."""
        if change == 0:
            return
        times = self._times
        if not times or when > times[-1]:
            amount = self.at(when)
            times.append(when)
            self._amounts.append(amount)
            self._rates.append(self.rate + change)
            return
        index = bisect_right(times, when) - 1
        if index < 0 or times[index] != when:
            amount, rate = self.at(when), (self._rates[index] if index >= 0 else 0)
            index += 1
            times.insert(index, when)
            self._amounts.insert(index, amount)
            self._rates.insert(index, rate)
        for later in range(index, len(times)):
            self._amounts[later] += change * (times[later] - when)
            self._rates[later] += change

    def add(self, *, since: Millis, until: Millis, rate: int) -> None:
        """Gain `rate` more during [since, until); negative to take back."""
        if until > since:
            self.step(since, rate)
            self.step(until, -rate)

    def forget(self, before: Millis) -> None:
        """Drop the steps that no difference of two instants at or after `before` can see."""
        index = bisect_right(self._times, before) - 1
        if index > 0:
            del self._times[:index], self._amounts[:index], self._rates[:index]

    def dump(self) -> tuple[list[Millis], list[int], list[int]]:
        """The curve as three lists of equal length: instants, amounts, rates."""
        return list(self._times), list(self._amounts), list(self._rates)

    @classmethod
    def load(cls, dumped: tuple[list[Millis], list[int], list[int]]) -> "Curve":
        """The inverse of `dump`."""
        curve = cls()
        curve._times, curve._amounts, curve._rates = (list(part) for part in dumped)
        return curve
