"""P5, the one gate: may this run be ended early, for this asker, now? Nothing else may end or move a run.

Owner's cancel and a dead host are the only exceptions; they are in `settle`.
"""

from dataclasses import dataclass

from services.placer.core import Job, Run
from services.placer.loose import Holding
from services.placer.standings import Standings
from tenure.domain.ids import BudgetPath, HostId, JobId
from tenure.domain.policy import Policy
from tenure.domain.reasons import Reason, Why
from tenure.domain.tree import parting
from tenure.domain.units import Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class AskingJob:
    """A queued job that wants the GPUs."""

    budget: BudgetPath
    priority: int
    allocated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainingHost:
    """A host that is to become empty (P9). `fatal`: its runs end now, protected or not."""

    host: HostId
    fatal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Promised:
    """A gang whose reservation was promised the GPUs (P8): by what right was decided when it was made."""

    job: JobId
    latest_start: Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether the run may be disrupted, and the numbers that say so."""

    allowed: bool
    why: Why


def may_disrupt(
    run: Run, victim: Job, by: AskingJob | DrainingHost | Promised, now: Millis, *, standings: Standings, policy: Policy
) -> Verdict:
    """P5. `victim` is the job of `run`. Missing start facts mean protected; ties never justify preemption."""
    if isinstance(by, DrainingHost) and by.fatal:
        return _verdict(True, Reason.DISRUPT_HOST_FATAL, "P9", host=by.host)
    if isinstance(by, AskingJob) and not by.allocated:
        return _verdict(False, Reason.KEEP_ASKER_UNALLOCATED, "P4")
    if not victim.spec.allocated:
        return _verdict(True, Reason.DISRUPT_UNALLOCATED, "P5", victim_budget=victim.spec.budget)
    if run.protected_until is None:
        return _verdict(False, Reason.KEEP_NOT_STARTED, "P5", assigned_at_ms=run.assigned_at)
    if now < run.protected_until:
        return _verdict(False, Reason.KEEP_PROTECTED, "P5", protected_until_ms=run.protected_until, now_ms=now)
    if isinstance(by, DrainingHost):
        return _verdict(
            True, Reason.DISRUPT_HOST_DRAINS, "P9", host=by.host, protected_until_ms=run.protected_until, now_ms=now
        )
    if isinstance(by, Promised):
        return _verdict(
            True,
            Reason.DISRUPT_PROMISED,
            "P8",
            job=by.job,
            latest_start_ms=by.latest_start,
            protected_until_ms=run.protected_until,
            now_ms=now,
        )
    return _compare(run.protected_until, victim, by, now, standings=standings, policy=policy)


def _compare(
    protected_until: Millis, victim: Job, by: AskingJob, now: Millis, *, standings: Standings, policy: Policy
) -> Verdict:
    """The asker's right against a run past its protection: a lower ratio, or priority inside the same leaf."""
    sides = parting(by.budget, victim.spec.budget)
    if sides is None:
        higher = by.priority > victim.spec.priority
        reason = Reason.DISRUPT_HIGHER_PRIORITY if higher else Reason.KEEP_PRIORITY_NOT_HIGHER
        return _verdict(
            higher,
            reason,
            "P5",
            budget=by.budget,
            priority=by.priority,
            victim_priority=victim.spec.priority,
            protected_until_ms=protected_until,
            now_ms=now,
        )
    asking, holding = standings.ratio(sides[0]), standings.ratio(sides[1])
    lower = is_lower(asking, holding, policy=policy)
    return _verdict(
        lower,
        Reason.DISRUPT_LOWER_RATIO if lower else Reason.KEEP_RATIO_NOT_LOWER,
        "P5",
        level=sides[0],
        ratio=asking,
        victim_level=sides[1],
        victim_ratio=holding,
        margin=policy.ratio_margin,
        protected_until_ms=protected_until,
        now_ms=now,
    )


def is_lower(asking: float, holding: float, *, policy: Policy) -> bool:
    """Whether the asker's ratio is lower by so much that it counts."""
    return asking + policy.ratio_margin < holding


def may_have(by: AskingJob, held: Holding, *, standings: Standings, policy: Policy) -> bool:
    """The same of all such runs, without the numbers."""
    sides = parting(by.budget, held.budget)
    if sides is None:
        return by.priority > held.priority
    return is_lower(standings.ratio(sides[0]), standings.ratio(sides[1]), policy=policy)


def _verdict(allowed: bool, reason: Reason, rule: str, **numbers: str | int | float) -> Verdict:
    finite = {key: str(value) if value == float("inf") else value for key, value in numbers.items()}
    return Verdict(allowed=allowed, why=Why(rule=rule, reason=reason, numbers=finite))
