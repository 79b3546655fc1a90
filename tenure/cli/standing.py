"""How a budget stands (P3), worked out of what the gateway says of it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenure.v1 import budgets_pb2


def ratio(budget: "budgets_pb2.Budget") -> float | None:
    """Charged and committed over entitled (P3); None where nothing is entitled."""
    if budget.entitlement_gpu_ms <= 0:
        return None
    return (budget.charged_gpu_ms + budget.commitment_gpu_ms) / budget.entitlement_gpu_ms


def ahead_gpu_ms(budget: "budgets_pb2.Budget") -> int:
    """How much more than its entitlement the budget has had and been promised; negative when it is behind."""
    return budget.charged_gpu_ms + budget.commitment_gpu_ms - budget.entitlement_gpu_ms
