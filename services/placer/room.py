"""Which GPUs are free: a bit mask a host, and per pool how many hosts have how many, kept up to date as it changes.

A decision tries things out in the room itself and takes them back at its end (`trial`), so it costs what it changes.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from services.placer.core import masks_of
from tenure.domain.ids import HostId
from tenure.domain.job import JobSpec, Placement

PoolName = tuple[str, str]
"""A GPU cluster and a GPU type: a gang lives inside one pool."""


class Pool:
    """Hosts that take runs, in order of name, each with a bit for every GPU that may be used."""

    __slots__ = ("counts", "free", "masks")

    def __init__(self) -> None:
        self.masks: dict[HostId, int] = {}
        self.counts: list[int] = [0]
        """By a number of GPUs: how many hosts have just so many to use."""
        self.free = 0
        """GPUs to use, in all."""

    @classmethod
    def of(cls, masks: dict[HostId, int]) -> "Pool":
        """A pool of these hosts, which are in order of name."""
        pool = cls()
        pool.masks = masks
        numbers = [mask.bit_count() for mask in masks.values()]
        pool.counts = [0] * (max(numbers, default=0) + 1)
        for number in numbers:
            pool.counts[number] += 1
        pool.free = sum(numbers)
        return pool

    def fits(self, gpus: int) -> int:
        """How many replicas of so many GPUs fit."""
        counts = self.counts
        if gpus == 1:
            return self.free
        return sum([counts[free] * (free // gpus) for free in range(gpus, len(counts)) if counts[free]])

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
        return before

    def drop(self, host: HostId) -> None:
        """The host takes no runs any more."""
        mask = self.masks.pop(host, None)
        if mask is not None:
            self.counts[mask.bit_count()] -= 1
            self.free -= mask.bit_count()


class Room:
    """The pools, in order of name."""

    def __init__(self) -> None:
        self.pools: dict[PoolName, Pool] = {}
        self._pool_of: dict[HostId, Pool] = {}
        self._trail: list[tuple[Pool, HostId, int]] | None = None
        """While something is tried out: what to put back."""

    @property
    def free(self) -> int:
        """GPUs to use, in all pools."""
        return sum([pool.free for pool in self.pools.values()])

    def set(self, name: PoolName, host: HostId, mask: int) -> int | None:
        """The host is in this pool and these of its GPUs are to be used. Returns what they were, if it was there."""
        pool = self.pools.get(name)
        if pool is None:
            pool = self.pools[name] = Pool()
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

    def pools_for(self, spec: JobSpec) -> list[tuple[PoolName, Pool]]:
        """The pools whose type the job accepts."""
        return [item for item in self.pools.items() if spec.gpu_type is None or spec.gpu_type == item[0][1]]

    def fits(self, gpu_type: str | None, replicas: int, gpus: int) -> bool:
        """Whether a gang of this shape fits as a whole in one pool."""
        for name, pool in self.pools.items():
            of_type = gpu_type is None or gpu_type == name[1]
            if of_type and pool.free >= replicas * gpus and pool.fits(gpus) >= replicas:
                return True
        return False

    def take(self, placement: Placement) -> None:
        """These GPUs are used or held from here on. What is not here stays not here."""
        self.block(masks_of(placement))

    def block(self, masks: dict[HostId, int]) -> None:
        """The same of GPUs given as bits by host."""
        for host, mask in masks.items():
            pool = self._pool_of.get(host)
            if pool is not None:
                before = pool.masks[host]
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
