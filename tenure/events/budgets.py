"""Facts about budgets: written by the budget role (admission, charges) and the gateway (edits of the tree)."""

from typing import ClassVar

from tenure.domain.ids import BudgetPath, JobId, RunId, UserName
from tenure.domain.job import JobSpec
from tenure.domain.reasons import Why
from tenure.domain.tree import BudgetTree
from tenure.domain.units import GpuMillis, Millis
from tenure.events.fact import Fact, Lane, Origin


class BudgetTreeChanged(Fact, frozen=True, kw_only=True, tag=True):
    """The whole tree as it is from `at` on; never backwards (P1). `origin`: who really asked, None where not said."""

    lane: ClassVar[Lane] = Lane.BUDGET

    tree: BudgetTree
    by: UserName
    comment: str = ""
    origin: Origin | None = None


class JobAdmitted(Fact, frozen=True, kw_only=True, tag=True):
    """The job enters the queue. Carries all that the ranker and the placer need of it."""

    lane: ClassVar[Lane] = Lane.BUDGET

    job: JobId
    spec: JobSpec
    submitted_at: Millis


class JobRejected(Fact, frozen=True, kw_only=True, tag=True):
    """The job does not enter the queue, although the gateway let it pass (the tree or the hosts changed since)."""

    lane: ClassVar[Lane] = Lane.BUDGET

    job: JobId
    why: Why


class RunCharged(Fact, frozen=True, kw_only=True, tag=True):
    """The books of an allocated run are closed (P2).

    `charged_gpu_ms` is its whole occupancy less `refunded_gpu_ms`. Refunded is everything it held at or after
    `refund_since` (`refund_until` is where its last replica ended), so a window can take back exactly what was charged
    when. A lost host's replicas ended at `HostStateChanged.last_seen`.
    """

    lane: ClassVar[Lane] = Lane.BUDGET

    run: RunId
    job: JobId
    budget: BudgetPath
    user: UserName
    charged_gpu_ms: GpuMillis
    refunded_gpu_ms: GpuMillis = 0
    refund_since: Millis | None = None
    refund_until: Millis | None = None
    why: Why
