"""The gRPC service Budgets: the tree with its standings, edits of it, their history, what is owed and delivered."""

# ruff: noqa: N802, ARG002 - gRPC names the methods and what they are given

import asyncio
import time

from services.gateway.answering import Context, answering
from services.gateway.convert import from_budget, from_change, shares_of
from services.gateway.decider import change_tree, edited_tree
from services.gateway.gateway import Gateway
from services.gateway.history import History
from services.gateway.identity.asking import require
from services.gateway.policy.listing import is_under
from services.gateway.policy.totals import budget_totals
from services.gateway.refusals import NotFound
from services.gateway.state import State
from tenure.domain.ids import Position
from tenure.domain.nearest import did_you_mean, shown
from tenure.domain.refusal import Refusal
from tenure.domain.rights import Right, rights_of_edit
from tenure.domain.tree import ROOT, BudgetTree
from tenure.domain.tree_edit import BudgetEdit
from tenure.domain.units import DAY
from tenure.events.budgets import BudgetTreeChanged
from tenure.events.plausible import AT_MAX
from tenure.v1 import budgets_pb2, budgets_pb2_grpc

VISIBLE_WAIT_S = 2.0
REPORT_MAX_MS = 3_653 * DAY
"""Ten years: the database reckons hour by hour, for whoever may look. The answer says from when on it is."""
USERS_MAX = 1_000
"""Users of a report, those who had most."""
_POLL_S = 0.02


class Budgets(budgets_pb2_grpc.BudgetsServicer):
    """See `proto/tenure/v1/budgets.proto`."""

    def __init__(self, gateway: Gateway, history: History) -> None:
        self._gateway, self._history = gateway, history

    @answering
    async def GetTree(self, request: budgets_pb2.GetTreeRequest, context: Context) -> budgets_pb2.GetTreeResponse:
        """All budgets, in order of path."""
        state = await self._gateway.read()
        totals = budget_totals(state)
        return budgets_pb2.GetTreeResponse(
            budgets=[from_budget(node, state, totals) for node in state.tree.nodes], position=state.tree_position
        )

    @answering
    async def SetShares(self, request: budgets_pb2.SetSharesRequest, context: Context) -> budgets_pb2.SetSharesResponse:
        """Change the tree, conditional on nobody else having changed what the decision was made on."""
        gateway = self._gateway
        require(Right.LOOK, tree=gateway.state.tree)  # a refusal below may name budgets
        order = gateway.order(user=request.user, comment=request.comment)
        edits = [_edit(budget, merge=request.merge) for budget in request.budgets]
        if request.expected_position < 0:
            raise Refusal(field="expected_position", problem="negative", fix="give the position GetTree told, or 0")

        planned: list[BudgetTree] = []

        def change(state: State) -> BudgetTreeChanged | None:
            tree = edited_tree(
                state,
                edits,
                merge=request.merge,
                remove=request.remove,
                expected_position=request.expected_position,
            )
            _require_rights(state.tree, tree)
            changed = change_tree(state, tree, order)
            if not request.dry_run:
                return changed
            planned.append(tree)
            return None

        written = await gateway.agree(change, what="the tree")
        if written is None:
            return budgets_pb2.SetSharesResponse(budgets=[shares_of(node) for node in planned[-1].nodes])
        return budgets_pb2.SetSharesResponse(position=written[0])

    @answering
    async def History(
        self, request: budgets_pb2.BudgetHistoryRequest, context: Context
    ) -> budgets_pb2.BudgetHistoryResponse:
        """Every change of a share, oldest first."""
        state = await self._gateway.read()
        changes = [change for change in state.changes if is_under(change.path, request.path)]
        if not changes:
            _check_known(state, request.path)
        return budgets_pb2.BudgetHistoryResponse(changes=[from_change(change) for change in changes])

    @answering
    async def Report(
        self, request: budgets_pb2.BudgetReportRequest, context: Context
    ) -> budgets_pb2.BudgetReportResponse:
        """Owed and delivered, once the database shows what the read model does."""
        gateway = self._gateway
        state = await gateway.read()
        until = request.until_ms or gateway.now()
        since = request.since_ms or max(0, until - gateway.policy.lookback_ms)
        if since < 0 or until <= since:
            raise Refusal(field="until_ms", problem="not after since_ms", fix="give a span of time that is not empty")
        if until > AT_MAX:
            raise Refusal(field="until_ms", problem="after the year 2100", fix="give an instant in epoch milliseconds")
        since = max(since, until - REPORT_MAX_MS)
        _check_known(state, request.path)
        position = await visible_from(self._history, state.position)
        rows = await self._history.report(since=since, until=until, path=request.path)
        users = await self._history.users(since=since, until=until, path=request.path) if request.users else ()
        return budgets_pb2.BudgetReportResponse(
            rows=[
                budgets_pb2.BudgetReportRow(
                    path=row.path,
                    leaf=row.leaf,
                    owed_gpu_ms=row.owed_gpu_ms,
                    delivered_gpu_ms=row.delivered_gpu_ms,
                    unallocated_gpu_ms=row.unallocated_gpu_ms,
                    entitlement_gpu_ms=row.entitlement_gpu_ms,
                    refunded_gpu_ms=row.refunded_gpu_ms,
                )
                for row in rows
            ],
            since_ms=since,
            until_ms=until,
            position=position,
            users=[
                budgets_pb2.UserUsage(
                    user=usage.user,
                    budget=usage.budget,
                    delivered_gpu_ms=usage.charged_gpu_ms,
                    unallocated_gpu_ms=usage.unallocated_gpu_ms,
                    refunded_gpu_ms=usage.refunded_gpu_ms,
                )
                for usage in users[:USERS_MAX]
            ],
        )


async def visible_from(history: History, position: Position) -> Position:
    """Wait until the database shows `position`. Returns what it shows; less when it lags for `VISIBLE_WAIT_S`."""
    give_up_at = time.monotonic() + VISIBLE_WAIT_S
    while True:
        shown_now = await history.visible()
        if shown_now >= position or time.monotonic() > give_up_at:
            return shown_now
        await asyncio.sleep(_POLL_S)


def _require_rights(before: BudgetTree, after: BudgetTree) -> None:
    """Raise `Denied` unless the caller may make every change there is; one that changes nothing is an admin's."""
    for right, budget in list(rights_of_edit(before, after)) or [(Right.SET_SHARE, ROOT)]:
        require(right, tree=before, budget=budget)


def _edit(budget: budgets_pb2.Budget, *, merge: bool) -> BudgetEdit:
    """What is asked of one budget; in a merge, what is not said of it means what there is."""
    managers, members = tuple(budget.managers), tuple(budget.members)
    return BudgetEdit(
        path=budget.path,
        share_percent=budget.share_percent,
        managers=managers if managers or budget.no_managers or not merge else None,
        members=members if members or budget.no_members or not merge else None,
        users_equal=budget.users_equal if budget.HasField("users_equal") or not merge else None,
    )


def _check_known(state: State, path: str) -> None:
    if path and path not in state.tree.by_path:
        near = did_you_mean(path, state.tree.by_path)
        raise NotFound(field="path", problem=f"there is no budget {shown(path)}", fix=f"{near}see `tenure budget show`")
