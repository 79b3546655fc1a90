"""How long jobs work if nothing stops them, and what their processes do: from what they did.

A job that came to its end by itself worked as long as it did. Of one that did not (it was running, or waiting, when the
log ends; its owner or the scheduler ended it), only the least is known: it is taken to work as long as the median of
the jobs that worked longer than that, of the same user and budget if there are some, else of the budget, else of all.

What deciding usually took, from when a run could start until it was given its GPUs, is part of what a start takes.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from simulator.agents import Behaviour, Work
from simulator.past.story import PastJob, PastRun
from tenure.domain.ids import JobId
from tenure.domain.reasons import EndCause, JobState
from tenure.domain.units import HOUR, Millis

_BY_ITSELF = (JobState.COMPLETED, JobState.FAILED)
_STOPPED = (EndCause.PREEMPTED, EndCause.DRAINED)
_Class = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a job had behind it after some of its runs. Milliseconds."""

    saved_ms: Millis | None
    """Work that a next run need not do again; None: it was never stopped, so the next run has no overhead."""
    last_ms: Millis
    """What its last run worked, if that ended."""


@dataclass(kw_only=True)
class Behaviours:
    """What the processes of the jobs of a past do."""

    by_job: dict[JobId, Behaviour] = field(default_factory=dict)
    estimated: int = 0
    """Of how many of them the length is not known."""


def done_by(job: PastJob, runs: Iterable[PastRun], *, work: Work) -> Done:
    """What was done in these runs of a job, which have ended."""
    saved: Millis | None = None
    last: Millis = 0
    for run in runs:
        if run.started_at is None or run.ended_at is None:
            continue
        overhead = work.restart_overhead_ms if saved is not None else 0
        last = max(0, run.ended_at - run.started_at - overhead)
        if job.spec.resumable and run.cause not in (EndCause.COMPLETED, EndCause.FAILED):
            kept = 0 if run.checkpoint is None else min(run.checkpoint, run.ended_at) - run.started_at - overhead
            saved = (saved or 0) + max(0, kept)
    return Done(saved_ms=saved, last_ms=last)


def behaviours_of(jobs: Mapping[JobId, PastJob], *, until: Millis, work: Work) -> Behaviours:
    """What the processes of each job do. `until`: the instant at which the log ends."""
    lengths = _Lengths()
    least: dict[JobId, Millis] = {}
    known: dict[JobId, Millis] = {}
    for job in jobs.values():
        done = done_by(job, job.runs, work=work)
        total = (done.saved_ms or 0) + done.last_ms
        if job.state in _BY_ITSELF and job.runs:
            known[job.job] = total
            lengths.add(job, total)
        else:
            least[job.job] = _least(job, until=until, work=work)
    lengths.sort()
    deciding = _usual([max(0, run.assigned.at - run.could_at) for job in jobs.values() for run in job.runs])
    starts, stops = _usual([_start_of(job) for job in jobs.values()]), _usual(map(_stop_of, jobs.values()))
    made = Behaviours(estimated=len(least))
    for job in jobs.values():
        runs_for = known.get(job.job)
        start, stop = _start_of(job), _stop_of(job)
        made.by_job[job.job] = Behaviour(
            runs_for_ms=lengths.beyond(job, least[job.job]) if runs_for is None else runs_for,
            exit_code=(job.exit_code or 1) if job.state is JobState.FAILED else 0,
            starts_after_ms=deciding + (starts if start is None else start),
            stops_after_ms=min(stops if stop is None else stop, job.spec.grace_ms),
            saves_on_stop=_saves(job),
        )
    return made


def _least(job: PastJob, *, until: Millis, work: Work) -> Millis:
    """What it worked at least: all that it saved and then did, or its longest run if it saves nothing."""
    ended = [run for run in job.runs if run.started_at is not None and run.ended_at is not None]
    current = job.open_run
    now = 0 if current is None or current.started_at is None else max(0, until - current.started_at)
    if not job.spec.resumable:
        return max([now, *(done_by(job, [run], work=work).last_ms for run in ended)])
    saved = done_by(job, ended, work=work).saved_ms or 0
    before, last = done_by(job, ended[:-1], work=work).saved_ms or 0, done_by(job, ended, work=work).last_ms
    return max(saved + now, before + last)


def _saves(job: PastJob) -> bool:
    """Whether it saves its progress when told to stop: not if it was stopped and no such run told a checkpoint."""
    stopped = [run for run in job.runs if run.started_at is not None and run.cause in _STOPPED]
    return not stopped or any(run.checkpoint is not None for run in stopped)


def _start_of(job: PastJob) -> Millis | None:
    """From the assignment of its first run until every replica was there."""
    for run in job.runs:
        if run.started_at is not None:
            return max(0, run.started_at - run.assigned.at)
    return None


def _stop_of(job: PastJob) -> Millis | None:
    """From SIGTERM to the end of the first run that was stopped."""
    for run in job.runs:
        if run.told_at is not None and run.ended_at is not None and run.cause in (*_STOPPED, EndCause.CANCELLED):
            return max(0, run.ended_at - run.told_at)
    return None


def _usual(lengths: Iterable[Millis | None]) -> Millis:
    """The median of those that are known; 0 if none is."""
    known = sorted(length for length in lengths if length is not None)
    return known[len(known) // 2] if known else 0


class _Lengths:
    """How long jobs worked that came to their end, by user and budget, by budget, and all."""

    def __init__(self) -> None:
        self._by_class: dict[_Class, list[Millis]] = {}

    def add(self, job: PastJob, length: Millis) -> None:
        for name in _classes(job):
            self._by_class.setdefault(name, []).append(length)

    def sort(self) -> None:
        for lengths in self._by_class.values():
            lengths.sort()

    def beyond(self, job: PastJob, least: Millis) -> Millis:
        """The median of those that worked longer than `least`; where nobody did, an hour or its contract longer."""
        for name in _classes(job):
            lengths = self._by_class.get(name, [])
            first = bisect_right(lengths, least)
            if first < len(lengths):
                return lengths[first + (len(lengths) - first - 1) // 2]
        return least + max(HOUR, job.spec.min_runtime_ms)


def _classes(job: PastJob) -> tuple[_Class, ...]:
    return (job.spec.budget, job.spec.user), (job.spec.budget,), ()
