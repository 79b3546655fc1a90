"""What a request becomes: a fact, or a refusal. Pure; the servicers append what comes out of here.

The gateway decides nothing by itself: its `decide` only says how far the fold has come.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from services.gateway.entries import JobEntry
from services.gateway.order import Order
from services.gateway.policy.totals import budgets_in_use
from services.gateway.refusals import NotFound, Outdated, WrongState
from services.gateway.state import State
from tenure.domain.admission import check_job
from tenure.domain.ids import HostId, Position
from tenure.domain.job import JobSpec
from tenure.domain.nearest import shown
from tenure.domain.policy import Policy
from tenure.domain.refusal import Refusal
from tenure.domain.shape import HostKind, kind_of
from tenure.domain.tree import BudgetTree
from tenure.domain.tree_edit import BudgetEdit, check_in_use, edit_tree
from tenure.domain.units import Millis
from tenure.events.budgets import BudgetTreeChanged
from tenure.events.intake import JobCancelRequested
from tenure.runtime.role import Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """An instruction to the shell: wake those who wait for this position or for one of these jobs and hosts."""

    position: Position
    changed: tuple[str, ...]


def decide(state: State, _now: Millis) -> Decision:
    """No facts: only how far the fold has come, and what has changed since it was last asked."""
    changed, state.changed = tuple(state.changed), {}
    return Decision(assumes=state.position, instructions=(Folded(position=state.position, changed=changed),))


def check_submission(state: State, specs: Sequence[JobSpec], *, policy: Policy) -> None:
    """Raise `Refusal` (`NotFound` for an unknown budget) unless every job can be admitted to the tree and hosts now."""
    previous: JobSpec | None = None
    for number, spec in enumerate(specs):
        if spec == previous:  # an array of equal jobs is checked once
            continue
        try:
            check_job(spec, tree=state.tree, hosts=state.shape, policy=policy, named=_named(spec, state))
        except Refusal as refusal:
            unknown = refusal.field == "budget" and spec.budget and spec.budget not in state.tree.by_path
            where = f"jobs[{number}]." if len(specs) > 1 else ""
            kind = NotFound if unknown else Refusal
            raise kind(field=where + refusal.field, problem=refusal.problem, fix=refusal.fix) from refusal
        previous = spec


def _named(spec: JobSpec, state: State) -> dict[HostId, HostKind]:
    """Every host by name, for a job that names some."""
    return {} if spec.choice is None else {host: kind_of(entry.spec) for host, entry in state.hosts.items()}


def cancel(entry: JobEntry, order: Order) -> JobCancelRequested | None:
    """The wish to end a job; None if that was said before. Raises `WrongState` when it is over."""
    if entry.state.final:
        raise WrongState(
            field="job_id",
            problem=f"{entry.job} is over already: {entry.state}",
            fix="only a job that is not over can be cancelled",
        )
    if entry.cancel_asked:
        return None
    return JobCancelRequested(
        at=order.now, id=order.fact_id, cluster=order.cluster, job=entry.job, by=order.by, origin=order.origin
    )


def no_such_job(job: str) -> NotFound:
    """The refusal of a job id nobody has given out."""
    return NotFound(field="job_id", problem=f"there is no job {shown(job)}", fix="see `tenure queue` for their ids")


def edited_tree(
    state: State, edits: Sequence[BudgetEdit], *, merge: bool, remove: Sequence[str], expected_position: int
) -> BudgetTree:
    """The tree after an edit. Raises `Refusal`, or `Outdated`."""
    if expected_position and expected_position != state.tree_position:
        raise Outdated(
            field="expected_position",
            problem=f"the tree has changed since {expected_position}: it is at {state.tree_position}",
            fix="read the tree again and repeat the edit",
        )
    return edit_tree(state.tree, edits=edits, merge=merge, remove=remove)


def change_tree(state: State, tree: BudgetTree, order: Order) -> BudgetTreeChanged:
    """The tree as it is to be from now on. Raises `WrongState` if a budget with jobs would go."""
    try:
        check_in_use(state.tree, tree, in_use=budgets_in_use(state))
    except Refusal as refusal:
        raise WrongState(field=refusal.field, problem=refusal.problem, fix=refusal.fix) from refusal
    return BudgetTreeChanged(
        at=order.now,
        id=order.fact_id,
        cluster=order.cluster,
        tree=tree,
        by=order.by,
        comment=order.comment,
        origin=order.origin,
    )
