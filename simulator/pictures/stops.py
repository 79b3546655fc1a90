"""Runs that were ended early, by what ended them, and the work that cost."""

from dataclasses import dataclass

import numpy as np

from simulator.pictures.history import CAUSES, History, Ints
from simulator.pictures.stretch import Stretch
from tenure.domain.reasons import EndCause, Reason
from tenure.domain.units import GpuMillis

EARLY = (EndCause.PREEMPTED, EndCause.DRAINED, EndCause.HOST_LOST)
LABELS = {
    Reason.DISRUPT_UNALLOCATED: "unallocated gave way",
    Reason.DISRUPT_LOWER_RATIO: "for a budget further behind",
    Reason.DISRUPT_HIGHER_PRIORITY: "for higher priority",
    Reason.DISRUPT_HOST_DRAINS: "host drained",
    Reason.DISRUPT_HOST_FATAL: "host drained, fatal",
    Reason.STOP_HOST_LOST: "host lost",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stops:
    """Stops of one kind inside the stretch that is measured."""

    label: str
    allocated: bool
    count: int
    lost_gpu_ms: GpuMillis
    """Work that was not saved."""
    restart_gpu_ms: GpuMillis
    """What the next runs of these jobs spent on starting again."""


def stops(history: History, *, stretch: Stretch) -> list[Stops]:
    """Each kind of early end with its number and its cost, most expensive first.

    Lost is all of a run that cannot resume; of one that can only what a lost host threw away since the last checkpoint
    (what was refunded, or by the interval of checkpoints for what is not charged). Only what is in the stretch counts.
    """
    runs, jobs = history.runs, history.jobs
    length = np.maximum(0, runs.end - np.maximum(runs.start, stretch.start))
    unsaved = np.where(runs.charged, runs.refunded, length % stretch.checkpoint_interval * runs.gpus)
    unsaved[runs.cause != CAUSES.index(EndCause.HOST_LOST)] = 0
    lost = np.where(jobs.resumable[runs.job], unsaved, length * runs.gpus)
    restart = np.where(jobs.resumable[runs.job], _restart(history, stretch=stretch), 0)
    early = np.isin(runs.cause, [CAUSES.index(cause) for cause in EARLY])
    inside = early & (runs.end >= stretch.start) & (runs.end <= stretch.end)
    found: dict[tuple[str, bool], list[int]] = {}
    for run in np.flatnonzero(inside).tolist():
        label = _label(str(runs.reasons[run].get("reason", "")), CAUSES[runs.cause[run]])
        sums = found.setdefault((label, bool(runs.charged[run])), [0, 0, 0])
        for place, more in enumerate((1, int(lost[run]), int(restart[run]))):
            sums[place] += more
    listed = [
        Stops(label=label, allocated=allocated, count=count, lost_gpu_ms=lost_, restart_gpu_ms=again)
        for (label, allocated), (count, lost_, again) in found.items()
    ]
    return sorted(listed, key=lambda stop: (-stop.lost_gpu_ms - stop.restart_gpu_ms, stop.label, stop.allocated))


def _restart(history: History, *, stretch: Stretch) -> Ints:
    """GPU-milliseconds that the next run of each run's job spends on starting again; 0 where there is none."""
    runs = history.runs
    order = np.lexsort((runs.start, runs.job))
    spent = np.minimum(stretch.restart_overhead, runs.end - runs.start) * runs.gpus
    again = np.zeros(len(order), dtype=np.int64)
    same = runs.job[order[:-1]] == runs.job[order[1:]]
    again[order[:-1][same]] = spent[order[1:][same]]
    return again


def _label(reason: str, cause: str) -> str:
    known = {str(member): label for member, label in LABELS.items()}
    return known.get(reason, reason.replace("_", " ") or cause.replace("_", " "))
