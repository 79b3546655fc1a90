"""An amount that grows over time at a rate that steps: GPU-time charged, or GPU-time available.

The window sums of P1 and P2 are differences of two points of such a curve: `curve.at(t) - curve.at(t - W)`. That is
exact to the millisecond and costs a bisection, however many runs there were.
"""

from bisect import bisect_left, bisect_right

from tenure.domain.units import Millis

Dumped = tuple[int, int, list[Millis], list[int]]
"""A curve as plain values: rate and moment before the first step, instants of the steps, changes of rate."""


class Curve:
    """A piecewise linear curve of integer amounts, zero before its first step.

    One owner, one thread. `rate` is the amount gained per millisecond (GPUs, for GPU-milliseconds).
    """

    __slots__ = ("_changes", "_moments", "_rates", "_times")

    def __init__(self) -> None:
        self._times: list[Millis] = []
        self._changes: list[int] = []
        # Until step i (exclusive) the amount is rates[i] * t - moments[i]: both are sums over the steps before it.
        # Only a prefix of the two is kept: a step in the past cuts it short, a question extends it as far as it needs.
        self._rates: list[int] = [0]
        self._moments: list[int] = [0]

    @property
    def rate(self) -> int:
        """The rate since the last step."""
        self._extend(len(self._times))
        return self._rates[-1]

    @property
    def flat(self) -> bool:
        """Whether nothing is gained any more by what is remembered."""
        return not self._times and self._rates[0] == 0

    def at(self, when: Millis) -> int:
        """The amount gained until `when`."""
        index = bisect_right(self._times, when)
        if index >= len(self._rates):
            self._extend(index)
        return self._rates[index] * when - self._moments[index]

    def line(self, when: Millis) -> tuple[int, int, Millis | None]:
        """The curve around `when`: it is rate x t + constant until the next step, if there is one."""
        index = bisect_right(self._times, when)
        if index >= len(self._rates):
            self._extend(index)
        return self._rates[index], -self._moments[index], self._times[index] if index < len(self._times) else None

    def gained(self, *, since: Millis, until: Millis) -> int:
        """The amount gained in (since, until]."""
        return self.at(until) - self.at(since)

    def step(self, when: Millis, change: int) -> None:
        """Change the rate by `change` from `when` on, for good. `when` may lie before earlier steps."""
        if change == 0:
            return
        times = self._times
        if not times or when > times[-1]:
            times.append(when)
            self._changes.append(change)
            return
        index = bisect_left(times, when)
        del self._rates[index + 1 :], self._moments[index + 1 :]
        if times[index] != when:
            times.insert(index, when)
            self._changes.insert(index, change)
        elif self._changes[index] + change:
            self._changes[index] += change
        else:
            del times[index], self._changes[index]

    def add(self, *, since: Millis, until: Millis, rate: int) -> None:
        """Gain `rate` more during [since, until); negative to take back."""
        if until > since:
            self.step(since, rate)
            self.step(until, -rate)

    def forget(self, before: Millis) -> None:
        """Drop the steps that no difference of two instants at or after `before` can see."""
        index = bisect_right(self._times, before)
        if index > 0:
            self._extend(index)
            del self._times[:index], self._changes[:index], self._rates[:index], self._moments[:index]

    def dump(self) -> Dumped:
        """The curve as plain values; equal for equal curves."""
        return self._rates[0], self._moments[0], list(self._times), list(self._changes)

    @classmethod
    def load(cls, dumped: Dumped) -> "Curve":
        """The inverse of `dump`."""
        curve = cls()
        rate, moment, times, changes = dumped
        curve._rates, curve._moments = [rate], [moment]
        curve._times, curve._changes = list(times), list(changes)
        return curve

    def _extend(self, index: int) -> None:
        """Make the sums valid for the piece before step `index`."""
        rates, moments = self._rates, self._moments
        known = len(rates) - 1
        rate, moment = rates[known], moments[known]
        for step in range(known, index):
            change = self._changes[step]
            rate += change
            moment += change * self._times[step]
            rates.append(rate)
            moments.append(moment)
