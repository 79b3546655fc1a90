"""Waits from submission to the first start, by class of job.

Counted are jobs that were submitted in the test window at least two days before its end; one that never started has
waited until the end.
"""

from collections.abc import Mapping

from simulator.report.fields import Waits
from simulator.report.history import History, JobStory
from tenure.domain.ids import JobId
from tenure.domain.units import DAY, MINUTE, SECOND, Millis

SETTLED: Millis = 2 * DAY
"""Jobs submitted later than this before the end are not counted: their waits are not over."""
DEBUG_GPUS, DEBUG_MIN_RUNTIME = 8, 15 * MINUTE
FIXED = ("all", "debug", "largest")
"""Classes by what a job asks for; a label of the trace with such a name gives way."""


def waits_by_class(
    history: History, *, kinds: Mapping[JobId, str], gpus: int, start: Millis, end: Millis
) -> dict[str, Waits]:
    """The waits of all, debug and largest jobs, then of each kind in order of name. `gpus`: of the whole cluster."""
    waits: dict[str, list[Millis]] = {name: [] for name in FIXED}
    for name in sorted(set(kinds.values()) - {*FIXED, ""}):
        waits[name] = []
    for job_id, job in history.jobs.items():
        if not start <= job.submitted_at <= end - SETTLED or job.submitted_at >= end:
            continue
        started_at = end if job.started_at is None else min(job.started_at, end)
        wait = started_at - job.submitted_at
        waits["all"].append(wait)
        if is_debug(job):
            waits["debug"].append(wait)
        if 4 * job.gpus >= gpus:
            waits["largest"].append(wait)
        kind = kinds.get(job_id, "")
        if kind and kind not in FIXED:
            waits[kind].append(wait)
    return {name: summary(found) for name, found in waits.items()}


def is_debug(job: JobStory) -> bool:
    """Allocated, small and short."""
    return job.allocated and job.gpus <= DEBUG_GPUS and job.min_runtime_ms <= DEBUG_MIN_RUNTIME


def summary(waits: list[Millis]) -> Waits:
    """Nearest-rank percentiles, in seconds: the p-th is the smallest wait that at least p % do not exceed."""
    if not waits:
        return Waits(n=0)
    waits.sort()
    count = len(waits)
    p50, p90, p99 = (waits[-(-count * percent // 100) - 1] / SECOND for percent in (50, 90, 99))
    return Waits(n=count, p50_s=p50, p90_s=p90, p99_s=p99, max_s=waits[-1] / SECOND)
