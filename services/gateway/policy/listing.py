"""What a list of jobs shows, and in which order: running, the queue by rank, then those that are over, newest first."""

import heapq
from collections.abc import Collection, Iterator
from itertools import islice

from services.gateway.entries import JobEntry
from services.gateway.state import State
from tenure.domain.ids import BudgetPath, JobId
from tenure.domain.reasons import JobState

_ACTIVE = (JobState.RUNNING, JobState.STOPPING, JobState.STARTING)


def list_jobs(state: State, *, states: Collection[JobState], budget: str, user: str, limit: int) -> list[JobEntry]:
    """At most `limit` jobs. Empty filters let everything pass; `budget` means it and everything below it."""

    def wanted(entry: JobEntry) -> bool:
        return (not user or entry.spec.user == user) and is_under(entry.spec.budget, budget)

    enough = None if budget or user else limit  # with a filter, any number may have to be looked at
    return list(islice((entry for entry in _ordered(state, states, enough) if wanted(entry)), limit))


def _ordered(state: State, states: Collection[JobState], limit: int | None) -> Iterator[JobEntry]:
    """All jobs in these states, in order; of the waiting ones only `limit`, if given, are sure to be in order."""
    jobs, live = state.jobs, state.live
    for phase in _ACTIVE:
        if not states or phase in states:
            yield from (jobs[job] for job in sorted(live[phase]))
    if not states or JobState.QUEUED in states:
        yield from _queue(state, limit)
    if not states or JobState.SUBMITTED in states:
        yield from (jobs[job] for job in _sorted_by_submission(state, live[JobState.SUBMITTED], limit))
    for job in reversed(state.over):
        if not states or jobs[job].state in states:
            yield jobs[job]


def _queue(state: State, limit: int | None) -> Iterator[JobEntry]:
    queued, listed = state.live[JobState.QUEUED], 0
    ranks: dict[JobId, int] = {}
    if state.ranking is not None:
        ranks = state.ranking.ranks
        for job in state.ranking.fact.order:
            if job in queued:
                listed += 1
                yield state.jobs[job]
    if listed < len(queued):
        rest = [job for job in queued if job not in ranks]
        yield from (state.jobs[job] for job in _sorted_by_submission(state, rest, limit))


def _sorted_by_submission(state: State, ids: Collection[JobId], limit: int | None) -> list[JobId]:
    def order(job: JobId) -> tuple[int, JobId]:
        return state.jobs[job].submitted_at, job

    return sorted(ids, key=order) if limit is None or limit >= len(ids) else heapq.nsmallest(limit, ids, key=order)


def count_jobs(state: State, *, budget: str, user: str) -> dict[JobState, int]:
    """How many jobs there are by state, those long over included."""
    totals: dict[JobState, int] = {}
    for counts in state.counts.values():
        if (not user or counts.user == user) and is_under(counts.budget, budget):
            for phase, number in counts.by_state.items():
                totals[phase] = totals.get(phase, 0) + number
    return {phase: totals[phase] for phase in JobState if totals.get(phase)}


def is_under(path: BudgetPath, budget: str) -> bool:
    """Whether `path` is `budget` or below it; the empty budget is above everything."""
    return not budget or path == budget or path.startswith(budget + "/")
