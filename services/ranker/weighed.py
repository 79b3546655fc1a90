"""GPU-time by type, and what that is in the unit of account: a curve a type, weighed by the rates of each time."""

from collections.abc import Mapping

from tenure.domain.curve import Curve, Dumped
from tenure.domain.rates import MilliGpuMillis, Rates
from tenure.domain.units import GpuMillis, Millis

DumpedByType = dict[str, Dumped]


class Weighed:
    """Equals the integral of rate(type, t) x GPUs(type, t) over time, for all types, in thousandths.

    The curves are of GPUs as they are; rates are looked up when the amount is asked for, so that what is reported late
    of a time has the rate of that time.
    """

    __slots__ = ("_rates", "by_type")

    def __init__(self, rates: Rates, by_type: Mapping[str, Curve] | None = None) -> None:
        self._rates = rates
        self.by_type: dict[str, Curve] = dict(by_type or {})

    @property
    def flat(self) -> bool:
        """Whether nothing is gained any more by what is remembered."""
        return all(curve.flat for curve in self.by_type.values())

    @property
    def rate(self) -> int:
        """What is gained each millisecond since the last step, by the newest rates."""
        return sum(curve.rate * self._rates.newest_milli(gpu_type) for gpu_type, curve in self.by_type.items())

    def step(self, gpu_type: str, when: Millis, change: int) -> None:
        """So many GPUs of a type more from `when` on."""
        if change:
            self._of(gpu_type).step(when, change)

    def add(self, gpu_type: str, *, since: Millis, until: Millis, gpus: int) -> None:
        """So many GPUs of a type more during [since, until)."""
        self._of(gpu_type).add(since=since, until=until, rate=gpus)

    def at(self, when: Millis) -> MilliGpuMillis:
        """The amount gained until `when`."""
        rate, constant, _ = self.line(when)
        return rate * when + constant

    def line(self, when: Millis) -> tuple[int, MilliGpuMillis, Millis | None]:
        """The amount around `when`: it is rate x t + constant until a GPU more is held, or other rates count."""
        until = self._rates.next_change(when)
        rate = constant = 0
        for gpu_type, curve in self.by_type.items():
            gpus, held, step = curve.line(when)
            milli, before = self._weight(gpu_type, curve, when)
            rate += gpus * milli
            constant += held * milli + before
            if step is not None and (until is None or step < until):
                until = step
        return rate, constant, until

    def gained(self, *, since: Millis, until: Millis) -> GpuMillis:
        """GPU-time of all types in (since, until], not weighed."""
        return sum(curve.gained(since=since, until=until) for curve in self.by_type.values())

    def forget(self, before: Millis) -> None:
        """Drop what no difference of two instants at or after `before` can see."""
        for curve in self.by_type.values():
            curve.forget(before)
        self.by_type = {gpu_type: curve for gpu_type, curve in self.by_type.items() if not curve.flat}

    def dump(self) -> DumpedByType:
        """As plain values; equal for equal amounts."""
        return {gpu_type: self.by_type[gpu_type].dump() for gpu_type in sorted(self.by_type)}

    @classmethod
    def load(cls, rates: Rates, dumped: DumpedByType) -> "Weighed":
        """The inverse of `dump`."""
        return cls(rates, {gpu_type: Curve.load(curve) for gpu_type, curve in dumped.items()})

    def _of(self, gpu_type: str) -> Curve:
        curve = self.by_type.get(gpu_type)
        if curve is None:
            curve = self.by_type[gpu_type] = Curve()
        return curve

    def _weight(self, gpu_type: str, curve: Curve, when: Millis) -> tuple[int, MilliGpuMillis]:
        """The rate that counts at `when`, and what earlier rates made of the time before it more than this one."""
        eras = self._rates.of_type(gpu_type)
        milli, more = eras[0][1], 0
        for since, later in eras[1:]:
            if since > when:
                break
            more += (milli - later) * curve.at(since)
            milli = later
        return milli, more
