"""Which submissions enter the queue: the gateway's check again, against the tree and the hosts of this position.

They may differ from what the gateway saw: a budget was taken away, a host came back with fewer GPUs.
"""

from collections.abc import Mapping

from services.budget.state import Submission
from tenure.domain.admission import check_job
from tenure.domain.ids import HostId
from tenure.domain.policy import Policy
from tenure.domain.reasons import Reason, Why
from tenure.domain.refusal import Refusal
from tenure.domain.shape import ClusterShape, HostKind
from tenure.domain.tree import BudgetTree
from tenure.domain.units import Millis
from tenure.events.budgets import JobAdmitted, JobRejected


def decide_admission(
    submission: Submission,
    *,
    tree: BudgetTree,
    hosts: ClusterShape,
    named: Mapping[HostId, HostKind],
    policy: Policy,
    now: Millis,
) -> JobAdmitted | JobRejected:
    """The one answer to a submission. A cancelled one is answered too: the placer finishes it."""
    try:
        check_job(submission.spec, tree=tree, hosts=hosts, policy=policy, named=named)
    except Refusal as refusal:
        numbers = {"field": refusal.field, "problem": refusal.problem, "fix": refusal.fix}
        why = Why(rule="admission", reason=Reason.REJECT_ADMISSION, numbers=numbers)
        return JobRejected(at=now, cause=submission.fact, job=submission.job, why=why)
    return JobAdmitted(
        at=now,
        cause=submission.fact,
        job=submission.job,
        spec=submission.spec,
        submitted_at=submission.submitted_at,
    )
