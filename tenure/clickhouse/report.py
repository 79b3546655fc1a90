"""Owed and delivered per budget over any stretch of time (P1, P2; `owed` and `delivered` of the glossary).

Where GPU types have exchange rates all of it is in the unit of account.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields

from clickhouse_connect.driver import Client

from tenure.clickhouse.window import Usage, read_account
from tenure.domain.ids import BudgetPath
from tenure.domain.tree import lineage
from tenure.domain.units import GpuMillis, Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRow:
    """One budget over the report's stretch, in GPU-milliseconds. A budget that is no leaf is the sum of those below."""

    path: BudgetPath
    leaf: bool
    owed_gpu_ms: GpuMillis = 0
    """Hour by hour: the smaller of its share of the available capacity and its demand."""
    delivered_gpu_ms: GpuMillis = 0
    unallocated_gpu_ms: GpuMillis = 0
    entitlement_gpu_ms: GpuMillis = 0
    refunded_gpu_ms: GpuMillis = 0
    """Held, lost with a host, and taken back from the charge."""


_AMOUNTS = tuple(field.name for field in fields(BudgetRow) if field.name.endswith("_gpu_ms"))


def budget_report(client: Client, since_ms: Millis, until_ms: Millis, path: str = "") -> list[BudgetRow]:
    """The budgets at and below `path` (empty: all) over [since_ms, until_ms), in order of path.

    A row for every budget of the trees in force meanwhile, and for any other that held GPUs.
    """
    amounts: dict[BudgetPath, dict[str, int]] = {}

    def add(budget: str, name: str, amount: int) -> None:
        for above in lineage(BudgetPath(budget)):
            held = amounts.setdefault(above, dict.fromkeys(_AMOUNTS, 0))
            held[name] += amount

    window = {"s": since_ms, "u": until_ms}
    for budget, entitlement, owed in client.query(_OWED, window).result_rows:
        add(budget, "entitlement_gpu_ms", round(entitlement))
        add(budget, "owed_gpu_ms", round(owed))
    for usage in read_account(client, since_ms, until_ms):
        add(usage.budget, "delivered_gpu_ms", usage.charged_gpu_ms)
        add(usage.budget, "unallocated_gpu_ms", usage.unallocated_gpu_ms)
        add(usage.budget, "refunded_gpu_ms", usage.refunded_gpu_ms)
    tree = {str(budget): bool(leaf) for budget, leaf in client.query(_TREE, window).result_rows}
    for budget in tree:
        amounts.setdefault(BudgetPath(budget), dict.fromkeys(_AMOUNTS, 0))
    inner = {above for budget in amounts for above in lineage(budget) if above != budget}
    return [
        BudgetRow(path=budget, leaf=tree.get(budget, budget not in inner), **amounts[budget])
        for budget in _below(sorted(amounts), path)
    ]


def users_report(client: Client, since_ms: Millis, until_ms: Millis, path: str = "") -> list[Usage]:
    """What each user got of the budgets at and below `path` (empty: all) over [since_ms, until_ms).

    Who had most delivered comes first, then who had most unallocated, then by budget and name.
    """
    usages = read_account(client, since_ms, until_ms)
    chosen = set(_below({usage.budget for usage in usages}, path))
    return sorted(
        (usage for usage in usages if usage.budget in chosen),
        key=lambda usage: (-usage.charged_gpu_ms, -usage.unallocated_gpu_ms, usage.budget, usage.user),
    )


_OWED = """
SELECT path, sum(entitlement_gpu_ms), sum(owed_gpu_ms)
FROM owed_account_hourly(since_ms = {s:Int64}, until_ms = {u:Int64})
GROUP BY path
"""
_TREE = """
SELECT path, leaf FROM shares
WHERE position = (SELECT max(position) FROM shares WHERE at_ms < {u:Int64})
"""


def _below(budgets: Iterable[BudgetPath], path: str) -> list[BudgetPath]:
    return [budget for budget in budgets if not path or budget == path or budget.startswith(path + "/")]
