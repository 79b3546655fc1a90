"""A log as its jobs, hosts, trees and policies, each with its instants, in the order of the log. One pass."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from simulator.agents import Running
from tenure.domain.host import HostSpec
from tenure.domain.ids import HostId, JobId, RunId
from tenure.domain.job import JobSpec
from tenure.domain.policy import Policy
from tenure.domain.reasons import EndCause, JobState
from tenure.domain.tree import BudgetTree
from tenure.domain.units import Millis
from tenure.events.budgets import BudgetTreeChanged, JobAdmitted, RunCharged
from tenure.events.catalogue import Kind
from tenure.events.fact import Fact, Lane, Recorded
from tenure.events.hosts import CapacityChanged, HostStateChanged
from tenure.events.intake import JobCancelRequested
from tenure.events.placing import (
    JobFinished,
    JobRequeued,
    ReservationDropped,
    ReservationMade,
    RunAssigned,
    RunEnded,
    RunPreemptionRequested,
    RunStarted,
    RunStopRequested,
)
from tenure.events.policy import PolicyChanged
from tenure.events.reports import CheckpointReported, HostRegistered, ReplicasExited, ReplicasStarted


class PastRun:
    """One run as the log has it."""

    __slots__ = ("assigned", "cause", "checkpoint", "could_at", "ended_at", "exited", "started_at", "told_at")

    def __init__(self, assigned: RunAssigned, *, could_at: Millis) -> None:
        self.assigned = assigned
        self.could_at = could_at
        """From when on its job was queued and its GPUs were free."""
        self.started_at: Millis | None = None
        self.told_at: Millis | None = None
        """When it was told to stop first."""
        self.exited: tuple[int, ...] = ()
        self.checkpoint: Millis | None = None
        self.ended_at: Millis | None = None
        self.cause: EndCause | None = None

    def as_running(self) -> Running:
        """The run as agents take it over."""
        return Running(
            assigned=self.assigned,
            started_at=self.started_at,
            told_to_stop=self.told_at is not None,
            exited=self.exited,
        )


class PastJob:
    """One job that was admitted."""

    __slots__ = (
        *("admitted_in", "cancelled_at", "exit_code", "job"),
        *("queued_at", "runs", "spec", "state", "submitted_at"),
    )

    def __init__(self, fact: JobAdmitted, *, admitted_in: int) -> None:
        self.job = fact.job
        self.spec: JobSpec = fact.spec
        self.submitted_at: Millis = fact.submitted_at
        self.queued_at: Millis = fact.submitted_at
        """Since when it is in the queue, if it is."""
        self.admitted_in = admitted_in
        """Where its admission stands among the facts."""
        self.runs: list[PastRun] = []
        self.cancelled_at: Millis | None = None
        self.state: JobState | None = None
        """How it ended; None: it has not."""
        self.exit_code: int | None = None

    @property
    def open_run(self) -> PastRun | None:
        """The run that has not ended."""
        return self.runs[-1] if self.runs and self.runs[-1].ended_at is None else None


class Past:
    """What happened up to some fact. Instants are those of the facts."""

    def __init__(self, facts: Iterable[Fact] = ()) -> None:
        self.facts: list[Fact] = []
        """Those kinds that are folded here, in order of the log."""
        self.hosts: list[tuple[Millis, HostSpec]] = []
        """From when on a host is as it says; only news."""
        self.host_states: dict[HostId, list[HostStateChanged]] = {}
        self.trees: list[tuple[Millis, BudgetTree]] = []
        self.policies: list[tuple[Millis, Policy]] = []
        self.jobs: dict[JobId, PastJob] = {}
        self._runs: dict[RunId, PastRun] = {}
        self._known: dict[HostId, HostSpec] = {}
        self._freed: dict[tuple[HostId, int], Millis] = {}
        """When each GPU was free last."""
        for fact in facts:
            self.fold(fact)

    def fold(self, fact: Fact) -> None:
        """One fact more."""
        fold = _FOLD.get(type(fact))
        if fold is not None:
            fold(self, fact)
            self.facts.append(fact)

    @property
    def first(self) -> Millis:
        """The instant of the first fact."""
        return min(fact.at for fact in self.facts[:_LOOKED_AT])

    @property
    def last(self) -> Millis:
        """The last instant that a role spoke of."""
        said = (fact.at for fact in reversed(self.facts) if fact.lane is not Lane.REPORT)
        return next(said, self.facts[-1].at)

    def cut(self, at: Millis) -> int:
        """How many of the facts were written before `at`. Reports may be late, so what roles say decides."""
        cut = 0
        for number, fact in enumerate(self.facts):
            if fact.lane is not Lane.REPORT:
                if fact.at >= at:
                    break
                cut = number + 1
            elif fact.at < at and cut == number:
                cut = number + 1
        return cut

    def hosts_before(self, at: Millis) -> dict[HostId, HostSpec]:
        """The hosts that had registered before an instant."""
        return {spec.host: spec for since, spec in self.hosts if since < at}


_LOOKED_AT = 1_000
"""Facts at the beginning of a log among which the earliest instant is: agents' clocks may differ from the roles'."""


def _registered(past: Past, fact: HostRegistered) -> None:
    for spec in fact.hosts:
        if past._known.get(spec.host) != spec:
            past._known[spec.host] = spec
            past.hosts.append((fact.at, spec))


def _host_state(past: Past, fact: HostStateChanged) -> None:
    past.host_states.setdefault(fact.host, []).append(fact)


def _tree(past: Past, fact: BudgetTreeChanged) -> None:
    past.trees.append((fact.at, fact.tree))


def _policy(past: Past, fact: PolicyChanged) -> None:
    past.policies.append((fact.at, fact.policy))


def _admitted(past: Past, fact: JobAdmitted) -> None:
    if fact.job not in past.jobs:
        past.jobs[fact.job] = PastJob(fact, admitted_in=len(past.facts))


def _cancel(past: Past, fact: JobCancelRequested) -> None:
    job = past.jobs.get(fact.job)
    if job is not None and job.cancelled_at is None:
        job.cancelled_at = fact.at


def _assigned(past: Past, fact: RunAssigned) -> None:
    job = past.jobs.get(fact.job)
    if job is not None and fact.run not in past._runs:
        freed = [past._freed.get((place.host, gpu), 0) for place in fact.placement for gpu in place.gpus]
        run = past._runs[fact.run] = PastRun(fact, could_at=max([job.queued_at, *freed]))
        job.runs.append(run)


def _started(past: Past, fact: RunStarted) -> None:
    run = past._runs.get(fact.run)
    if run is not None:
        run.started_at = fact.at


def _told(past: Past, fact: RunPreemptionRequested | RunStopRequested) -> None:
    run = past._runs.get(fact.run)
    if run is not None and run.told_at is None:
        run.told_at = fact.at


def _exited(past: Past, fact: ReplicasExited) -> None:
    run = past._runs.get(fact.run)
    if run is not None:
        run.exited += tuple(gone.replica for gone in fact.replicas)


def _checkpoint(past: Past, fact: CheckpointReported) -> None:
    run = past._runs.get(fact.run)
    if run is not None:
        run.checkpoint = max(fact.at, run.checkpoint or fact.at)


def _ended(past: Past, fact: RunEnded) -> None:
    run = past._runs.get(fact.run)
    if run is not None:
        run.ended_at, run.cause = fact.at, fact.cause_of_end
        for place in run.assigned.placement:
            past._freed.update(((place.host, gpu), fact.at) for gpu in place.gpus)


def _requeued(past: Past, fact: JobRequeued) -> None:
    job = past.jobs.get(fact.job)
    if job is not None:
        job.queued_at = fact.at


def _finished(past: Past, fact: JobFinished) -> None:
    job = past.jobs.get(fact.job)
    if job is not None:
        job.state, job.exit_code = fact.state, fact.exit_code


def _keep(past: Past, fact: Fact) -> None:
    """It belongs to the state at an instant, and tells nothing further."""


_FOLD: dict[Kind, Callable[[Past, Any], None]] = {
    HostRegistered: _registered,
    HostStateChanged: _host_state,
    CapacityChanged: _keep,
    BudgetTreeChanged: _tree,
    PolicyChanged: _policy,
    JobAdmitted: _admitted,
    JobCancelRequested: _cancel,
    RunAssigned: _assigned,
    ReplicasStarted: _keep,
    ReplicasExited: _exited,
    RunStarted: _started,
    RunPreemptionRequested: _told,
    RunStopRequested: _told,
    CheckpointReported: _checkpoint,
    RunEnded: _ended,
    RunCharged: _keep,
    JobRequeued: _requeued,
    JobFinished: _finished,
    ReservationMade: _keep,
    ReservationDropped: _keep,
}
READS: tuple[Kind, ...] = tuple(_FOLD)
"""The kinds that are to be read from a log."""


def past_of(recorded: Sequence[Recorded]) -> Past:
    """The past that a log tells."""
    return Past(entry.fact for entry in recorded)
