"""P6 packing: where a whole gang fits. Best fit for what fits one host; gangs take the emptiest hosts whole.

Small work goes to the fullest host that still holds it, so that whole hosts stay free for gangs; gangs are served from
the other end of the list of hosts. Who cares for blocks (`prefer-block`, `one-block`) takes the emptiest hosts of the
block that it fits best, or if none holds it, of as few blocks as are enough, which `one-block` must not; and what fits
one host goes to the fullest block that has a host as full, so that whole blocks stay free.
"""

from collections.abc import Sequence

from services.placer.blocks import Block, replicas_in
from services.placer.room import Pool, Room
from tenure.domain.ids import HostId
from tenure.domain.job import JobSpec, Placement, ReplicaPlace, Topology

Share = tuple[HostId, int]
"""A host, and how many replicas it takes."""


def pack(room: Room, spec: JobSpec) -> Placement | None:
    """A complete placement of the gang on usable GPUs of one pool, or None. Pools in order of name."""
    for _, pool in room.pools_for(spec):
        placement = pack_into(pool, spec)
        if placement is not None:
            return placement
    return None


def pack_into(pool: Pool, spec: JobSpec) -> Placement | None:
    """A complete placement of the gang in this pool, or None."""
    hosts = choose_hosts(pool, replicas=spec.replicas, gpus=spec.gpus_per_replica, topology=spec.topology)
    return None if hosts is None else _place(pool.masks, hosts, gpus=spec.gpus_per_replica)


def choose_hosts(pool: Pool, *, replicas: int, gpus: int, topology: Topology = Topology.ANY) -> list[Share] | None:
    """Hosts and how many replicas each takes, or None if the pool cannot take all of them so."""
    anywhere = topology is Topology.ANY
    for free in range(replicas * gpus, len(pool.counts)):
        if pool.counts[free]:  # the fullest host that holds all of it
            return [(_first_with(pool, free) if anywhere else _in_fullest_block(pool, free), replicas)]
    if not pool.fits_together(topology, replicas, gpus):
        return None
    return _emptiest(pool.masks, replicas, gpus) if anywhere else _in_few_blocks(pool, replicas, gpus, topology)


def _first_with(pool: Pool, free: int) -> HostId:
    """The first host by name with just so many GPUs to use."""
    return next(host for host, mask in pool.masks.items() if mask.bit_count() == free)


def _in_few_blocks(pool: Pool, replicas: int, gpus: int, topology: Topology) -> list[Share]:
    """Hosts of the block that the gang fits best, or of as few blocks as are enough, block by block."""
    fitting = [block for site in pool.sites(topology, replicas, gpus) for block in _fitting(pool, site, replicas, gpus)]
    best = min(fitting, key=lambda block: _order(pool, block, replicas, gpus))
    shares: list[Share] = []
    _gather(pool, best, replicas, gpus, shares)
    return shares


def _in_fullest_block(pool: Pool, free: int) -> HostId:
    """A host with just so many GPUs to use: one of the fullest block, then the first by name."""
    block, masks = pool.layout.root, pool.masks
    while True:
        if any(masks[host].bit_count() == free for host in block.hosts if host in masks):
            return next(host for host in block.hosts if host in masks and masks[host].bit_count() == free)
        inside = [inner for inner in block.blocks.values() if _count(pool.tally(inner).counts, free)]
        block = min(inside, key=lambda inner: (pool.tally(inner).free, inner.path))


def _count(counts: Sequence[int], free: int) -> int:
    return counts[free] if free < len(counts) else 0


def _fitting(pool: Pool, block: Block, replicas: int, gpus: int) -> list[Block]:
    """The smallest blocks at or below this one that hold the gang now."""
    if replicas_in(pool.tally(block).counts, gpus) < replicas:
        return []
    return [found for inner in block.blocks.values() for found in _fitting(pool, inner, replicas, gpus)] or [block]


def _order(pool: Pool, block: Block, replicas: int, gpus: int) -> tuple[int, int, int, str]:
    """Which block is taken: the lowest level, then where the fewest hosts do, then where the least is left over."""
    counts = pool.tally(block).counts
    hosts, left = 0, replicas
    for free in range(len(counts) - 1, gpus - 1, -1):
        if left > 0 and counts[free]:
            taken = min(counts[free], -(-left // (free // gpus)))
            hosts += taken
            left -= taken * (free // gpus)
    return block.height, hosts, replicas_in(counts, gpus), block.path


def _gather(pool: Pool, block: Block, replicas: int, gpus: int, shares: list[Share]) -> None:
    """Give out replicas to hosts of a block that holds them: of few blocks in it, the roomiest whole, the last by best
    fit."""
    left = replicas
    room = {inner: replicas_in(pool.tally(inner).counts, gpus) for inner in block.blocks.values()}
    chosen: dict[Block, int] = {}
    while room and left:
        enough = [inner for inner in room if room[inner] >= left]
        if enough:
            inner = min(enough, key=lambda inner: _order(pool, inner, left, gpus))
        else:
            inner = min(room, key=lambda inner: (-room[inner], inner.path))
        chosen[inner] = min(left, room.pop(inner))
        left -= chosen[inner]
    for inner in block.blocks.values():
        if chosen.get(inner):
            _gather(pool, inner, chosen[inner], gpus, shares)
    if left:
        here = {host: pool.masks[host] for host in block.hosts if host in pool.masks}
        shares += _emptiest(here, left, gpus)


def _emptiest(masks: dict[HostId, int], replicas: int, gpus: int) -> list[Share]:
    """So many replicas on the emptiest of these hosts, which are enough, in order of name."""
    able = [(mask.bit_count(), host) for host, mask in masks.items() if mask.bit_count() >= gpus]
    left = replicas
    chosen: list[Share] = []
    for free, host in sorted(able, reverse=True):
        count = min(left, free // gpus)
        chosen.append((host, count))
        left -= count
        if left == 0:
            break
    return sorted(chosen)


def _place(masks: dict[HostId, int], hosts: list[tuple[HostId, int]], *, gpus: int) -> Placement:
    """Number the replicas and give each the lowest usable GPU indices of its host."""
    places: list[ReplicaPlace] = []
    for host, count in hosts:
        mask = masks[host]
        indices = [index for index in range(mask.bit_length()) if mask >> index & 1]
        for number in range(count):
            held = tuple(indices[number * gpus : (number + 1) * gpus])
            places.append(ReplicaPlace(replica=len(places), host=host, gpus=held))
    return tuple(places)
