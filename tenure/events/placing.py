"""Facts of the placer: what becomes of jobs and their runs."""

from collections.abc import Mapping
from typing import ClassVar

from tenure.domain.ids import BudgetPath, HostId, JobId, RunId, UserName
from tenure.domain.job import Launch, Placement
from tenure.domain.reasons import EndCause, JobState, Why
from tenure.domain.units import Millis
from tenure.events.fact import Fact, Lane


class RunAssigned(Fact, frozen=True, kw_only=True, tag=True):
    """A run was given GPUs. Carries all that the agents on its hosts need to start it; they start it at once."""

    lane: ClassVar[Lane] = Lane.RUNS

    run: RunId
    job: JobId
    number: int
    budget: BudgetPath
    user: UserName
    placement: Placement
    launch: Launch
    min_runtime_ms: Millis
    resumable: bool
    grace_ms: Millis
    resume_count: int
    master_address: str
    master_port: int
    name: str = ""
    signature: str = ""
    """Of whoever may start processes: see `tenure.runtime.run_signing`. Empty where the log is on one machine alone."""
    why: Why

    @property
    def allocated(self) -> bool:
        """Charged to its budget and protected."""
        return self.min_runtime_ms > 0


class RunStarted(Fact, frozen=True, kw_only=True, tag=True):
    """Every replica runs since `at`. `protected_until` = `at` + min_runtime; equal to `at` for unallocated runs."""

    lane: ClassVar[Lane] = Lane.RUNS

    run: RunId
    job: JobId
    protected_until: Millis
    charged: bool
    hosts: Mapping[HostId, tuple[int, ...]]


class RunPreemptionRequested(Fact, frozen=True, kw_only=True, tag=True):
    """The run is to end early (P5 allowed it). `by` is the asking job or the draining host.

    With an asking job, `escrow` is the complete placement the freed GPUs are held for until `deadline` (P7); every
    member of one victim set carries the same.
    """

    lane: ClassVar[Lane] = Lane.RUNS

    run: RunId
    job: JobId
    only_on: HostId | None = None
    """The one host that all of the run is on: see `tenure.log.subjects`. None: it is on several."""
    by: str
    why: Why
    escrow: Placement = ()
    deadline: Millis | None = None


class RunStopRequested(Fact, frozen=True, kw_only=True, tag=True):
    """The run is to end for a reason other than preemption: cancelled, its gang is broken, a host of it is lost."""

    lane: ClassVar[Lane] = Lane.RUNS

    run: RunId
    job: JobId
    only_on: HostId | None = None
    by: str | None
    cause_of_end: EndCause
    why: Why


class RunEnded(Fact, frozen=True, kw_only=True, tag=True):
    """Every replica is gone (or its host is lost) since `at`: its GPUs are free. I10: cause, rule and numbers."""

    lane: ClassVar[Lane] = Lane.RUNS

    run: RunId
    job: JobId
    only_on: HostId | None = None
    cause_of_end: EndCause
    by: str | None = None
    exit_code: int | None = None
    why: Why


class JobRequeued(Fact, frozen=True, kw_only=True, tag=True):
    """The job is back in the queue with its original submit time (P10). Not to be started before `held_until`."""

    lane: ClassVar[Lane] = Lane.RUNS

    job: JobId
    run: RunId
    submitted_at: Millis
    resume_count: int
    why: Why
    held_until: Millis | None = None


class JobFinished(Fact, frozen=True, kw_only=True, tag=True):
    """The job is over, once and for all (I4)."""

    lane: ClassVar[Lane] = Lane.RUNS

    job: JobId
    state: JobState
    exit_code: int | None = None
    why: Why


class PlacementDeferred(Fact, frozen=True, kw_only=True, tag=True):
    """The job cannot start now. Said when the reason changes, not at each attempt.

    With `DEFER_ESCROW_EXPIRED` the GPUs held for the job are released (P7); `overdue` then names the hosts on which
    runs that were told to end for it still are, with these runs. Nothing starts on such a host until they are over.
    """

    lane: ClassVar[Lane] = Lane.RUNS

    job: JobId
    why: Why
    overdue: Mapping[HostId, tuple[RunId, ...]] = {}


class ReservationMade(Fact, frozen=True, kw_only=True, tag=True):
    """Hosts are kept for a blocked gang, which starts at `latest_start` at the latest (P8)."""

    lane: ClassVar[Lane] = Lane.RUNS

    job: JobId
    placement: Placement
    latest_start: Millis
    waits_for: tuple[RunId, ...]
    why: Why


class ReservationDropped(Fact, frozen=True, kw_only=True, tag=True):
    """The reservation of the job is over: it started, ended, or a host of it was lost."""

    lane: ClassVar[Lane] = Lane.RUNS

    job: JobId
    why: Why
