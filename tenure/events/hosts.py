"""Facts of the health role: what may be used of the cluster."""

from typing import ClassVar

from tenure.domain.host import HostState, RepairStep
from tenure.domain.ids import HostId
from tenure.domain.reasons import Reason, Why
from tenure.domain.units import Millis
from tenure.events.fact import Fact, Lane


class HostStateChanged(Fact, frozen=True, kw_only=True, tag=True):
    """The host is in another state from `at` on.

    `last_seen` is its last sign of life; a silent host's runs are charged up to it (P2). `fatal` and `deadline` belong
    to a drain (P9), and `accepts`: until the deadline it takes runs whose contract ends before it. `automatic`: a
    verdict of the health role, no order of a person. `incident` names what began when the host left service and ends
    with its return.
    """

    lane: ClassVar[Lane] = Lane.HOSTS

    host: HostId
    state: HostState
    previous: HostState | None
    last_seen: Millis
    why: Why
    fatal: bool = False
    deadline: Millis | None = None
    accepts: bool = False
    automatic: bool = False
    incident: str = ""


class CapacityChanged(Fact, frozen=True, kw_only=True, tag=True):
    """The host offers `gpus` available (healthy, not drained) GPUs from `at` on (P1)."""

    lane: ClassVar[Lane] = Lane.HOSTS

    host: HostId
    gpus: int
    gpu_type: str


class DrainCompleted(Fact, frozen=True, kw_only=True, tag=True):
    """The draining host is empty."""

    lane: ClassVar[Lane] = Lane.HOSTS

    host: HostId
    started_at: Millis


class RepairRequested(Fact, frozen=True, kw_only=True, tag=True):
    """The repair plug is to mend an empty host, or to test it before it takes gangs again.

    Answered by a `RepairCompleted` with the same `incident` and `step`. `evidence`: lines for people and recipes.
    """

    lane: ClassVar[Lane] = Lane.HOSTS

    host: HostId
    incident: str
    step: RepairStep
    reason: Reason
    evidence: tuple[str, ...] = ()
