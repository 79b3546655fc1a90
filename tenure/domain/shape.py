"""The shape of the empty cluster: how many hosts of each kind there are. What could ever fit is asked of it.

A gang stays inside one cluster and one GPU type, so a *pool* (all hosts of one cluster and type) is what it must fit.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from tenure.domain.host import HostSpec

GPUS_PER_HOST_MAX = 64
HOSTS_MAX = 100_000


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class HostKind:
    """What makes two hosts alike for a gang: cluster, GPU type, number of GPUs, and the block that they are in."""

    cluster: str
    gpu_type: str
    gpus: int
    block: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCount:
    """How many hosts of a kind have registered, whatever state they are in."""

    kind: HostKind
    hosts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """All hosts of one GPU type in one cluster, by kind."""

    cluster: str
    gpu_type: str
    counts: tuple[HostCount, ...]

    @property
    def gpus_of_largest(self) -> int:
        """GPUs of the pool's largest host."""
        return max(count.kind.gpus for count in self.counts)

    def replicas(self, gpus_per_replica: int) -> int:
        """How many replicas of that many GPUs the empty pool holds; none spans two hosts."""
        return sum(count.hosts * (count.kind.gpus // gpus_per_replica) for count in self.counts)

    @property
    def hosts_by_size(self) -> Mapping[int, int]:
        """By a number of GPUs how many hosts have just so many, in order."""
        sizes: Counter[int] = Counter()
        for count in self.counts:
            sizes[count.kind.gpus] += count.hosts
        return dict(sorted(sizes.items()))

    def largest_block(self, gpus_per_replica: int) -> "Pool":
        """The part of the pool in the block that holds most such replicas when empty; ties by name.

        A block of blocks holds what those in it hold: it is one of the topmost.
        """
        blocks: dict[str, list[HostCount]] = {}
        for count in self.counts:
            blocks.setdefault(count.kind.block.partition("/")[0], []).append(count)
        parts = [
            Pool(cluster=self.cluster, gpu_type=self.gpu_type, counts=tuple(blocks[block])) for block in sorted(blocks)
        ]
        return max(parts, key=lambda part: part.replicas(gpus_per_replica))


@dataclass(frozen=True, kw_only=True)
class ClusterShape:
    """Hosts counted by kind, kinds in order; none with a count of zero."""

    counts: tuple[HostCount, ...] = ()

    @cached_property
    def pools(self) -> tuple[Pool, ...]:
        """The pools in order of cluster and type."""
        found: dict[tuple[str, str], list[HostCount]] = {}
        for count in self.counts:
            found.setdefault((count.kind.cluster, count.kind.gpu_type), []).append(count)
        return tuple(
            Pool(cluster=cluster, gpu_type=gpu_type, counts=tuple(counts))
            for (cluster, gpu_type), counts in found.items()
        )

    @cached_property
    def gpu_types(self) -> tuple[str, ...]:
        """The known GPU types in order."""
        return tuple(sorted({count.kind.gpu_type for count in self.counts}))

    @cached_property
    def clusters(self) -> tuple[str, ...]:
        """The known clusters in order."""
        return tuple(sorted({count.kind.cluster for count in self.counts}))

    def changed(self, *, gone: Iterable[HostKind], come: Iterable[HostKind]) -> "ClusterShape":
        """The shape without hosts of these kinds and with hosts of those."""
        gone, come = list(gone), list(come)
        if gone == come:
            return self
        hosts = Counter({count.kind: count.hosts for count in self.counts})
        hosts.update(come)
        hosts.subtract(gone)
        return _shape(hosts)


def kind_of(host: HostSpec) -> HostKind:
    """The kind of a host."""
    return HostKind(cluster=host.cluster, gpu_type=host.gpu_type, gpus=host.gpus, block=host.block)


def shape_of(hosts: Iterable[HostSpec]) -> ClusterShape:
    """The shape of these hosts, each given once."""
    return _shape(Counter(kind_of(host) for host in hosts))


def _shape(hosts: Mapping[HostKind, int]) -> ClusterShape:
    return ClusterShape(counts=tuple(HostCount(kind=kind, hosts=hosts[kind]) for kind in sorted(hosts) if hosts[kind]))
