"""P2: what an ended allocated run costs its budget, and what a host fault gives back.

charged + refunded = occupancy, to the millisecond, and neither is ever negative: both are sums over the same spans,
cut at one instant.
"""

from services.budget.state import EndedRun
from tenure.domain.policy import Policy
from tenure.domain.reasons import EndCause, Number, Reason, Why
from tenure.domain.units import GpuMillis, Millis
from tenure.events.budgets import RunCharged


def charge_run(run: EndedRun, *, policy: Policy, now: Millis) -> RunCharged:
    """The closing of a run's books."""
    occupied = _held_since(run, 0)
    since, until, refunded = None, None, 0
    own = policy.of_cluster(run.cluster)
    cap_ms = max(own.min_runtime_cap_ms, run.cap_ms)  # a lowered cap takes nothing that was signed
    lost = lost_work(run, cap_ms=cap_ms)
    numbers: dict[str, Number] = {"occupied_gpu_ms": occupied, "cause_of_end": run.cause_of_end.value}
    if lost is not None:
        since, until = lost
        refunded = _held_since(run, since)
        numbers |= {
            "refunded_gpu_ms": refunded,
            "lost_work_ms": until - since,
            "refund_cap_ms": cap_ms,
            "checkpoint_at": run.checkpoint,
        }
    return RunCharged(
        at=now,
        cause=run.fact,
        run=run.run,
        job=run.job,
        budget=run.budget,
        user=run.user,
        charged_gpu_ms=occupied - refunded,
        refunded_gpu_ms=refunded,
        refund_since=since,
        refund_until=until,
        why=Why(rule="P2", reason=Reason.CHARGE_RUN if lost is None else Reason.CHARGE_REFUNDED, numbers=numbers),
    )


def lost_work(run: EndedRun, *, cap_ms: Millis) -> tuple[Millis, Millis] | None:
    """The [since, until) that a host fault wasted and a refund gives back; None if there is nothing to give.

    From the last checkpoint (the start if there is none, or only an older one) to the end of the last replica, at most
    the last `cap_ms` of it.
    """
    if run.cause_of_end is not EndCause.HOST_LOST or not run.spans:
        return None
    since = min(span.since for span in run.spans)
    until = max(span.until for span in run.spans)
    if run.checkpoint is not None:
        since = max(since, run.checkpoint)
    since = max(since, until - cap_ms)
    return (since, until) if since < until else None


def _held_since(run: EndedRun, since: Millis) -> GpuMillis:
    """Occupancy at or after an instant."""
    return sum(span.gpus * max(0, span.until - max(span.since, since)) for span in run.spans)
