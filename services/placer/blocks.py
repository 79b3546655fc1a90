"""How the hosts of a pool lie in blocks, and blocks in blocks: what a gang that wants to stay together chooses from.

Blocks are paths, the largest first: a host of `row1/rack2` lies in the block `row1/rack2` and in the block of blocks
`row1`. Every registered host is counted here, whatever its state; what is free of them is counted by `Pool`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tenure.domain.host import HostSpec
from tenure.domain.ids import HostId
from tenure.domain.job import HostChoice, Wanted

PoolName = tuple[str, str]
"""A GPU cluster and a GPU type: a gang lives inside one pool."""

CHOICES_MAX = 256
"""Layouts of hosts by name that are remembered."""


def replicas_in(counts: Sequence[int], gpus: int) -> int:
    """How many replicas of so many GPUs fit hosts of which `counts[n]` have n GPUs."""
    return sum([counts[n] * (n // gpus) for n in range(gpus, len(counts)) if counts[n]])


def change_count(counts: list[int], number: int, change: int) -> None:
    """So many hosts more (or fewer) have this number of GPUs."""
    while number >= len(counts):
        counts.append(0)
    counts[number] += change


class Block:
    """Hosts and blocks that lie together. The one with an empty path is the whole pool."""

    __slots__ = ("blocks", "height", "hosts", "number", "path", "sizes")

    def __init__(self, path: str, number: int) -> None:
        self.path = path
        self.number = number
        """Its place in `Layout.all`."""
        self.blocks: dict[str, Block] = {}
        """Those directly in it, in order of path."""
        self.hosts: dict[HostId, int] = {}
        """Hosts that are in no smaller block of it, in order of name, with their GPUs."""
        self.sizes: list[int] = [0]
        """By a number of GPUs: how many hosts in it, at any depth, have just so many."""
        self.height = 0
        """How many levels of blocks are in it."""

    def every_host(self) -> Iterator[HostId]:
        """The hosts in it, at any depth."""
        yield from self.hosts
        for block in self.blocks.values():
            yield from block.every_host()


class Layout:
    """The blocks of one pool."""

    def __init__(self) -> None:
        self.root = Block("", 0)
        self.all: list[Block] = [self.root]
        """Every block in the order in which they came; which is no order to decide by."""
        self.above: dict[HostId, tuple[Block, ...]] = {}
        """The blocks that a host is in, from the largest but the whole pool to the smallest."""
        self.moved = 0
        """Grows when a host that was here has gone or changed; one that comes first changes nothing that is known."""
        self._smallest: dict[tuple[int, int], list[Block]] = {}

    def add(self, spec: HostSpec) -> None:
        """A host that was not here has registered."""
        chain, path, block = [], "", self.root
        for name in spec.block.split("/"):
            path = f"{path}/{name}" if path else name
            inner = block.blocks.get(path)
            if inner is None:
                inner = block.blocks[path] = Block(path, len(self.all))
                self.all.append(inner)
                block.blocks = dict(sorted(block.blocks.items()))
            block = inner
            chain.append(block)
        late = bool(block.hosts) and spec.host < next(reversed(block.hosts))
        block.hosts[spec.host] = spec.gpus
        if late:
            block.hosts = dict(sorted(block.hosts.items()))
        self.above[spec.host] = tuple(chain)
        for height, outer in enumerate([*reversed(chain), self.root]):
            outer.height = max(outer.height, height)
        self._count(spec.host, spec.gpus, +1)

    def remove(self, host: HostId) -> None:
        """The host has registered as something else."""
        self._count(host, self.above[host][-1].hosts.pop(host), -1)
        del self.above[host]
        self.moved += 1

    def smallest(self, replicas: int, gpus: int) -> list[Block]:
        """The blocks that hold so many replicas when all is empty, while no block in them does, in order of path.

        Never the whole pool. None of them lies in another.
        """
        known = self._smallest.get((replicas, gpus))
        if known is None:
            found = self._able(self.root, replicas, gpus)
            known = self._smallest[replicas, gpus] = [block for block in found if block is not self.root]
        return known

    def _able(self, block: Block, replicas: int, gpus: int) -> list[Block]:
        if replicas_in(block.sizes, gpus) < replicas:
            return []
        inner = [able for part in block.blocks.values() for able in self._able(part, replicas, gpus)]
        return inner or [block]

    def _count(self, host: HostId, gpus: int, change: int) -> None:
        for block in (self.root, *self.above[host]):
            change_count(block.sizes, gpus, change)
        self._smallest.clear()


class Layouts:
    """The layouts of all pools."""

    def __init__(self, hosts: Iterable[HostSpec] = ()) -> None:
        self.of_pool: dict[PoolName, Layout] = {}
        self._specs: dict[HostId, HostSpec] = {}
        self._layout_of: dict[HostId, Layout] = {}
        self._chosen: dict[tuple[PoolName, HostChoice], Layout] = {}
        """Layouts of hosts by name, made when they are asked for and until a host registers."""
        self._largest: dict[PoolName, int] = {}
        """GPUs of each pool's largest host, counted when it is asked for and until a host registers."""
        for spec in hosts:
            self.register(spec)

    def register(self, spec: HostSpec) -> None:
        """The host is what it says from now on."""
        known = self._layout_of.get(spec.host)
        if known is not None:
            known.remove(spec.host)
        layout = self.of_pool.setdefault((spec.cluster, spec.gpu_type), Layout())
        layout.add(spec)
        self._layout_of[spec.host] = layout
        self._specs[spec.host] = spec
        self._chosen.clear()
        self._largest.clear()

    @property
    def largest_hosts(self) -> Mapping[PoolName, int]:
        """By pool the GPUs of its largest host."""
        if not self._largest:
            for spec in self._specs.values():
                pool = spec.cluster, spec.gpu_type
                self._largest[pool] = max(self._largest.get(pool, 0), spec.gpus)
        return self._largest

    def largest_host(self, wanted: Wanted) -> int:
        """GPUs of the largest host where a job may lie: who needs more is a gang that needs several."""
        return max((gpus for pool, gpus in self.largest_hosts.items() if wanted.accepts(pool)), default=0)

    def of_choice(self, name: PoolName, choice: HostChoice) -> Layout:
        """How those hosts of a pool lie in blocks that a job may use which names hosts."""
        layout = self._chosen.get((name, choice))
        if layout is None:
            if len(self._chosen) >= CHOICES_MAX:
                self._chosen.clear()
            layout = self._chosen[name, choice] = Layout()
            for host in choice.among(self.of_pool[name].above):
                layout.add(self._specs[host])
        return layout
