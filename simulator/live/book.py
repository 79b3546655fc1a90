"""What jobs did so far: how long those that are over held their GPUs, how much of their work the others have done,
and what was submitted lately. Folded from the log; all of it is bounded.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec

from tenure.domain.ids import JobId
from tenure.domain.job import JobSpec, Launch
from tenure.domain.reasons import JobState
from tenure.domain.units import DAY, Millis
from tenure.events.budgets import JobAdmitted
from tenure.events.catalogue import Kind
from tenure.events.fact import Recorded
from tenure.events.placing import JobFinished, RunEnded, RunStarted

SAMPLES_MAX = 256
"""Of each kind of jobs so many of the latest lengths are kept ..."""
KINDS_MAX = 20_000
"""... and so many kinds, those that were met last."""
ARRIVALS_MAX = 20_000
"""Of what was submitted no more is remembered than this; beyond it the latest `FULL` ..."""
FULL = 15_000
ARRIVALS_FOR: Millis = 7 * DAY
"""... and nothing for much longer than this: the week ahead is taken to be like the week before."""
ENDED = (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED)
"""Ends that were the job's own or its owner's, and so say how long such jobs hold GPUs."""
_NO_LAUNCH = Launch(command=("forecast",))


class Doing(msgspec.Struct, kw_only=True):
    """A job that is not over. `held_ms`: what its runs before this one had. `started_at`: of the run it has."""

    spec: JobSpec
    held_ms: Millis = 0
    started_at: Millis | None = None


class Arrival(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """A job that was submitted then."""

    at: Millis
    spec: JobSpec


class Book(msgspec.Struct, kw_only=True):
    """All of it. `since`: from when on `arrivals` has all that was submitted; None before the first job."""

    since: Millis | None = None
    jobs: dict[JobId, Doing] = {}
    samples: dict[str, list[Millis]] = {}
    """Lengths by kind; negative for jobs that were ended by others, and would have lasted longer."""
    arrivals: list[Arrival] = []
    finished: int = 0
    """How many jobs have given a length."""


def kinds_of(spec: JobSpec) -> tuple[str, ...]:
    """What a job is taken to be like, the closest first: same name, same user, same budget, any; the contract, too."""
    contract = str(spec.min_runtime_ms)
    budget, user = str(spec.budget), str(spec.user)
    return (
        "\n".join(("name", budget, user, spec.name, contract)),
        "\n".join(("user", budget, user, contract)),
        "\n".join(("budget", budget, contract)),
        "\n".join(("all", contract)),
    )


def _admitted(book: Book, fact: JobAdmitted) -> None:
    if fact.job in book.jobs:
        return
    spec = replace(fact.spec, launch=_NO_LAUNCH)
    book.jobs[fact.job] = Doing(spec=spec)
    book.since = fact.at if book.since is None else book.since
    book.arrivals.append(Arrival(at=fact.at, spec=spec))
    if len(book.arrivals) > ARRIVALS_MAX:
        book.arrivals = book.arrivals[-FULL:]
        book.since = book.arrivals[0].at
    if book.arrivals[0].at < fact.at - ARRIVALS_FOR - DAY:
        book.since = fact.at - ARRIVALS_FOR
        book.arrivals = [each for each in book.arrivals if each.at >= book.since]


def _started(book: Book, fact: RunStarted) -> None:
    doing = book.jobs.get(fact.job)
    if doing is not None:
        doing.started_at = fact.at


def _ended(book: Book, fact: RunEnded) -> None:
    doing = book.jobs.get(fact.job)
    if doing is None or doing.started_at is None:
        return
    held = max(0, fact.at - doing.started_at)
    doing.held_ms = doing.held_ms + held if doing.spec.resumable else held
    doing.started_at = None


def _finished(book: Book, fact: JobFinished) -> None:
    doing = book.jobs.pop(fact.job, None)
    if doing is None or doing.held_ms == 0:
        return
    length = doing.held_ms if fact.state in ENDED else -doing.held_ms
    book.finished += length > 0
    for kind in kinds_of(doing.spec):
        lengths = book.samples.pop(kind, [])  # put at the end: what was met last is kept longest
        lengths.append(length)
        book.samples[kind] = lengths[-SAMPLES_MAX:]
    while len(book.samples) > KINDS_MAX:
        del book.samples[next(iter(book.samples))]


FOLDS: dict[Kind, Callable[[Book, Any], None]] = {
    JobAdmitted: _admitted,
    RunStarted: _started,
    RunEnded: _ended,
    JobFinished: _finished,
}


def evolve(book: Book, recorded: Recorded) -> None:
    """Fold one fact."""
    fold = FOLDS.get(type(recorded.fact))
    if fold is not None:
        fold(book, recorded.fact)
