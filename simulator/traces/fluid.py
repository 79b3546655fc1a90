"""An idealised service: outstanding jobs progress together so that they hold the whole cluster, whatever their shapes.

Unallocated jobs have a small part of the cluster, which stands for the gaps that others leave, and what allocated jobs
do not ask for; allocated jobs have the rest. Inside each of the two all jobs run at one rate: GPUs had over GPUs asked
for, at most 1. It knows no gangs, hosts or budgets: it only says how much is outstanding when no GPU is ever idle.
Constructed months are kept at a level of demand by it, and `outstanding` measures that level of any trace.
"""

import heapq
from collections.abc import Iterable

import msgspec

from simulator.traces.write import TraceRow

UNALLOCATED = 0.15
"""The part of the cluster that unallocated jobs have."""


class Served(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An outstanding job: the GPUs it asks for, who submitted it, whether it is allocated."""

    gpus: int
    owner: int
    allocated: bool = True


class _Class:
    """Jobs that run at one rate. A job of r seconds ends when all have progressed by r more: one heap is enough."""

    def __init__(self) -> None:
        self.asked = 0
        self.progress_s = 0.0
        """Seconds of work that a job outstanding from the start would have had."""
        self.ends: list[tuple[float, int, Served]] = []

    def next_end_s(self, rate: float) -> float:
        """How long until the next job ends at this rate."""
        return max(self.ends[0][0] - self.progress_s, 0.0) / rate if self.ends and rate else float("inf")


class Fluid:
    """The service at one instant, which only moves forward."""

    def __init__(self, *, gpus: int, unallocated: float = UNALLOCATED) -> None:
        self.now_s = 0.0
        self._capacity, self._reserved = gpus, gpus * unallocated
        self._allocated, self._unallocated = _Class(), _Class()
        self._count = 0

    @property
    def asked(self) -> int:
        """GPUs asked for by outstanding jobs."""
        return self._allocated.asked + self._unallocated.asked

    def asked_by(self, *, allocated: bool) -> int:
        """GPUs asked for by the outstanding jobs that are allocated, or by those that are not."""
        return self._class(allocated).asked

    def submit(self, job: Served, *, runtime_s: float) -> None:
        """Add a job now."""
        self._count += 1
        jobs = self._class(job.allocated)
        heapq.heappush(jobs.ends, (jobs.progress_s + runtime_s, self._count, job))
        jobs.asked += job.gpus

    def next_end_s(self) -> float | None:
        """When the next job ends if nothing is added before."""
        rate, rate_unallocated = self._rates()
        after_s = min(self._allocated.next_end_s(rate), self._unallocated.next_end_s(rate_unallocated))
        return None if after_s == float("inf") else self.now_s + after_s

    def advance(self, until_s: float) -> list[Served]:
        """Serve until then; the jobs that ended, in order."""
        ended: list[Served] = []
        while (at_s := self.next_end_s()) is not None and at_s <= until_s:
            self._progress(at_s)
            for jobs in (self._allocated, self._unallocated):
                while jobs.ends and jobs.ends[0][0] <= jobs.progress_s + 1e-6:  # floats: a microsecond is no time
                    _, _, job = heapq.heappop(jobs.ends)
                    jobs.asked -= job.gpus
                    ended.append(job)
        self._progress(until_s)
        return ended

    def _class(self, allocated: bool) -> _Class:
        return self._allocated if allocated else self._unallocated

    def _progress(self, until_s: float) -> None:
        rate, rate_unallocated = self._rates()
        self._allocated.progress_s += (until_s - self.now_s) * rate
        self._unallocated.progress_s += (until_s - self.now_s) * rate_unallocated
        self.now_s = until_s

    def _rates(self) -> tuple[float, float]:
        """GPUs had over GPUs asked for, of allocated and of unallocated jobs."""
        asked, asked_unallocated = self._allocated.asked, self._unallocated.asked
        had = min(asked, self._capacity - min(asked_unallocated, self._reserved))
        had_unallocated = min(asked_unallocated, self._capacity - had)
        return had / asked if asked else 0.0, had_unallocated / asked_unallocated if asked_unallocated else 0.0


def outstanding(rows: Iterable[TraceRow], *, gpus: int, unallocated: float = UNALLOCATED) -> list[tuple[int, float]]:
    """GPUs asked for by outstanding jobs over GPUs there, after every second in which jobs ended or were submitted.

    Rows in order of submission.
    """
    service = Fluid(gpus=gpus, unallocated=unallocated)
    samples: list[tuple[int, float]] = []
    at_s = 0
    for row in rows:
        if row.submit_s != at_s:
            samples.append((at_s, service.asked / gpus))
            while (end_s := service.next_end_s()) is not None and end_s < row.submit_s - 1:
                at_s = int(end_s) + 1
                service.advance(at_s)
                samples.append((at_s, service.asked / gpus))
            at_s = row.submit_s
            service.advance(at_s)
        job = Served(gpus=row.gpus, owner=0, allocated=row.min_runtime_s > 0)
        service.submit(job, runtime_s=row.runtime_s)
    samples.append((at_s, service.asked / gpus))
    return samples
