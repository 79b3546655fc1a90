"""What the budget role knows: the tree, the hosts, submissions to decide, and the open books of allocated runs.

It holds only what is still to be decided or charged: a job is forgotten once it is admitted or rejected, a run once it
is charged. Facts of one run change that run's book only, so facts of different runs may come in any order.
"""

from collections.abc import Iterable

import msgspec

from tenure.domain.host import HostState
from tenure.domain.ids import LOG_START, BudgetPath, FactId, HostId, JobId, Position, RunId, UserName
from tenure.domain.job import JobSpec
from tenure.domain.reasons import EndCause
from tenure.domain.shape import ClusterShape, HostKind, kind_of
from tenure.domain.tree import BudgetTree
from tenure.domain.units import Millis
from tenure.events.budgets import BudgetTreeChanged, JobAdmitted, JobRejected, RunCharged
from tenure.events.fact import Recorded
from tenure.events.hosts import HostStateChanged
from tenure.events.intake import JobSubmitted
from tenure.events.placing import RunAssigned, RunEnded
from tenure.events.reports import CheckpointReported, HostRegistered, ReplicasExited, ReplicasStarted


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A job that waits to be admitted or rejected."""

    job: JobId
    spec: JobSpec
    submitted_at: Millis
    fact: FactId


class ReplicaBook(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What is known of one replica. The first start and the first end that are heard of hold.

    `end` is its exit, or the last sign of life of its host if that was lost first.
    """

    host: HostId
    gpus: int
    start: Millis | None = None
    end: Millis | None = None


class RunBook(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The open book of an allocated run. `checkpoint` is the latest one reported."""

    job: JobId
    budget: BudgetPath
    user: UserName
    replicas: dict[int, ReplicaBook]
    checkpoint: Millis | None = None


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """Occupancy of one replica: GPUs held during [since, until)."""

    gpus: int
    since: Millis
    until: Millis


class EndedRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The closed book of an allocated run that is to be charged. What is reported of it later changes nothing."""

    run: RunId
    job: JobId
    budget: BudgetPath
    user: UserName
    spans: tuple[Span, ...]
    cause_of_end: EndCause
    fact: FactId
    checkpoint: Millis | None = None


class State(msgspec.Struct, kw_only=True):
    """The folded state. Dicts keep the order of the log; decisions follow it."""

    position: Position = LOG_START
    tree: BudgetTree = BudgetTree()
    hosts: dict[HostId, HostKind] = {}
    shape: ClusterShape = ClusterShape()
    submissions: dict[JobId, Submission] = {}
    runs: dict[RunId, RunBook] = {}
    runs_by_host: dict[HostId, dict[RunId, None]] = {}
    """The open books with a replica on a host."""
    ended: dict[RunId, EndedRun] = {}


def initial() -> State:
    """Nothing known."""
    return State()


def evolve(state: State, recorded: Recorded) -> None:
    """Fold one fact."""
    match recorded.fact:
        case JobSubmitted() as fact:
            submission = Submission(job=fact.job, spec=fact.spec, submitted_at=fact.at, fact=fact.id)
            state.submissions.setdefault(fact.job, submission)
        case JobAdmitted(job=job) | JobRejected(job=job):
            state.submissions.pop(job, None)
        case BudgetTreeChanged(tree=tree):
            state.tree = tree
        case HostRegistered() as fact:
            _register(state, fact)
        case RunAssigned() as fact if fact.allocated:
            _open(state, fact)
        case ReplicasStarted() as fact:
            for start in fact.replicas:
                _note(state, fact.run, start.replica, start=start.at)
        case ReplicasExited() as fact:
            for exit_ in fact.replicas:
                _note(state, fact.run, exit_.replica, start=exit_.started_at, end=exit_.at)
        case CheckpointReported(run=run, at=at) if run in state.runs:
            book = state.runs[run]
            book.checkpoint = at if book.checkpoint is None else max(at, book.checkpoint)
        case HostStateChanged(state=HostState.LOST, host=host, last_seen=last_seen):
            for run in state.runs_by_host.get(host, {}):
                for number, replica in state.runs[run].replicas.items():
                    if replica.host == host:
                        _note(state, run, number, end=last_seen)
        case RunEnded() as fact if fact.run in state.runs:
            _close(state, fact)
        case RunCharged(run=run):
            state.ended.pop(run, None)
    state.position = recorded.position


def dump(state: State) -> bytes:
    """The state as JSON."""
    return msgspec.json.encode(state)


def load(payload: bytes) -> State:
    """The inverse of `dump`. Raises ValueError on damage."""
    try:
        return msgspec.json.decode(payload, type=State)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not a state of the budget role: {error}") from error


def _register(state: State, fact: HostRegistered) -> None:
    gone = []
    for host in fact.hosts:
        if host.host in state.hosts:
            gone.append(state.hosts[host.host])
        state.hosts[host.host] = kind_of(host)
    state.shape = state.shape.changed(gone=gone, come=[kind_of(host) for host in fact.hosts])


def _open(state: State, fact: RunAssigned) -> None:
    replicas = {place.replica: ReplicaBook(host=place.host, gpus=len(place.gpus)) for place in fact.placement}
    state.runs[fact.run] = RunBook(job=fact.job, budget=fact.budget, user=fact.user, replicas=replicas)
    for host in _hosts_of(replicas.values()):
        state.runs_by_host.setdefault(host, {})[fact.run] = None


def _note(state: State, run: RunId, number: int, *, start: Millis | None = None, end: Millis | None = None) -> None:
    """Write down what became of a replica, if its run's book is open and it is not known yet."""
    book = state.runs.get(run)
    replica = None if book is None else book.replicas.get(number)
    if replica is None:
        return
    if replica.start is None:
        replica.start = start
    if replica.end is None:
        replica.end = end


def _close(state: State, fact: RunEnded) -> None:
    """Fix what the run held. A replica of whose end nobody spoke held its GPUs until the run was over."""
    book = state.runs.pop(fact.run)
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
        checkpoint=book.checkpoint,
    )


def _hosts_of(replicas: Iterable[ReplicaBook]) -> dict[HostId, None]:
    """The hosts of some replicas, each once, in order."""
    return {replica.host: None for replica in replicas}
