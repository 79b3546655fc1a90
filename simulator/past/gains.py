"""Who gains and who loses: what budgets and users got in a window of one log, beside what they got in another."""

from collections.abc import Callable, Iterable, Mapping
from statistics import fmean

from simulator.past.story import Past
from simulator.report.fields import Gain, Served
from simulator.report.history import History, JobStory, held_gpu_ms
from simulator.report.waits import summary
from tenure.domain.ids import Position
from tenure.domain.reasons import EndCause
from tenure.domain.units import HOUR, SECOND, GpuMillis, Millis
from tenure.events.fact import Recorded

ByName = Mapping[str, Served]
_Name = Callable[[JobStory], str]


class Account:
    """What one of them got so far."""

    def __init__(self) -> None:
        self.waits: list[Millis] = []
        self.delivered: GpuMillis = 0
        self.unallocated: GpuMillis = 0
        self.preemptions = 0

    def served(self) -> Served:
        """The figures."""
        waited = summary(list(self.waits))
        return Served(
            jobs=len(self.waits),
            delivered_gpu_hours=self.delivered / HOUR,
            unallocated_gpu_hours=self.unallocated / HOUR,
            wait_mean_s=fmean(self.waits) / SECOND if self.waits else None,
            wait_p50_s=waited.p50_s,
            wait_p90_s=waited.p90_s,
            preemptions=self.preemptions,
        )


def served_by(recorded: Iterable[Recorded], *, start: Millis, end: Millis) -> tuple[ByName, ByName]:
    """What each budget and each user got in [start, end)."""
    history = History(recorded)
    return (
        _served(history, lambda job: job.budget, start=start, end=end),
        _served(history, lambda job: job.user, start=start, end=end),
    )


def really(past: Past) -> list[Recorded]:
    """The log itself, as a simulated one is given."""
    return [Recorded(Position(number), fact) for number, fact in enumerate(past.facts, start=1)]


def gains(before: ByName, after: ByName, *, real: ByName) -> list[Gain]:
    """What changes for each, the largest gain of delivered GPU-hours first."""
    nothing = Served()
    found = []
    for name in sorted(before.keys() | after.keys() | real.keys()):
        was, now = before.get(name, nothing), after.get(name, nothing)
        waits = None if was.wait_mean_s is None or now.wait_mean_s is None else now.wait_mean_s - was.wait_mean_s
        found.append(
            Gain(
                name=name,
                really=real.get(name, nothing),
                before=was,
                after=now,
                delivered_change_gpu_hours=now.delivered_gpu_hours - was.delivered_gpu_hours,
                unallocated_change_gpu_hours=now.unallocated_gpu_hours - was.unallocated_gpu_hours,
                wait_mean_change_s=waits,
            )
        )
    return sorted(found, key=lambda gain: (-gain.delivered_change_gpu_hours, gain.name))


def _served(history: History, name_of: _Name, *, start: Millis, end: Millis) -> ByName:
    accounts: dict[str, Account] = {}
    for job in history.jobs.values():
        if start <= job.submitted_at < end:
            started_at = end if job.started_at is None else min(job.started_at, end)
            account = accounts.setdefault(name_of(job), Account())
            account.waits.append(max(0, started_at - job.submitted_at))
    for run in history.runs.values():
        until = end if run.ended_at is None else min(run.ended_at, end)
        held = held_gpu_ms(run.gpus, max(run.started_at, start), until)
        if until <= start:
            continue
        account = accounts.setdefault(name_of(run.job), Account())
        if run.charged:
            back = 0 if run.refund_since is None else held_gpu_ms(run.gpus, max(run.refund_since, start), until)
            account.delivered += held - min(back, held)
        else:
            account.unallocated += held
        ended_here = run.ended_at is not None and run.ended_at <= end
        account.preemptions += ended_here and run.cause in (EndCause.PREEMPTED, EndCause.DRAINED)
    return {name: account.served() for name, account in accounts.items()}
