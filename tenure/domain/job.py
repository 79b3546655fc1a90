"""What a job asks for: its shape, its contract, and what is to be run. Frozen values; admission checks them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from tenure.domain.host import accepts
from tenure.domain.ids import BudgetPath, HostId, UserName
from tenure.domain.units import HOUR, SECOND, GpuMillis, Millis

ANY = "any"
"""As people say that a job may lie in any cluster, or on any type of GPU. No cluster and no type has this name."""
DEFAULT_GRACE: Millis = 30 * SECOND
MIN_RUNTIME_CAP: Millis = 8 * HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What one replica runs: the command (argv, no shell), its working directory and the user's own environment."""

    command: tuple[str, ...]
    working_directory: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


class Topology(StrEnum):
    """How close together the replicas of a gang are to be."""

    ANY = "any"
    PREFER_BLOCK = "prefer-block"
    """In as few blocks as can be had; never a reason to wait."""
    ONE_BLOCK = "one-block"
    """In one of the smallest blocks that could hold the gang if they were empty, or not at all."""

    __hash__ = str.__hash__
    """Classes of jobs are keys with a topology in them: an enumeration's own hash costs a call each time."""


class Wanted(NamedTuple):
    """The pools a job may lie in: one cluster's or any's, of one type or of any type of GPU."""

    cluster: str | None
    gpu_type: str | None

    def accepts(self, pool: tuple[str, str]) -> bool:
        """Whether it may lie in this pool (cluster and type)."""
        cluster, gpu_type = pool
        return (self.cluster is None or self.cluster == cluster) and accepts(self.gpu_type, gpu_type)


class HostChoice(NamedTuple):
    """Hosts by name: the only ones that a job may use (none named: all), and ones that it may not."""

    only: tuple[HostId, ...]
    excluded: tuple[HostId, ...]

    def among(self, hosts: Iterable[HostId]) -> list[HostId]:
        """Those of these hosts that may be used, in the order they are given."""
        only, excluded = frozenset(self.only), frozenset(self.excluded)
        return [host for host in hosts if host not in excluded and (not only or host in only)]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A submission as the user signed it. `min_runtime_ms` and `resumable` are the contract."""

    budget: BudgetPath
    user: UserName
    gpus_per_replica: int
    launch: Launch
    replicas: int = 1
    min_runtime_ms: Millis = 0
    resumable: bool = False
    priority: int = 0
    name: str = ""
    gpu_type: str | None = None
    topology: Topology = Topology.ANY
    grace_ms: Millis = DEFAULT_GRACE
    hosts: tuple[HostId, ...] = ()
    """The only hosts it may use; none named: any."""
    hosts_excluded: tuple[HostId, ...] = ()
    """Hosts it may not use."""
    cluster: str | None = None
    """The only cluster of hosts it may use; None: any. (The `cluster` of a fact is the name of its log.)"""

    @property
    def wanted(self) -> Wanted:
        """The pools it may lie in."""
        return Wanted(self.cluster, self.gpu_type)

    @property
    def choice(self) -> HostChoice | None:
        """Where it may run, if it names hosts; None: anywhere."""
        return HostChoice(self.hosts, self.hosts_excluded) if self.hosts or self.hosts_excluded else None

    @property
    def gpus(self) -> int:
        """GPUs of the whole gang."""
        return self.replicas * self.gpus_per_replica

    @property
    def allocated(self) -> bool:
        """Charged to its budget and protected; otherwise unallocated, free and never protected."""
        return self.min_runtime_ms > 0

    @property
    def commitment_gpu_ms(self) -> GpuMillis:
        """GPU-time that starting this job promises: gpus x min_runtime."""
        return self.gpus * self.min_runtime_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPlace:
    """Where one replica of a run lives: its host and the GPU indices it holds there."""

    replica: int
    host: HostId
    gpus: tuple[int, ...]


Placement = tuple[ReplicaPlace, ...]


def only_host(placement: Placement) -> HostId | None:
    """The host that all replicas are on; None if they are on several."""
    first = placement[0].host
    return first if all(place.host == first for place in placement) else None


def gpus_by_host(placement: Placement) -> dict[HostId, tuple[int, ...]]:
    """The GPU indices a placement holds on each of its hosts, hosts in order of their first replica."""
    held: dict[HostId, tuple[int, ...]] = {}
    for place in placement:
        held[place.host] = held.get(place.host, ()) + place.gpus
    return held
