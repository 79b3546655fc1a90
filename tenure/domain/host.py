"""Hosts: what they are made of and the states the health role moves them through."""

from dataclasses import dataclass
from enum import StrEnum

from tenure.domain.ids import HostId

CPU = "CPU"
"""The type of hosts that count CPUs instead of GPUs. Whoever asks for any type means GPUs."""


def accepts(wanted: str | None, gpu_type: str) -> bool:
    """Whether a job that asks for `wanted` (None: any type of GPU) may lie on hosts of a type."""
    return gpu_type == wanted if wanted is not None else gpu_type != CPU


class HostState(StrEnum):
    """Whether a host takes new runs, and what becomes of the runs it has."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    """Silent for a while: no new runs; its runs go on and are charged to its last heartbeat."""
    DRAINING = "draining"
    DRAINED = "drained"
    REPAIRING = "repairing"
    """Empty, and the repair plug works on it."""
    PROBATION = "probation"
    """Repaired, and its acceptance test runs: no gang before it is passed."""
    FAILED = "failed"
    """Automation is at its end with it: a person has to look at it and resume it."""
    LOST = "lost"
    """Silent for so long that its runs are given up (`host_lost`)."""


class RepairStep(StrEnum):
    """What the repair plug is asked for."""

    REPAIR = "repair"
    TEST = "test"


EMPTIED = (HostState.DRAINED, HostState.REPAIRING, HostState.PROBATION, HostState.FAILED)
"""A drain has emptied the host; in these it may be silent (a reboot, a machine that is opened)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpec:
    """A machine as it registers: its GPUs (indices 0 .. gpus-1), their type, and its place in the topology.

    `block` is a path, the largest block first: `rack1`, or `row1/rack1` for a block in a block.
    """

    host: HostId
    gpus: int
    gpu_type: str
    block: str
    cluster: str
    address: str = "127.0.0.1"

    @property
    def only_gpus(self) -> int:
        """Its GPUs: none if what it counts are CPUs."""
        return 0 if self.gpu_type == CPU else self.gpus
