"""I5 over a whole cluster: where every GPU-millisecond went, from sources that do not know of each other.

    charged, refunded   the books that the budget role closed (`RunCharged`)
    unallocated         what agents reported in heartbeats
    idle, unavailable   each host's size and offer over time, less what its replicas held by their starts and exits

They add up to capacity x time, to the millisecond, in a log in which nothing runs any more.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tenure.domain.ids import HostId
from tenure.domain.units import GpuMillis, Millis
from tenure.events.budgets import RunCharged
from tenure.events.fact import Fact
from tenure.events.hosts import CapacityChanged
from tenure.events.placing import RunAssigned
from tenure.events.reports import Heartbeat, HostRegistered
from tests.checks.invariants import replica_spans


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """GPU-milliseconds of all hosts together, from each one's registration to the end of the log."""

    capacity: GpuMillis
    charged: GpuMillis
    refunded: GpuMillis
    unallocated: GpuMillis
    idle: GpuMillis
    unavailable: GpuMillis

    @property
    def missing(self) -> GpuMillis:
        """What is in no account; negative if something is in two."""
        return self.capacity - self.charged - self.refunded - self.unallocated - self.idle - self.unavailable


def check_accounts(facts: Sequence[Fact]) -> Accounts:
    """Raise AssertionError unless the accounts add up."""
    found = accounts(facts)
    assert found.missing == 0, f"I5: {found.missing} GPU-ms are missing: {found}"
    return found


def accounts(facts: Sequence[Fact]) -> Accounts:
    """The accounts of a log in which nothing runs any more."""
    end = max(fact.at for fact in facts)
    sizes: dict[HostId, tuple[Millis, int]] = {}
    steps: dict[HostId, list[tuple[Millis, int, int]]] = defaultdict(list)
    offered: dict[HostId, int] = defaultdict(int)
    for fact in facts:
        if isinstance(fact, HostRegistered):
            for spec in fact.hosts:
                sizes.setdefault(spec.host, (fact.at, spec.gpus))
        elif isinstance(fact, CapacityChanged):
            steps[fact.host].append((fact.at, fact.gpus - offered[fact.host], 0))
            offered[fact.host] = fact.gpus
    for host, since, until, gpus in _held(facts):
        steps[host] += [(since, 0, gpus), (until, 0, -gpus)]
    idle = unavailable = capacity = 0
    for host, (since, size) in sizes.items():
        capacity += size * (end - since)
        for length, offer, hold in _pieces(steps[host], since, end):
            assert 0 <= hold <= size or not length, f"I1: {hold} of {size} GPUs of {host} are held"
            idle += max(0, offer - hold) * length
            unavailable += (size - max(offer, hold)) * length
    return Accounts(
        capacity=capacity,
        charged=sum(fact.charged_gpu_ms for fact in facts if isinstance(fact, RunCharged)),
        refunded=sum(fact.refunded_gpu_ms for fact in facts if isinstance(fact, RunCharged)),
        unallocated=sum(_reported_unallocated(facts)),
        idle=idle,
        unavailable=unavailable,
    )


def _held(facts: Sequence[Fact]) -> Iterator[tuple[HostId, Millis, Millis, int]]:
    """What each replica held: its host, from when, until when, how many GPUs."""
    placed = {fact.run: fact for fact in facts if isinstance(fact, RunAssigned)}
    for (run, replica), (since, until) in replica_spans(facts).items():
        place = next(place for place in placed[run].placement if place.replica == replica)
        yield place.host, since, until, len(place.gpus)


def _pieces(steps: Sequence[tuple[Millis, int, int]], since: Millis, end: Millis) -> Iterator[tuple[Millis, int, int]]:
    """Pieces of [since, end) with what was offered and held in each."""
    offer = hold = 0
    last = since
    for at, more, taken in [*sorted(steps), (end, 0, 0)]:
        yield max(0, at - last), offer, hold
        offer, hold, last = offer + more, hold + taken, max(last, at)


def _reported_unallocated(facts: Iterable[Fact]) -> Iterator[GpuMillis]:
    for fact in facts:
        for beat in fact.hosts if isinstance(fact, Heartbeat) else ():
            yield from (part.gpus * (part.until - part.since) for part in beat.segments if not part.charged)
