"""The lines of `events.jsonl`, a class a type, fields in the order in which they are written.

Fields are never renamed, only added to. `t` and the other instants are seconds from the origin when a line is written.
"""

from collections.abc import Mapping

import msgspec

from tenure.domain.host import HostState
from tenure.domain.ids import BudgetPath, HostId, JobId, RunId, UserName
from tenure.domain.job import Topology
from tenure.domain.reasons import EndCause, JobState, Why

Held = Mapping[HostId, tuple[int, ...]]
"""The indices of GPUs on each host."""


class Line(msgspec.Struct, gc=False):
    """What every line has. No line is part of a cycle, so the collector need not look at them."""

    t: float
    type: str


class Origin(Line, gc=False):
    """The first line: which instant t = 0 is."""

    epoch_ms: float


class Host(Line, gc=False):
    """A host registered."""

    host: HostId
    gpus: int
    gpu_type: str
    block: str
    cluster: str | msgspec.UnsetType = msgspec.UNSET
    """The cluster of hosts that it is in, where there are several."""


class Capacity(Line, gc=False):
    """A host offers so many GPUs from now on."""

    host: HostId
    gpus: int
    gpu_type: str


class JobSubmission(Line, gc=False):
    """A job came in."""

    job: JobId
    budget: BudgetPath
    user: UserName
    replicas: int
    gpus_per_replica: int
    min_runtime_s: float
    resumable: bool
    priority: int
    gpu_type: str | None
    gpu_cluster: str | msgspec.UnsetType = msgspec.UNSET
    """The cluster of hosts that it names, if it does; so are the four below."""
    topology: Topology | msgspec.UnsetType = msgspec.UNSET
    grace_s: float | msgspec.UnsetType = msgspec.UNSET
    only_hosts: tuple[HostId, ...] | msgspec.UnsetType = msgspec.UNSET
    excluded_hosts: tuple[HostId, ...] | msgspec.UnsetType = msgspec.UNSET


class JobRejection(Line, gc=False):
    """A job does not enter the queue."""

    job: JobId
    reason: Why


class RunAssignment(Line, gc=False):
    """A run was given GPUs."""

    job: JobId
    run: RunId
    hosts: Held
    charged: bool
    reason: Why


class RunStart(Line, gc=False):
    """Every replica of a run is there."""

    job: JobId
    run: RunId
    hosts: Held
    charged: bool
    protected_until: float


class RunEnd(Line, gc=False):
    """A run is over (`run_ended`, or `run_not_started`).

    `charged_gpu_s` comes with the books of an allocated run, `checkpoint` (the last instant up to which its work is
    saved) if it reported one.
    """

    job: JobId
    run: RunId
    cause: EndCause
    by: str | None
    reason: Why
    refunded_gpu_s: float
    charged_gpu_s: float | msgspec.UnsetType = msgspec.UNSET
    checkpoint: float | msgspec.UnsetType = msgspec.UNSET


class JobEnd(Line, gc=False):
    """A job is over."""

    job: JobId
    state: JobState
    reason: Why


class Requeue(Line, gc=False):
    """A job is back in the queue."""

    job: JobId
    run: RunId
    resume_count: int
    reason: Why


class PreemptionRequest(Line, gc=False):
    """A run is to end early."""

    job: JobId
    run: RunId
    by: str
    reason: Why
    escrow: Held


class CancelRequest(Line, gc=False):
    """The owner of a job wants it gone."""

    job: JobId
    by: UserName


class Reserved(Line, gc=False):
    """Hosts are kept for a blocked gang (P8); `latest_start` in the unit of `t`."""

    job: JobId
    hosts: Held
    latest_start: float
    waits_for: tuple[RunId, ...]
    reason: Why


class HostStateChange(Line, gc=False):
    """A host is in another state. `window`: until then, in the unit of `t`, it takes contracts that end before (P9)."""

    host: HostId
    state: HostState
    previous: HostState | None
    fatal: bool
    reason: Why
    window: float | msgspec.UnsetType = msgspec.UNSET


class PolicyChange(Line, gc=False):
    """Knobs of the policy that have another value from then on: before and after, durations in the unit of `t`."""

    by: str
    comment: str
    knobs: dict[str, tuple[float, float]]


class Tree(Line, gc=False):
    """The shares of all budgets, as fractions of their parents."""

    shares: dict[BudgetPath, float]
    users_equal: list[BudgetPath]
