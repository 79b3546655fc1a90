"""Folding the log into the budget role's state, one function a kind of fact."""

from collections.abc import Callable, Iterable
from typing import Any

from services.budget.state import EndedRun, ReplicaBook, RunBook, Span, State, Submission
from tenure.domain.host import HostState
from tenure.domain.ids import HostId
from tenure.domain.shape import kind_of
from tenure.domain.units import Millis
from tenure.events.budgets import BudgetTreeChanged, JobAdmitted, JobRejected, RunCharged
from tenure.events.catalogue import Kind
from tenure.events.fact import Recorded
from tenure.events.hosts import HostStateChanged
from tenure.events.intake import JobSubmitted
from tenure.events.leading import BudgetLeadTaken
from tenure.events.placing import RunAssigned, RunEnded
from tenure.events.policy import PolicyChanged
from tenure.events.reports import CheckpointReported, HostRegistered, ReplicasExited, ReplicasStarted


def _submitted(state: State, fact: JobSubmitted) -> None:
    submission = Submission(job=fact.job, spec=fact.spec, submitted_at=fact.at, fact=fact.id, policy=state.policy)
    state.submissions.setdefault(fact.job, submission)


def _answered(state: State, fact: JobAdmitted | JobRejected) -> None:
    state.submissions.pop(fact.job, None)


def _tree(state: State, fact: BudgetTreeChanged) -> None:
    state.tree = fact.tree


def _policy(state: State, fact: PolicyChanged) -> None:
    state.policy = fact.policy


def _register(state: State, fact: HostRegistered) -> None:
    gone = []
    for host in fact.hosts:
        if host.host in state.hosts:
            gone.append(state.hosts[host.host])
        state.hosts[host.host] = kind_of(host)
    state.shape = state.shape.changed(gone=gone, come=[kind_of(host) for host in fact.hosts])


def _open(state: State, fact: RunAssigned) -> None:
    if not fact.allocated:
        return
    replicas = {place.replica: ReplicaBook(host=place.host, gpus=len(place.gpus)) for place in fact.placement}
    kind = state.hosts.get(fact.placement[0].host) if fact.placement else None
    cluster = "" if kind is None else kind.cluster
    state.runs[fact.run] = RunBook(
        job=fact.job,
        budget=fact.budget,
        user=fact.user,
        replicas=replicas,
        cap_ms=0 if state.policy is None else state.policy.of_cluster(cluster).min_runtime_cap_ms,
        cluster=cluster,
    )
    for host in _hosts_of(replicas.values()):
        state.runs_by_host.setdefault(host, {})[fact.run] = None


def _started(state: State, fact: ReplicasStarted) -> None:
    book = state.runs.get(fact.run)
    if book is not None:
        for start in fact.replicas:
            _note(book, start.replica, by=start.host, start=start.at)


def _exited(state: State, fact: ReplicasExited) -> None:
    book = state.runs.get(fact.run)
    if book is not None:
        for exit_ in fact.replicas:
            _note(book, exit_.replica, by=exit_.host, start=exit_.started_at, end=exit_.at)


def _host_state(state: State, fact: HostStateChanged) -> None:
    if fact.state is HostState.LOST:
        for run in state.runs_by_host.get(fact.host, {}):
            book = state.runs[run]
            for number, replica in book.replicas.items():
                if replica.host == fact.host:
                    _note(book, number, by=fact.host, end=fact.last_seen)


def _checkpoint(state: State, fact: CheckpointReported) -> None:
    book = state.runs.get(fact.run)
    if book is not None and any(replica.host == fact.host for replica in book.replicas.values()):
        book.checkpoint = fact.at if book.checkpoint is None else max(fact.at, book.checkpoint)


def _note(book: RunBook, number: int, *, by: HostId, start: Millis | None = None, end: Millis | None = None) -> None:
    """Write down what became of a replica, if it was given to the host that says so and that is not known yet."""
    replica = book.replicas.get(number)
    if replica is None or replica.host != by:
        return
    if replica.start is None:
        replica.start = start
    if replica.end is None:
        replica.end = end


def _close(state: State, fact: RunEnded) -> None:
    """Fix what the run held. A replica of whose end nobody spoke held its GPUs until the run was over."""
    book = state.runs.pop(fact.run, None)
    if book is None:
        return
    for host in _hosts_of(book.replicas.values()):
        left = state.runs_by_host[host]
        del left[fact.run]
        if not left:
            del state.runs_by_host[host]
    spans = []
    for number in sorted(book.replicas):
        replica = book.replicas[number]
        until = fact.at if replica.end is None else replica.end
        if replica.start is not None and until > replica.start:
            spans.append(Span(gpus=replica.gpus, since=replica.start, until=until))
    state.ended[fact.run] = EndedRun(
        run=fact.run,
        job=book.job,
        budget=book.budget,
        user=book.user,
        spans=tuple(spans),
        cause_of_end=fact.cause_of_end,
        fact=fact.id,
        cap_ms=book.cap_ms,
        cluster=book.cluster,
        checkpoint=book.checkpoint,
    )


def _charged(state: State, fact: RunCharged) -> None:
    state.ended.pop(fact.run, None)


def _hosts_of(replicas: Iterable[ReplicaBook]) -> dict[HostId, None]:
    """The hosts of some replicas, each once, in order."""
    return {replica.host: None for replica in replicas}


def _lead_taken(state: State, fact: BudgetLeadTaken) -> None:
    """In the guarded lane, so it must be read, but it tells nothing of jobs."""


_FOLD: dict[Kind, Callable[[State, Any], None]] = {
    BudgetTreeChanged: _tree,
    PolicyChanged: _policy,
    HostRegistered: _register,
    JobSubmitted: _submitted,
    JobAdmitted: _answered,
    JobRejected: _answered,
    RunAssigned: _open,
    ReplicasStarted: _started,
    ReplicasExited: _exited,
    HostStateChanged: _host_state,
    CheckpointReported: _checkpoint,
    RunEnded: _close,
    RunCharged: _charged,
    BudgetLeadTaken: _lead_taken,
}
READS: tuple[Kind, ...] = tuple(_FOLD)


def evolve(state: State, recorded: Recorded) -> None:
    """Fold one fact."""
    fact = recorded.fact
    fold = _FOLD.get(type(fact))
    if fold is not None:
        fold(state, fact)
    state.position = recorded.position
