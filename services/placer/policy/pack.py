"""P6 packing: where a whole gang fits. Best fit for what fits one host; gangs take the emptiest hosts whole.

Small work goes to the fullest host that still holds it, so that whole hosts stay free for gangs; gangs are served from
the other end of the list of hosts.
"""

from services.placer.room import Pool, Room
from tenure.domain.ids import HostId
from tenure.domain.job import JobSpec, Placement, ReplicaPlace


def pack(room: Room, spec: JobSpec) -> Placement | None:
    """A complete placement of the gang on usable GPUs of one pool, or None. Pools in order of name."""
    for _, pool in room.pools_for(spec):
        placement = pack_into(pool, spec)
        if placement is not None:
            return placement
    return None


def pack_into(pool: Pool, spec: JobSpec) -> Placement | None:
    """A complete placement of the gang in this pool, or None."""
    hosts = choose_hosts(pool, replicas=spec.replicas, gpus=spec.gpus_per_replica)
    return None if hosts is None else _place(pool.masks, hosts, gpus=spec.gpus_per_replica)


def choose_hosts(pool: Pool, *, replicas: int, gpus: int) -> list[tuple[HostId, int]] | None:
    """Hosts and how many replicas each takes, or None if the pool cannot take all of them."""
    for free in range(replicas * gpus, len(pool.counts)):
        if pool.counts[free]:  # the fullest host that holds all of it, the first of them by name
            return [(next(host for host, mask in pool.masks.items() if mask.bit_count() == free), replicas)]
    if pool.fits(gpus) < replicas:
        return None
    emptiest_first = sorted(
        [(mask.bit_count(), host) for host, mask in pool.masks.items() if mask.bit_count() >= gpus], reverse=True
    )
    chosen: list[tuple[HostId, int]] = []
    left = replicas
    for free, host in emptiest_first:
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
