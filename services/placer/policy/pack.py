"""P6 packing: where a whole gang fits. Best fit for what fits one host; gangs take the emptiest hosts whole.

Small work goes to the fullest host that still holds it, so that whole hosts stay free for gangs; gangs are served from
the other end of the list of hosts.
"""

from services.placer.policy.view import View
from tenure.domain.ids import HostId
from tenure.domain.job import JobSpec, Placement, ReplicaPlace


def pack(view: View, spec: JobSpec) -> Placement | None:
    """A complete placement of the gang on usable GPUs of one pool, or None. Pools in order of name."""
    for _, pool in view.pools_for(spec):
        hosts = choose_hosts(pool, replicas=spec.replicas, gpus=spec.gpus_per_replica)
        if hosts is not None:
            return _place(pool, hosts, gpus=spec.gpus_per_replica)
    return None


def choose_hosts(pool: dict[HostId, int], *, replicas: int, gpus: int) -> list[tuple[HostId, int]] | None:
    """Hosts and how many replicas each takes, or None if the pool cannot take all of them."""
    best: HostId | None = None
    best_free, fits_total, wanted = 0, 0, replicas * gpus
    for host, mask in pool.items():
        free = mask.bit_count()
        if free < gpus:
            continue
        fits_total += free // gpus
        if free // gpus >= replicas and (best is None or free < best_free):
            best, best_free = host, free
            if free == wanted:
                break
    if best is not None:
        return [(best, replicas)]
    if fits_total < replicas:
        return None
    emptiest_first = sorted(
        ((mask.bit_count(), host) for host, mask in pool.items() if mask.bit_count() >= gpus), reverse=True
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


def _place(pool: dict[HostId, int], hosts: list[tuple[HostId, int]], *, gpus: int) -> Placement:
    """Number the replicas and give each the lowest usable GPU indices of its host."""
    places: list[ReplicaPlace] = []
    for host, count in hosts:
        indices = [index for index in range(pool[host].bit_length()) if pool[host] >> index & 1]
        for number in range(count):
            held = tuple(indices[number * gpus : (number + 1) * gpus])
            places.append(ReplicaPlace(replica=len(places), host=host, gpus=held))
    return tuple(places)
