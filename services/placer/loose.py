"""Runs that P5 may give to an asker, in bunches that stand alike before it: unallocated ones, and by budget and
priority allocated ones past their protection. Kept up to date, so that no decision looks at every run.
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import Container, Iterator
from typing import NamedTuple

from tenure.domain.ids import BudgetPath, HostId, RunId
from tenure.domain.tree import ROOT, lineage
from tenure.domain.units import GpuMillis, Millis


class Holding(NamedTuple):
    """What decides whom allocated runs past their protection give way to (P5)."""

    budget: BudgetPath
    priority: int


Key = Holding | None
"""None for the unallocated, who are alike to every asker."""


Size = tuple[int, bool]
"""GPUs of a run, and whether it is resumable."""


class Bunch:
    """Runs that stand alike before P5, of each size the one that loses least first."""

    __slots__ = ("_by_size", "gpus", "masks", "runs")

    def __init__(self) -> None:
        self.gpus = 0
        self.runs: dict[RunId, tuple[Size, Millis]] = {}
        self.masks: dict[HostId, int] = {}
        """What they hold together."""
        self._by_size: dict[Size, list[tuple[int, RunId]]] = {}

    def add(self, run: RunId, size: Size, *, safe_until: Millis, masks: dict[HostId, int]) -> None:
        """`safe_until`: what it did before this instant is not lost with it."""
        self.runs[run] = (size, safe_until)
        self.gpus += size[0]
        insort(self._by_size.setdefault(size, []), (-safe_until, run))
        for host, mask in masks.items():
            self.masks[host] = self.masks.get(host, 0) | mask

    def remove(self, run: RunId, *, masks: dict[HostId, int]) -> None:
        """It is no candidate any more."""
        self.gpus -= self._forget(run)[0]
        for host, mask in masks.items():
            left = self.masks[host] & ~mask
            if left:
                self.masks[host] = left
            else:
                del self.masks[host]

    def saved(self, run: RunId, *, safe_until: Millis) -> None:
        """It has saved its work up to a later instant."""
        size = self._forget(run)
        self.runs[run] = (size, safe_until)
        insort(self._by_size.setdefault(size, []), (-safe_until, run))

    def lines(self, now: Millis, resumable: bool, *, resume_cost_ms: Millis) -> list[Iterator[tuple[GpuMillis, RunId]]]:
        """GPU-time at risk and name of each that can resume, or of each that cannot; apart by size, the least first."""
        return [
            _at_risk(size, runs, now, resume_cost_ms) for size, runs in self._by_size.items() if size[1] == resumable
        ]

    def _forget(self, run: RunId) -> Size:
        size, safe_until = self.runs.pop(run)
        line = self._by_size[size]
        del line[bisect_left(line, (-safe_until, run))]
        if not line:
            del self._by_size[size]
        return size


def _at_risk(
    size: Size, runs: list[tuple[int, RunId]], now: Millis, resume_cost_ms: Millis
) -> Iterator[tuple[GpuMillis, RunId]]:
    gpus, resumable = size
    most = resume_cost_ms if resumable else now
    return ((gpus * min(max(0, now + minus_safe), most), run) for minus_safe, run in runs)


class Loose:
    """All bunches; which run is in which; and when the protections of the others end."""

    def __init__(self) -> None:
        self.bunches: dict[Key, Bunch] = {}
        self.key_of: dict[RunId, Key] = {}
        self.held_on: dict[HostId, int] = {}
        """Per host what the runs of all bunches hold."""
        self.below: dict[BudgetPath, dict[BudgetPath, dict[Key, Bunch]]] = {}
        """By budget (`ROOT` for the top): its children with bunches at or below them, and these."""
        self.version = 0
        """Grows whenever a bunch comes or goes."""
        self._ends: list[tuple[Millis, RunId]] = []

    def protect(self, run: RunId, until: Millis) -> None:
        """The run is protected until then."""
        heapq.heappush(self._ends, (until, run))

    def due(self, now: Millis) -> Iterator[RunId]:
        """Runs whose protection ends by now, each once; some may be over meanwhile."""
        while self._ends and self._ends[0][0] <= now:
            yield heapq.heappop(self._ends)[1]

    def next_end(self, live: Container[RunId]) -> Millis | None:
        """When the next protection of a run in `live` ends."""
        while self._ends and self._ends[0][1] not in live:
            heapq.heappop(self._ends)
        return self._ends[0][0] if self._ends else None

    def add(self, run: RunId, key: Key, size: Size, *, safe_until: Millis, masks: dict[HostId, int]) -> None:
        """An asker may have it from now on, if P5 lets that asker."""
        bunch = self.bunches.get(key)
        if bunch is None:
            bunch = Bunch()
            self._come(key, bunch)
        bunch.add(run, size, safe_until=safe_until, masks=masks)
        self.key_of[run] = key
        for host, mask in masks.items():
            self.held_on[host] = self.held_on.get(host, 0) | mask

    def remove(self, run: RunId, *, masks: dict[HostId, int]) -> bool:
        """It was told to end, or is over. False if it was no candidate."""
        if run not in self.key_of:
            return False
        key = self.key_of.pop(run)
        bunch = self.bunches[key]
        bunch.remove(run, masks=masks)
        if not bunch.runs:
            self._go(key)
        for host, mask in masks.items():
            self.held_on[host] &= ~mask
        return True

    def is_unallocated(self, run: RunId) -> bool:
        """Whether it is here as one of those that always give way."""
        return run in self.key_of and self.key_of[run] is None

    def saved(self, run: RunId, *, safe_until: Millis) -> None:
        """It has saved its work up to a later instant."""
        if run in self.key_of:
            self.bunches[self.key_of[run]].saved(run, safe_until=safe_until)

    def _come(self, key: Key, bunch: Bunch) -> None:
        """A bunch has come."""
        self.version += 1
        self.bunches[key] = bunch
        parent = ROOT
        for path in lineage(key.budget) if key is not None else ():
            self.below.setdefault(parent, {}).setdefault(path, {})[key] = bunch
            parent = path

    def _go(self, key: Key) -> None:
        """A bunch is empty."""
        self.version += 1
        del self.bunches[key]
        parent = ROOT
        for path in lineage(key.budget) if key is not None else ():
            children = self.below[parent]
            del children[path][key]
            if not children[path]:
                del children[path]
            if not children:
                del self.below[parent]
            parent = path
