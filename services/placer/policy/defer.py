"""Why a job waits, said when the reason changes and not too often, with the numbers that a person would ask for."""

from collections.abc import Mapping

from services.placer.policy.view import View
from services.placer.state import Job, State
from tenure.domain.ids import BudgetPath
from tenure.domain.job import JobSpec
from tenure.domain.reasons import Reason, Why
from tenure.domain.units import MINUTE, Millis
from tenure.events.placing import PlacementDeferred

SAY_AGAIN_AFTER: Millis = MINUTE
"""A reason that flips to and fro is said at most this often; a first reason at once."""


Shape = tuple[str | None, int, int]
"""GPU type, replicas, GPUs per replica: jobs of one shape fit, or do not, alike."""


def shape_of(spec: JobSpec) -> Shape:
    """The shape of a job."""
    return spec.gpu_type, spec.replicas, spec.gpus_per_replica


Standing = tuple[BudgetPath, int, bool, Shape]
"""Jobs that are alike to P5 and P6: same budget, priority, kind and shape."""


def standing_of(job: Job) -> Standing:
    """What decides whom a job may disrupt, and where it fits."""
    return job.spec.budget, job.spec.priority, job.spec.allocated, shape_of(job.spec)


def defer(
    state: State,
    view: View,
    job: Job,
    now: Millis,
    *,
    kept: Mapping[Reason, int],
    reasons: dict[Standing, Why],
) -> PlacementDeferred | Millis | None:
    """The fact that says why `job` does not start now, None if that was said, or when another reason may be said.

    `reasons` are those found before in this decision.
    """
    said = state.core.said.get(job.job)
    standing = standing_of(job)
    why = reasons.get(standing) or reason_to_wait(state, view, job, now, kept=kept)
    reasons[standing] = why
    if said is not None and said.reason is why.reason:
        return None
    if said is not None and now - said.at < SAY_AGAIN_AFTER:
        return said.at + SAY_AGAIN_AFTER
    return PlacementDeferred(at=now, job=job.job, why=why)


def reason_to_wait(state: State, view: View, job: Job, now: Millis, *, kept: Mapping[Reason, int]) -> Why:
    """No such hosts, no room, or room in pieces.

    With what was asked, what is free, the next protection to end, and how many runs P5 keeps for which reason.
    """
    spec = job.spec
    free, hole = view.gpus_free(spec), view.largest_hole(spec)
    replicas_fit = max(
        (sum(m.bit_count() // spec.gpus_per_replica for m in pool.values()) for _, pool in view.pools_for(spec)),
        default=None,
    )
    ends = (run.protected_until for run in state.core.runs.values() if run.protected_until is not None)
    expiry = min((end for end in ends if end > now), default=None)
    numbers = {
        "gpus_asked": spec.gpus,
        "replicas": spec.replicas,
        "replicas_fit": replicas_fit,
        "gpus_free": free,
        "largest_hole": hole,
        "next_protection_ends_ms": expiry,
        **{reason.value: kept[reason] for reason in sorted(kept)},
    }
    if replicas_fit is None:
        reason = Reason.DEFER_NO_SUCH_HOSTS
    elif free >= spec.gpus:
        reason = Reason.DEFER_FRAGMENTED
    else:
        reason = Reason.DEFER_NO_ROOM
    return Why(rule="P6", reason=reason, numbers=numbers)
