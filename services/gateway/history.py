"""What lies further back than the read model: the port to the database the journal writes, and jobs told from it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from services.gateway.entries import JobEntry
from services.gateway.evolve import evolve
from services.gateway.state import initial
from tenure.domain.ids import JobId, Position
from tenure.domain.units import Millis
from tenure.events.fact import Fact, Recorded

if TYPE_CHECKING:
    from tenure.clickhouse.report import BudgetRow  # costs the start as much as all the rest of the gateway
    from tenure.clickhouse.window import Usage


class History(Protocol):
    """The database. Each call raises `Away`, with what to do, when it cannot be reached."""

    async def visible(self) -> Position:
        """The last position of the log that it shows; no fact before it is missing."""

    async def story(self, job: JobId) -> Sequence[Recorded]:
        """Every fact about a job and about what others suffered for it, in order of position."""

    async def report(self, *, since: Millis, until: Millis, path: str) -> "Sequence[BudgetRow]":
        """What each budget at or below `path` (empty: all) was owed and got in [since, until), in order of path."""

    async def users(self, *, since: Millis, until: Millis, path: str) -> "Sequence[Usage]":
        """Who used the budgets at or below `path` in [since, until), who had most delivered first."""


def about(fact: Fact) -> JobId | None:
    """The job a fact is about."""
    job: JobId | None = getattr(fact, "job", None)
    return job


def job_from_story(facts: Sequence[Recorded], job: JobId) -> JobEntry | None:
    """The job as its own facts tell it: the same fold as that of the read model."""
    state = initial()
    for recorded in facts:
        if about(recorded.fact) == job:
            evolve(state, recorded)
    return state.jobs.get(job)
