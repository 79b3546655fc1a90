"""What the placer folds from the log: hosts, unfinished jobs, their runs, the order, and what is held for whom.

This is what a snapshot holds. `services.placer.state` adds indexes that are rebuilt from it.
"""

import msgspec

from tenure.domain.host import HostSpec, HostState
from tenure.domain.ids import LOG_START, BudgetPath, FactId, HostId, JobId, Position, RunId
from tenure.domain.job import JobSpec, Placement, gpus_by_host
from tenure.domain.policy import Policy
from tenure.domain.reasons import EndCause, Reason, Why
from tenure.domain.units import MINUTE, GpuMillis, Millis
from tenure.events.ranking import Standing
from tenure.events.reports import ReplicaExit

CANCELLED_EARLY_MAX = 10_000
LOOK_AGAIN_AFTER: Millis = 10 * MINUTE
"""Timetables are looked at so often: whether one is to be had, and whether there is a better one."""


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """A registered host. It takes runs while healthy, and before a maintenance window those that end in time."""

    spec: HostSpec
    state: HostState | None = None
    last_seen: Millis = 0
    fatal: bool = False
    deadline: Millis | None = None
    accepts: bool = False

    @property
    def open_until(self) -> Millis | None:
        """It drains for a maintenance window, and takes contracts that end before this instant (P9)."""
        return self.deadline if self.accepts and not self.fatal and self.state is HostState.DRAINING else None


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """A run was told to end: how that will be called, who asked, why, and when."""

    cause_of_end: EndCause
    by: str | None
    why: Why
    at: Millis


class Run(msgspec.Struct, kw_only=True):
    """A run that holds its GPUs. Grows only: started and exited replicas are added, the stop is set once."""

    run: RunId
    job: JobId
    number: int
    placement: Placement
    master_port: int
    assigned_at: Millis
    started_at: Millis | None = None
    protected_until: Millis | None = None
    checkpoint_at: Millis | None = None
    stop: Stop | None = None
    overdue: tuple[HostId, ...] = ()
    """Hosts that it should have left by now: it was told to end, and its grace and the slack are over (P7)."""
    written_off: bool = False
    """Its asker does not count on its GPUs any more and may ask for others: its host is heard, but keeps it."""
    started: dict[int, Millis] = {}
    exited: dict[int, ReplicaExit] = {}

    @property
    def safe_until(self) -> Millis:
        """What it did before this instant is not lost when it is stopped."""
        return self.assigned_at if self.started_at is None else max(self.started_at, self.checkpoint_at or 0)

    @property
    def hosts(self) -> dict[HostId, tuple[int, ...]]:
        """GPU indices held on each host."""
        return gpus_by_host(self.placement)

    def is_at(self, replica: int, host: HostId) -> bool:
        """Whether the replica was given to this host: what another says of it does not count."""
        if not 0 <= replica < len(self.placement):
            return False
        place = self.placement[replica]
        assert place.replica == replica, "placements are in order of their replicas"
        return place.host == host


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """A run has ended and nothing was said of its job yet: all that is needed to say it."""

    run: RunId
    number: int
    cause_of_end: EndCause
    exit_code: int | None
    checkpoint_at: Millis | None
    why: Why
    launched: bool = True
    """Every replica of it ran."""


class Job(msgspec.Struct, kw_only=True):
    """A job that is not over. Queued when it has no `run`."""

    job: JobId
    spec: JobSpec
    submitted_at: Millis
    admitted_by: FactId
    runs: int = 0
    resume_count: int = 0
    run: RunId | None = None
    ending: Ending | None = None
    """Only between two facts that are written together, and after a log that was cut there (a power loss)."""
    cancelled_by: str | None = None
    launches_given_up: int = 0
    """So many of its latest runs were given up by a host before they started, in a row."""
    held_until: Millis | None = None
    """It is not started before, for that reason."""

    @property
    def queued(self) -> bool:
        """It waits to be started."""
        return self.run is None and self.ending is None


class Escrow(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs being freed for a job: nobody else may take them until it starts or the deadline passes (P7)."""

    job: JobId
    placement: Placement
    victims: tuple[RunId, ...]
    deadline: Millis


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts kept for a blocked gang (P8). Others may use them only with contracts that end before `latest_start`."""

    job: JobId
    placement: Placement
    latest_start: Millis


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """The reason last given for a job's waiting, and when."""

    reason: Reason
    at: Millis


class Commitment(msgspec.Struct, frozen=True, kw_only=True):
    """A start that a ranking with an earlier basis does not know of."""

    position: Position
    budget: BudgetPath
    gpu_ms: GpuMillis
    gpu_type: str = ""


class Core(msgspec.Struct, kw_only=True):
    """Everything folded from the log; `State` is this plus indexes."""

    position: Position = LOG_START
    hosts: dict[HostId, Host] = {}
    jobs: dict[JobId, Job] = {}
    runs: dict[RunId, Run] = {}
    escrows: dict[JobId, Escrow] = {}
    reservations: dict[JobId, Reservation] = {}
    order: tuple[JobId, ...] = ()
    standings: tuple[Standing, ...] = ()
    ranked_at: Millis = 0
    """When the order was published ..."""
    new_round: bool = False
    """... and whether that began another round of `LOOK_AGAIN_AFTER`: then timetables are looked at again."""
    commitments: list[Commitment] = []
    said: dict[JobId, Said] = {}
    policy: Policy | None = None
    """The log's; None: it has none, and what the role was started with counts."""
    grace_most_ms: Millis = 0
    """The longest grace that any policy of the log allowed: contracts of then are still there."""
    cancelled_early: dict[JobId, str] = {}
    """Cancels of jobs not admitted yet, oldest first, at most `CANCELLED_EARLY_MAX`."""

    def type_of(self, placement: Placement) -> str:
        """The type of the GPUs of a gang, which lies in one pool."""
        host = self.hosts.get(placement[0].host) if placement else None
        return "" if host is None else host.spec.gpu_type


def all_gpus(count: int) -> int:
    """A mask with a bit for each of `count` GPUs."""
    return (1 << count) - 1


def masks_of(placement: Placement) -> dict[HostId, int]:
    """A bit for each GPU of a placement, by host."""
    return {host: gpu_mask(gpus) for host, gpus in gpus_by_host(placement).items()}


def gpu_mask(gpus: tuple[int, ...]) -> int:
    """The mask of these GPU indices."""
    mask = 0
    for gpu in gpus:
        mask |= 1 << gpu
    return mask
