"""What the shell offers after Tab: names the running system knows; without one nothing, quickly and quietly."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tenure.cli.connection import client_of, find
from tenure.domain.refusal import Refusal
from tenure.sdk.errors import ServerError

if TYPE_CHECKING:
    from tenure.sdk.client import Client

DEADLINE_S = 1.0
JOBS_MAX = 200


def budgets(incomplete: str) -> list[str]:
    """Paths of budgets."""
    return _offer(incomplete, lambda client: (budget.path for budget in client.tree().budgets))


def leaves(incomplete: str) -> list[str]:
    """Paths of the budgets that jobs can be submitted to."""
    return _offer(incomplete, lambda client: (budget.path for budget in client.tree().budgets if budget.leaf))


def jobs(incomplete: str) -> list[str]:
    """Ids of jobs, those first that run or wait."""
    return _offer(incomplete, lambda client: (job.job_id for job in client.jobs(limit=JOBS_MAX).jobs))


def hosts(incomplete: str) -> list[str]:
    """Names of hosts."""
    return _offer(incomplete, lambda client: (host.host for host in client.hosts().hosts))


def _offer(incomplete: str, ask: "Callable[[Client], Iterable[str]]") -> list[str]:
    try:
        with client_of(find(), deadline_s=DEADLINE_S) as client:
            return [name for name in ask(client) if name.startswith(incomplete)]
    except (ServerError, Refusal):
        return []
