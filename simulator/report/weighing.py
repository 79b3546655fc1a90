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

    def steps(self, at: Millis, types: Sequence[tuple[Millis, Sequence[str]]], gpus: int) -> Steps:
        """So many GPUs more from `at` on, of the cheapest of the types of each time: which ones, from when on."""
        if self.plain:
            yield at, gpus
            return
        eras = self._rates.eras
        last: int | None = None
        for since in sorted({at, *(era[0] for era in eras if era[0] > at), *(era[0] for era in types if era[0] > at)}):
            rates = next((rates for begun, rates in reversed(eras) if begun <= since), eras[0][1])
            choice = next((choice for begun, choice in reversed(types) if begun <= since), ())
            milli = min((rates.get(gpu_type, MILLI) for gpu_type in choice), default=MILLI)
            if milli != last:
                yield since, gpus * (milli - (last or 0))
            last = milli
