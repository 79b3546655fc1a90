"""How a budget stands (P3), worked out of what the gateway says of it."""

from collections.abc import Mapping
from dataclasses import dataclass

from tenure.v1 import budgets_pb2


@dataclass(frozen=True, slots=True)
class Standing:
    """`ratio` None: nothing is entitled. `ahead_gpu_ms`: had and promised beyond that; negative is behind."""

    ratio: float | None
    ahead_gpu_ms: int


def standing_of(budget: budgets_pb2.Budget) -> Standing:
    """Of one budget."""
    had = budget.charged_gpu_ms + budget.commitment_gpu_ms
    entitled = budget.entitlement_gpu_ms
    return Standing(had / entitled if entitled > 0 else None, had - entitled)


def standings(tree: budgets_pb2.GetTreeResponse) -> Mapping[str, Standing]:
    """Of each budget by its path."""
    return {budget.path: standing_of(budget) for budget in tree.budgets}
