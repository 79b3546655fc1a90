"""Where the time of the GPUs went in the test window (I5), and what stopping cost (goodput)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from simulator.agents import Work
from simulator.report.history import History, RunStory, held_gpu_ms
from tenure.domain.ids import HostId
from tenure.domain.reasons import EndCause
from tenure.domain.units import GpuMillis, Millis


@dataclass(slots=True, kw_only=True)
class Spent:
    """GPU-milliseconds and counts, all of the window [start, end)."""

    start: Millis
    end: Millis
    runs: int = 0
    charged: GpuMillis = 0
    refunded: GpuMillis = 0
    unallocated: GpuMillis = 0
    restarts: GpuMillis = 0
    preempted_allocated: int = 0
    preempted_unallocated: int = 0
    drained: int = 0
    lost_to_preemptions: GpuMillis = 0
    hosts_lost: int = 0
    lost_to_hosts: GpuMillis = 0
    capacity: GpuMillis = 0
    usable: GpuMillis = 0
    """Offered by a host or held by a run, whichever is more."""
    held_on: dict[HostId, list[tuple[Millis, int]]] = field(default_factory=dict)
    """Steps of what runs hold, of the hosts whose offer ever changes."""

    @property
    def held(self) -> GpuMillis:
        """All that runs held."""
        return self.charged + self.refunded + self.unallocated

    @property
    def idle(self) -> GpuMillis:
        """Offered, and held by no run."""
        return self.usable - self.held

    def clip(self, gpus: int, since: Millis, until: Millis) -> GpuMillis:
        """What of a span lies in the window."""
        return held_gpu_ms(gpus, max(since, self.start), min(until, self.end))


def spend(history: History, *, start: Millis, end: Millis, work: Work) -> Spent:
    """Add everything up."""
    spent = Spent(start=start, end=end)
    offers = _offers(history, end=end)
    for host, steps in offers.items():
        if len(steps) > 1 or steps[0] != history.hosts[host]:
            spent.held_on[host] = []
    for run in history.runs.values():
        _add_run(spent, run, work)
    for host, (since, gpus) in history.hosts.items():
        whole = spent.clip(gpus, since, end)
        spent.capacity += whole
        if host not in offers:
            continue
        held = spent.held_on.get(host)
        spent.usable += whole if held is None else _usable(offers[host], held, start=start, end=end)
    return spent


def _add_run(spent: Spent, run: RunStory, work: Work) -> None:
    since, until = run.started_at, spent.end if run.ended_at is None else run.ended_at
    spent.runs += spent.start <= since < spent.end
    if spent.held_on:
        for host, gpus in run.hosts.items():
            steps = spent.held_on.get(host)
            if steps is not None:
                steps += [(since, len(gpus)), (until, -len(gpus))]
    if until <= spent.start:
        return
    held = spent.clip(run.gpus, since, until)
    if not run.charged:
        spent.unallocated += held
    else:
        back = 0 if run.refund_since is None else spent.clip(run.gpus, max(run.refund_since, since), until)
        spent.charged += held - back
        spent.refunded += back
    worked_from = since
    if run.resumes:
        worked_from = min(until, since + work.restart_overhead_ms)
        spent.restarts += spent.clip(run.gpus, since, worked_from)
    if run.ended_at is not None and until < spent.end:
        _add_end(spent, run, spent.clip(run.gpus, _lost_since(run, worked_from), until))


def _lost_since(run: RunStory, worked_from: Millis) -> Millis:
    """From when on a stopped run's work is lost: its last checkpoint if it can resume, else its beginning."""
    if run.job.resumable and run.checkpoint is not None:
        return max(worked_from, run.checkpoint)
    return worked_from


def _add_end(spent: Spent, run: RunStory, lost: GpuMillis) -> None:
    match run.cause:
        case EndCause.PREEMPTED | EndCause.DRAINED:
            spent.lost_to_preemptions += lost
            if run.cause is EndCause.DRAINED:
                spent.drained += 1
            elif run.charged:
                spent.preempted_allocated += 1
            else:
                spent.preempted_unallocated += 1
        case EndCause.HOST_LOST:
            spent.hosts_lost += 1
            spent.lost_to_hosts += lost


def _offers(history: History, *, end: Millis) -> dict[HostId, list[tuple[Millis, int]]]:
    """What each host offers, and from when on."""
    offers: dict[HostId, list[tuple[Millis, int]]] = {}
    for at, host, gpus in history.capacity:
        if at < end:
            offers.setdefault(host, []).append((at, gpus))
    return offers


def _usable(
    offers: Sequence[tuple[Millis, int]], held: Iterable[tuple[Millis, int]], *, start: Millis, end: Millis
) -> GpuMillis:
    """The integral of max(offered, held) of one host."""
    before = [0, *(gpus for _, gpus in offers)]
    steps = [(at, gpus - was, 0) for (at, gpus), was in zip(offers, before, strict=False)]
    steps += [(at, 0, change) for at, change in held]
    total, offered, holding, last = 0, 0, 0, start
    for at, more_offered, more_held in sorted(steps):
        total += held_gpu_ms(max(offered, holding), last, min(at, end))
        last = max(last, at)
        offered += more_offered
        holding += more_held
    return total + held_gpu_ms(max(offered, holding), last, end)
