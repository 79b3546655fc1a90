"""Exchange rates: what a GPU-hour of each type costs in the lab's unit of account, since when.

Budgets are kept in the unit of account (with rates against an H100: in H100-hours), hosts and jobs in GPUs. A rate is a
whole number of thousandths, so that accounts stay exact. A changed rate counts from the next full hour on and never
backwards: what was held before that keeps the rate it had (docs/decisions/0023-several-clusters.md).
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from tenure.domain.host import CPU
from tenure.domain.units import HOUR, GpuMillis, Millis

MILLI = 1_000
"""A rate of 1."""
DEFAULT_MILLI: Mapping[str, int] = {CPU: 20}
"""Of types that cost another than 1 while no rate names them: a host of 48 CPUs costs about a GPU. In ClickHouse
`default_rates` (`deploy/clickhouse/013_rates.sql`) says the same."""
RATE_LEAST, RATE_MOST = 1, 1_000 * MILLI
"""A thousandth to a thousand."""

MilliGpuMillis = int
"""Thousandths of a GPU-millisecond of the unit of account: what weighed amounts are kept in."""
Era = tuple[Millis, int]
"""An instant, and the rate from then on in thousandths."""


def milli_of(rates: Mapping[str, int], gpu_type: str) -> int:
    """The rate of a type in thousandths, where `rates` are those that people gave."""
    return rates.get(gpu_type, DEFAULT_MILLI.get(gpu_type, MILLI))


def weighed(gpu_ms: GpuMillis, *, milli: int) -> GpuMillis:
    """GPU-time of a type with this rate in the unit of account, to the nearest millisecond."""
    return to_account(gpu_ms * milli)


def to_account(amount: MilliGpuMillis) -> GpuMillis:
    """To the nearest GPU-millisecond of the unit of account."""
    return (amount + MILLI // 2) // MILLI


def counts_from(changed_at: Millis) -> Millis:
    """The instant from which on rates count that were changed at one: the next full hour (UTC)."""
    return -(-changed_at // HOUR) * HOUR


class Rates:
    """The rates of every type over time. The first ones count for all that came before.

    Those of each time name the types with a default, too; a type that is not in them costs 1.
    """

    __slots__ = ("_by_type", "_instants", "eras")

    def __init__(self, first: Mapping[str, int]) -> None:
        self.eras: list[tuple[Millis, Mapping[str, int]]] = [(0, {**DEFAULT_MILLI, **first})]
        self._instants: list[Millis] = []
        self._by_type: dict[str, tuple[Era, ...]] = {}

    def restore(self, eras: Sequence[tuple[Millis, Mapping[str, int]]]) -> None:
        """Be what these eras say, oldest first."""
        self.eras = list(eras)
        self._index()

    @property
    def newest(self) -> Mapping[str, int]:
        """The rates that were said last."""
        return self.eras[-1][1]

    def are_newest(self, rates: Mapping[str, int]) -> bool:
        """Whether these were said last."""
        return dict(self.newest) == {**DEFAULT_MILLI, **rates}

    def begin_with(self, rates: Mapping[str, int]) -> None:
        """These are the rates of all that came before."""
        self.eras = [(0, {**DEFAULT_MILLI, **rates})]
        self._index()

    def change(self, rates: Mapping[str, int], *, at: Millis) -> None:
        """They were changed at an instant; they count from the next full hour on. The same ones change nothing."""
        if self.are_newest(rates):
            return
        since = max(counts_from(at), self.eras[-1][0])
        if self.eras[-1][0] == since:
            self.eras.pop()
        self.eras.append((since, {**DEFAULT_MILLI, **rates}))
        self._index()

    def forget(self, before: Millis) -> None:
        """Drop rates that no longer counted at an instant."""
        while len(self.eras) > 1 and self.eras[1][0] <= before:
            del self.eras[0]
        self._index()

    def of_type(self, gpu_type: str) -> tuple[Era, ...]:
        """The rates of a type, oldest first; always one at least, whose instant does not count."""
        known = self._by_type.get(gpu_type)
        if known is None:
            known = tuple((since, rates.get(gpu_type, MILLI)) for since, rates in self.eras)
            self._by_type[gpu_type] = known
        return known

    def milli_at(self, gpu_type: str, when: Millis) -> int:
        """The rate of a type at an instant."""
        return self.of_type(gpu_type)[bisect_right(self._instants, when)][1]

    def newest_milli(self, gpu_type: str) -> int:
        """The rate of a type that was said last."""
        return self.newest.get(gpu_type, MILLI)

    def next_change(self, when: Millis) -> Millis | None:
        """The first instant after `when` from which on other rates count; None if there is none."""
        index = bisect_right(self._instants, when)
        return self._instants[index] if index < len(self._instants) else None

    def _index(self) -> None:
        self._by_type = {}
        self._instants = [since for since, _ in self.eras[1:]]
