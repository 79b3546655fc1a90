"""What the read model holds of each thing: one entry a job, a run, a host, a change of a budget.

Entries belong to the state alone, which changes them in place; the values inside are frozen. They are kept small: there
are tens of thousands of jobs.
"""

from collections.abc import Mapping

import msgspec

from tenure.domain.host import HostSpec, HostState
from tenure.domain.ids import BudgetPath, HostId, JobId, Position, RunId, UserName
from tenure.domain.job import JobSpec, Placement
from tenure.domain.reasons import EndCause, JobState, Why
from tenure.domain.units import GpuMillis, Millis
from tenure.events.fact import Origin
from tenure.events.reports import HealthSignal


class RunEntry(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """One attempt. `books_closed`: `RunCharged` has said its final figures, or it was never charged."""

    run: RunId
    number: int
    allocated: bool
    placement: Placement
    assigned_at: Millis
    min_runtime_ms: Millis
    started_at: Millis | None = None
    protected_until: Millis | None = None
    stopping: bool = False
    ended_at: Millis | None = None
    cause_of_end: EndCause | None = None
    ended_by: str | None = None
    exit_code: int | None = None
    books_closed: bool = False
    ahead_at_start: Mapping[str, GpuMillis] = {}
    """How far the budgets whose ratios were compared were ahead of their shares at its assignment: see `ahead_of`."""
    ahead_at_stop: Mapping[str, GpuMillis] = {}
    """The same when it was told to end."""

    @property
    def gpus(self) -> int:
        """GPUs it holds, or held."""
        return sum(len(place.gpus) for place in self.placement)

    @property
    def state(self) -> str:
        """starting, running, stopping, or how it ended."""
        if self.cause_of_end is not None:
            return self.cause_of_end.value
        if self.stopping:
            return "stopping"
        return "starting" if self.started_at is None else "running"

    @property
    def contract_ends_at(self) -> Millis:
        """When its protection ends; before it started, the earliest that this can be."""
        return self.assigned_at + self.min_runtime_ms if self.protected_until is None else self.protected_until


class ReservedEntry(msgspec.Struct, kw_only=True, frozen=True, gc=False):
    """What is kept for a blocked gang (P8). `waits_for`: the allocated runs that were in its way when it was made."""

    placement: Placement
    latest_start: Millis
    waits_for: tuple[RunId, ...]


class JobEntry(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """A job and all its runs. `position` is that of the last fact about it.

    `escrow`: the GPUs that nobody but the job may take, freed or on their way out (P7).
    """

    job: JobId
    spec: JobSpec
    submitted_at: Millis
    position: Position
    state: JobState = JobState.SUBMITTED
    why: Why | None = None
    runs: tuple[RunEntry, ...] = ()
    first_started_at: Millis | None = None
    finished_at: Millis | None = None
    resume_count: int = 0
    reservation: ReservedEntry | None = None
    escrow: Placement = ()
    charged_gpu_ms: GpuMillis = 0
    refunded_gpu_ms: GpuMillis = 0
    cancel_asked: bool = False
    held_until: Millis | None = None
    """It is not started before: hosts gave up its launches."""


class HostEntry(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A host, what it offers, and the runs that hold GPUs of it (GPUs by run)."""

    spec: HostSpec
    registered_at: Millis = 0
    state: HostState = HostState.SUSPECT
    state_since: Millis = 0
    last_seen: Millis = 0
    available: int = 0
    runs: dict[RunId, int] = {}
    overdue: dict[RunId, None] = {}
    """Those that should have left by now (P7): until they have, no other starts here."""
    comment: str = ""
    drain_asked: bool = False
    drain_fatal: bool = False
    signals: tuple[HealthSignal, ...] = ()
    """What its agent said of its health that is not over."""
    drain_deadline: Millis | None = None
    drain_accepts: bool = False

    @property
    def takes_runs(self) -> bool:
        """Whether a run may start here."""
        return self.state is HostState.HEALTHY and not self.overdue

    @property
    def held(self) -> int:
        """GPUs that runs hold."""
        return sum(self.runs.values())


class BudgetChange(msgspec.Struct, kw_only=True, frozen=True):
    """What one change of the tree did to one budget; None: it did not exist."""

    position: Position
    at: Millis
    by: UserName
    comment: str
    path: BudgetPath
    share_ppm_before: int | None
    share_ppm_after: int | None
    origin: Origin | None = None


class Counts(msgspec.Struct, kw_only=True):
    """Jobs of one user in one budget, by state, since the log began."""

    budget: BudgetPath
    user: UserName
    by_state: dict[JobState, int]


class Held(msgspec.Struct, kw_only=True):
    """GPUs that the runs of one budget hold."""

    allocated: int = 0
    unallocated: int = 0


def hosts_of(placement: Placement) -> dict[HostId, int]:
    """How many GPUs a placement holds on each of its hosts."""
    held: dict[HostId, int] = {}
    for place in placement:
        held[place.host] = held.get(place.host, 0) + len(place.gpus)
    return held
