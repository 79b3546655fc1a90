"""GPU-time in the unit of account: steps of GPUs of a type become steps of weight, by the rates of each time."""

from collections.abc import Iterable, Iterator, Sequence

from tenure.domain.rates import MILLI, Rates
from tenure.domain.units import Millis

Steps = Iterator[tuple[Millis, int]]


class Weighing:
    """The rates of a log. Where all types cost 1, weights are GPUs, otherwise thousandths (`unit`)."""

    def __init__(self, rates: Rates, types: Iterable[str]) -> None:
        """`types`: those that were there or asked for."""
        self._rates = rates
        self.plain = all(era.get(gpu_type, MILLI) == MILLI for gpu_type in types for _, era in rates.eras)
        self.unit = 1 if self.plain else MILLI

    def steps(self, at: Millis, types: Sequence[str], gpus: int) -> Steps:
        """So many GPUs more from `at` on, of the cheapest of these types at each time."""
        if self.plain:
            yield at, gpus
            return
        milli: int | None = None
        for index, (since, rates) in enumerate(self._rates.eras):
            later = self._rates.eras[index + 1 :]
            if later and later[0][0] <= at:
                continue
            now = min((rates.get(gpu_type, MILLI) for gpu_type in types), default=MILLI)
            yield max(at, since), gpus * (now - (milli or 0))
            milli = now
