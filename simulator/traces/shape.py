"""How a number of GPUs becomes replicas that fit hosts. The number itself never changes.

As many GPUs as a host has, or fewer, are one replica. Multiples of a host are one replica a host. Any other number is
cut into the largest equal replicas that fit a host and, all together, the cluster: 12 is 2 x 6, 13 is 13 x 1.
"""

from functools import lru_cache


def clip(gpus: int, *, most: int, gpus_per_host: int) -> int:
    """At most `most` GPUs; what was larger than the cluster becomes as large as its whole hosts."""
    if gpus <= most:
        return gpus
    return most - most % gpus_per_host if most >= gpus_per_host else most


@lru_cache(maxsize=100_000)
def shape(gpus: int, *, gpus_per_host: int, most: int = 0, hosts: int = 0) -> tuple[int, int]:
    """Replicas and GPUs of each. `most` GPUs are in the cluster (0: any number).

    `hosts` is on how many the job ran (0: unknown): it keeps that shape where it is even and fits.
    """
    if hosts > 0 and gpus % hosts == 0 and _fits(gpus // hosts, replicas=hosts, gpus_per_host=gpus_per_host, most=most):
        return hosts, gpus // hosts
    if gpus <= gpus_per_host:
        return 1, gpus
    for each in range(gpus_per_host, 1, -1):
        if gpus % each == 0 and _fits(each, replicas=gpus // each, gpus_per_host=gpus_per_host, most=most):
            return gpus // each, each
    return gpus, 1


def _fits(each: int, *, replicas: int, gpus_per_host: int, most: int) -> bool:
    """Whether every replica fits a host and all of them the hosts of the cluster."""
    if each > gpus_per_host:
        return False
    a_host_holds = gpus_per_host // each
    return most == 0 or -(-replicas // a_host_holds) <= max(most // gpus_per_host, 1)
