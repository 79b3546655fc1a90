"""Which GPUs are free: a bit mask a host, and per pool and block how many hosts have how many, kept up to date.

A decision tries things out in the room itself and takes them back at its end (`trial`), so it costs what it changes.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from services.placer.blocks import Block, Layout, Layouts, PoolName, change_count, replicas_in
from services.placer.core import masks_of
from tenure.domain.ids import HostId
from tenure.domain.job import HostChoice, Placement, Topology, Wanted
from tenure.domain.rates import milli_of


class Tally:
    """How much is free in a block."""

    __slots__ = ("counts", "free")

    def __init__(self) -> None:
        self.counts: list[int] = [0]
        """By a number of GPUs: how many hosts in it have just so many to use."""
        self.free = 0
        """GPUs to use, in all."""

    def count(self, free: int, change: int) -> None:
        """A host more (or less) with so many to use."""
        change_count(self.counts, free, change)
        self.free += free * change


class Pool:
    """Hosts that take runs, in order of name, each with a bit for every GPU that may be used."""

    __slots__ = ("_tallied", "_tallies", "counts", "free", "layout", "masks", "not_full")

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        """How the hosts, and those that take no runs now, lie in blocks."""
        self._tallies: list[Tally] | None = None
        """By number of the block; made when somebody asks for one, kept up to date from then on ..."""
        self._tallied = 0
        """... for as long as no host has moved since."""
        self.masks: dict[HostId, int] = {}
        self.not_full: dict[HostId, None] = {}
        """Those with a GPU to use, in no order to decide by."""
        self.counts: list[int] = [0]
        """By a number of GPUs: how many hosts have just so many to use."""
        self.free = 0
        """GPUs to use, in all."""

    @classmethod
    def of(cls, masks: dict[HostId, int], layout: Layout) -> "Pool":
        """A pool of these hosts, which are in order of name."""
        pool = cls(layout)
        pool.masks = masks
        pool.not_full = {host: None for host, mask in masks.items() if mask}
        numbers = [mask.bit_count() for mask in masks.values()]
        pool.counts = [0] * (max(numbers, default=0) + 1)
        for number in numbers:
            pool.counts[number] += 1
        pool.free = sum(numbers)
        return pool

    def fits(self, gpus: int) -> int:
        """How many replicas of so many GPUs fit."""
        counts = self.counts  # as `replicas_in`, without the call
        if gpus == 1:
            return self.free
        return sum([counts[free] * (free // gpus) for free in range(gpus, len(counts)) if counts[free]])

    def fits_together(self, topology: Topology, replicas: int, gpus: int) -> bool:
        """Whether all replicas fit, and where they must lie in one block, in one block."""
        if self.free < replicas * gpus or self.fits(gpus) < replicas:
            return False
        return not must_be_one_block(topology, replicas) or self._block_fits(replicas, gpus)

    def _block_fits(self, replicas: int, gpus: int) -> bool:
        return any(replicas_in(self.tally(block).counts, gpus) >= replicas for block in self.one_block(replicas, gpus))

    def one_block(self, replicas: int, gpus: int) -> list[Block]:
        """The blocks in one of which a gang that must not be split has to fit, in order of path."""
        return self.layout.smallest(replicas, gpus)

    def sites(self, topology: Topology, replicas: int, gpus: int) -> list[Block]:
        """The blocks, or the whole pool, in one of which a gang has to fit; none of them lies in another."""
        return self.one_block(replicas, gpus) if must_be_one_block(topology, replicas) else [self.layout.root]

    def hosts_in(self, block: Block) -> Iterable[HostId]:
        """The hosts of the pool that lie in a block."""
        if block is self.layout.root:
            return self.masks
        return [host for host in block.every_host() if host in self.masks]

    def within(self, block: Block) -> "Pool":
        """The part of the pool that lies in a block."""
        if block is self.layout.root:
            return self
        return Pool.of({host: self.masks[host] for host in sorted(self.hosts_in(block))}, self.layout)

    def tally(self, block: Block) -> "Tally | Pool":
        """What is free in a block: `counts` and `free`."""
        if block.number == 0:
            return self
        tallies = self._tallies
        if tallies is None or self._tallied != self.layout.moved:
            tallies = self._tallies = []
            self._tallied = self.layout.moved
            for host, mask in self.masks.items():
                self._recount(host, None, mask.bit_count())
        return self._tally(tallies, block)

    def _tally(self, tallies: list[Tally], block: Block) -> Tally:
        if block.number >= len(tallies):
            tallies.extend([Tally() for _ in self.layout.all[len(tallies) :]])
        return tallies[block.number]

    def _recount(self, host: HostId, before: int | None, after: int | None) -> None:
        """The host had so many GPUs to use and has so many now; None: it is not there."""
        if self._tallies is None or before == after:
            return
        if self._tallied != self.layout.moved:
            self._tallies = None  # count all when somebody asks again
            return
        for block in self.layout.above[host]:
            tally = self._tally(self._tallies, block)
            if before is not None:
                tally.count(before, -1)
            if after is not None:
                tally.count(after, +1)

    @property
    def largest_hole(self) -> int:
        """Most GPUs to use on one host."""
        return next((free for free in range(len(self.counts) - 1, 0, -1) if self.counts[free]), 0)

    def set(self, host: HostId, mask: int) -> int | None:
        """These GPUs of the host are to be used from now on. Returns what they were; None if it was not here."""
        before = self.masks.get(host)
        count = mask.bit_count()
        while count >= len(self.counts):
            self.counts.append(0)
        self.counts[count] += 1
        self.free += count
        if before is None:
            late = bool(self.masks) and host < next(reversed(self.masks))
            self.masks[host] = mask
            if late:
                self.masks = dict(sorted(self.masks.items()))
        else:
            self.masks[host] = mask
            self.counts[before.bit_count()] -= 1
            self.free -= before.bit_count()
        if mask:
            self.not_full[host] = None
        elif before:
            del self.not_full[host]
        if self._tallies is not None:
            self._recount(host, None if before is None else before.bit_count(), count)
        return before

    def drop(self, host: HostId) -> None:
        """The host takes no runs any more."""
        mask = self.masks.pop(host, None)
        if mask is not None:
            self.not_full.pop(host, None)
            self.counts[mask.bit_count()] -= 1
            self.free -= mask.bit_count()
            self._recount(host, mask.bit_count(), None)


def must_be_one_block(topology: Topology, replicas: int) -> bool:
    """Whether the gang has to be kept together; one replica always is."""
    return topology is Topology.ONE_BLOCK and replicas > 1


class Asked(Protocol):
    """What decides which hosts a job may use: it, or its class."""

    @property
    def wanted(self) -> Wanted:
        """The clusters and the types of GPUs that it accepts."""

    @property
    def choice(self) -> HostChoice | None:
        """The hosts that it names, if it does."""


class Room:
    """The pools, in order of name."""

    def __init__(self, layouts: Layouts) -> None:
        self._layouts = layouts
        self.pools: dict[PoolName, Pool] = {}
        self._pool_of: dict[HostId, Pool] = {}
        self._trail: list[tuple[Pool, HostId, int]] | None = None
        """While something is tried out: what to put back."""
        self.rates_milli: Mapping[str, int] = {}
        """The exchange rates by which pools are looked at: the cheaper first, ties by name."""

    def every_host(self) -> Iterator[tuple[PoolName, HostId, int]]:
        """Each host with its pool and a bit for each of its GPUs to use, pool by pool in order of name."""
        for name, pool in self.pools.items():
            for host, mask in pool.masks.items():
                yield name, host, mask

    @property
    def free(self) -> int:
        """GPUs to use, in all pools."""
        return sum([pool.free for pool in self.pools.values()])

    def set(self, name: PoolName, host: HostId, mask: int) -> int | None:
        """The host is in this pool and these of its GPUs are to be used. Returns what they were, if it was there."""
        pool = self.pools.get(name)
        if pool is None:
            pool = self.pools[name] = Pool(self._layouts.of_pool[name])
            self.pools = dict(sorted(self.pools.items()))
        known = self._pool_of.get(host)
        if known is not None and known is not pool:
            known.drop(host)
        self._pool_of[host] = pool
        return pool.set(host, mask)

    def drop(self, host: HostId) -> None:
        """The host takes no runs any more."""
        pool = self._pool_of.pop(host, None)
        if pool is not None:
            pool.drop(host)
            self.pools = {name: kept for name, kept in self.pools.items() if kept.masks}

    def pools_for(self, asked: "Asked") -> list[tuple[PoolName, Pool]]:
        """The pools that the job accepts, the cheaper first; of one that names hosts, what it may use of them."""
        wanted = asked.wanted
        pools = [item for item in self.pools.items() if wanted.accepts(item[0])]
        if self.rates_milli:
            pools.sort(key=lambda item: milli_of(self.rates_milli, item[0][1]))
        choice = asked.choice
        return pools if choice is None else list(self._chosen(pools, choice))

    def _chosen(self, pools: Iterable[tuple[PoolName, Pool]], choice: HostChoice) -> Iterator[tuple[PoolName, Pool]]:
        for name, pool in pools:
            masks = {host: pool.masks[host] for host in choice.among(pool.masks)}
            if masks:
                yield name, Pool.of(masks, self._layouts.of_choice(name, choice))

    def fits(
        self, wanted: Wanted, replicas: int, gpus: int, topology: Topology, choice: HostChoice | None = None
    ) -> bool:
        """Whether a gang of this shape fits as a whole in one pool, and in one block of it if it has to."""
        all_gpus = replicas * gpus
        pools: Iterable[tuple[PoolName, Pool]] = self.pools.items()
        for name, pool in pools if choice is None else self._chosen(pools, choice):
            if pool.free >= all_gpus and wanted.accepts(name) and pool.fits_together(topology, replicas, gpus):
                return True
        return False

    def take(self, placement: Placement) -> None:
        """These GPUs are used or held from here on. What is not here stays not here."""
        self.block(masks_of(placement))

    def block(self, masks: Mapping[HostId, int]) -> None:
        """The same of GPUs given as bits by host."""
        for host, mask in masks.items():
            pool = self._pool_of.get(host)
            before = pool.masks[host] if pool is not None else 0
            if pool is not None and before & mask:
                pool.set(host, before & ~mask)
                if self._trail is not None:
                    self._trail.append((pool, host, before))

    @contextmanager
    def trial(self) -> Iterator[None]:
        """All that is taken inside is put back at the end. Trials may be inside each other."""
        outer, self._trail = self._trail, []
        try:
            yield
        finally:
            for pool, host, before in reversed(self._trail):
                pool.set(host, before)
            self._trail = outer
