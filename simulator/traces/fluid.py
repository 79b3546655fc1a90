"""An idealised service: all outstanding jobs progress at one rate, so that together they hold the whole cluster.

With G GPUs asked for by the jobs that are not finished and C GPUs there, each job runs at the rate min(1, C/G). It
knows no gangs, hosts or budgets: it only says how much is outstanding when no GPU is ever idle. Constructed months are
kept at a level of demand by it, and `outstanding` measures that level of any trace.
"""

import heapq
from collections.abc import Iterable

import msgspec

from simulator.traces.write import TraceRow


class Served(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An outstanding job: the GPUs it asks for, and who submitted it."""

    gpus: int
    owner: int


class Fluid:
    """The service at one instant, which only moves forward.

    Equal rates make it cheap: a job that runs for r seconds ends when r more seconds of progress have been made, which
    is the same progress for all, so one heap of ends is enough.
    """

    def __init__(self, *, gpus: int) -> None:
        self.capacity = gpus
        self.asked = 0
        """GPUs asked for by outstanding jobs."""
        self.now_s = 0.0
        self._progress_s = 0.0
        """Seconds of work that a job outstanding from the start would have had."""
        self._ends: list[tuple[float, int, Served]] = []
        self._count = 0

    def submit(self, job: Served, *, runtime_s: float) -> None:
        """Add a job now."""
        self._count += 1
        heapq.heappush(self._ends, (self._progress_s + runtime_s, self._count, job))
        self.asked += job.gpus

    def next_end_s(self) -> float | None:
        """When the next job ends if nothing is added before."""
        if not self._ends:
            return None
        return self.now_s + max(self._ends[0][0] - self._progress_s, 0.0) / self._rate()

    def advance(self, until_s: float) -> list[Served]:
        """Serve until then; the jobs that ended, in order."""
        ended: list[Served] = []
        while True:
            at_s = self.next_end_s()
            if at_s is None or at_s > until_s:
                break
            self._progress_s = self._ends[0][0]
            self.now_s = at_s
            _, _, job = heapq.heappop(self._ends)
            self.asked -= job.gpus
            ended.append(job)
        self._progress_s += (until_s - self.now_s) * self._rate()
        self.now_s = until_s
        return ended

    def _rate(self) -> float:
        return min(1.0, self.capacity / self.asked) if self.asked else 1.0


def outstanding(rows: Iterable[TraceRow], *, gpus: int) -> list[tuple[int, float]]:
    """GPUs asked for by outstanding jobs over GPUs there, after every second in which jobs ended or were submitted.

    Rows in order of submission.
    """
    service = Fluid(gpus=gpus)
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
        service.submit(Served(gpus=row.gpus, owner=0), runtime_s=row.runtime_s)
    samples.append((at_s, service.asked / gpus))
    return samples
