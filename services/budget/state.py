"""What the budget role knows: the tree, the hosts, submissions to decide, and the open books of allocated runs.

It holds only what is still to be decided or charged: a job is forgotten once it is admitted or rejected, a run once it
is charged. Facts of one run change that run's book only, so facts of different runs may come in any order.
"""

import msgspec

from tenure.domain.ids import LOG_START, BudgetPath, FactId, HostId, JobId, Position, RunId, UserName
from tenure.domain.job import JobSpec
from tenure.domain.policy import Policy
from tenure.domain.reasons import EndCause
from tenure.domain.shape import ClusterShape, HostKind
from tenure.domain.tree import BudgetTree
from tenure.domain.units import Millis


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A job that waits to be admitted or rejected. `policy`: the log's when it was submitted, None if it had none."""

    job: JobId
    spec: JobSpec
    submitted_at: Millis
    fact: FactId
    policy: Policy | None = None


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
    cap_ms: Millis = 0
    cluster: str = ""
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
    cap_ms: Millis = 0
    """The most that is refunded, by the log's policy when it was assigned; 0 if it had none."""
    cluster: str = ""
    """Of the hosts it ran on."""
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
    policy: Policy | None = None
    """The log's; None: it has none, and what the role was started with counts."""


def initial() -> State:
    """Nothing known."""
    return State()


def dump(state: State) -> bytes:
    """The state as JSON."""
    return msgspec.json.encode(state)


def load(payload: bytes) -> State:
    """The inverse of `dump`. Raises ValueError on damage."""
    try:
        return msgspec.json.decode(payload, type=State)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not a state of the budget role: {error}") from error
