"""Where the ranker's books and ClickHouse's occupancy must agree to the millisecond, and by how much they do not.

The books follow `ReplicasStarted` and `ReplicasExited`, the database the heartbeats, which come later. Both know all up
to the instant that every host with a charged run has reported, less some seconds in which the last heartbeat of a run
that has ended is still on its way. What is compared is occupancy before refunds: those come from the same fact on both
sides, but are spread differently over their time.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from services.ranker.state import State
from tenure.domain.ids import BudgetPath, HostId, RunId, UserName
from tenure.domain.units import GpuMillis, Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """One budget in the window: what the books have and what the database has."""

    books_gpu_ms: GpuMillis
    database_gpu_ms: GpuMillis

    @property
    def drift_gpu_ms(self) -> GpuMillis:
        """How much more the books have."""
        return self.books_gpu_ms - self.database_gpu_ms


def comparable_until(
    state: State, *, reported: Mapping[tuple[HostId, RunId], Millis], known_at: Millis, settle_ms: Millis
) -> Millis:
    """The latest instant that both sides know everything about.

    `reported` is what the database has of each run and host, `known_at` the instant its last fact speaks of. A host
    that is silent, but not yet lost, may still report what it did before its last sign of life.
    """
    until = known_at
    for run in state.runs.values():
        for held in run.replicas.values():
            if run.allocated and held.start is not None and held.end is None and held.paused is None:
                until = min(until, reported.get((held.host, run.run), held.start))
    for host in state.hosts.values():
        if host.silent_since is not None and not host.lost:
            until = min(until, host.silent_since)
    return until - settle_ms


def compare(
    state: State, database: Mapping[tuple[BudgetPath, UserName], GpuMillis], *, since: Millis, until: Millis
) -> dict[BudgetPath, Drift]:
    """Every budget that either side knows, in order of path."""
    found: dict[BudgetPath, GpuMillis] = {}
    for (budget, _), held in database.items():
        found[budget] = found.get(budget, 0) + held
    books = {path: account.held.gained(since=since, until=until) for path, account in state.ledger.budgets.items()}
    return {
        path: Drift(books_gpu_ms=books.get(path, 0), database_gpu_ms=found.get(path, 0))
        for path in sorted(books.keys() | found.keys())
    }


def is_forgotten(state: State, since: Millis) -> bool:
    """Whether the books cannot be asked about what was so long ago."""
    return state.forgotten_to is not None and since < state.forgotten_to
