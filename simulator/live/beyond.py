"""Where a future is not followed any further, what is left starts at the rate at which its budget's jobs did so far.

A cheap stand-in for more of the same: within a budget in order of priority and submission, one after another, as if
the budget had the GPU-time a millisecond that was given to it while the future was followed.
"""

from simulator.live.future import Drawn, Left
from tenure.domain.ids import BudgetPath, JobId
from tenure.domain.units import HOUR, Millis

SPAN_LEAST: Millis = HOUR
"""A rate over less than this is no rate."""


def beyond(drawn: Drawn, *, began_at: Millis, gpus: int) -> dict[JobId, Millis]:
    """When the jobs that are left start. `gpus`: those of the cluster, which budgets without a start have a part of."""
    span = max(drawn.ended_at - began_at, SPAN_LEAST)
    queues: dict[BudgetPath, list[Left]] = {}
    for left in drawn.left:
        queues.setdefault(left.spec.budget, []).append(left)
    starts: dict[JobId, Millis] = {}
    for budget in sorted(queues):
        rate = max(drawn.given.get(budget, 0) / span, gpus / (10 * len(queues)))
        ahead = 0
        for left in sorted(queues[budget], key=_order):
            starts[left.job] = drawn.ended_at + round(ahead / rate)
            ahead += left.spec.gpus * left.length_ms
    return starts


def _order(left: Left) -> tuple[bool, int, Millis, JobId]:
    """As P4 in a leaf, roughly: allocated first, priority, age."""
    return not left.spec.allocated, -left.spec.priority, left.submitted_at, left.job
