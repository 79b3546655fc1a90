"""The deciders of the `priority` policy: hosts and accounts as in `fair`, no ranking, another placer."""

from typing import Any

from services.budget import decider as budget
from services.health import decider as health
from simulator.baseline import decider as placer
from simulator.world import Roles
from tenure.domain.policy import Policy
from tenure.runtime.role import Role


def priority(policy: Policy) -> list[Role[Any]]:
    """B1-B7."""
    return [health.role(policy), budget.role(policy), placer.role(policy)]


PRIORITY: Roles = priority
