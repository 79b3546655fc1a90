"""The kinds of job of a constructed month: their sizes, lengths and contracts, and their part of the GPU-time."""

import math
from random import Random

import msgspec

MINUTE_S, HOUR_S, DAY_S = 60, 3_600, 86_400
MEDIUM_HOSTS = (2, 4, 8)
LARGE_PARTS, HUGE_PART = (1 / 8, 3 / 16, 1 / 4), 3 / 8
"""Of the cluster's hosts."""
LONGEST_S = 7 * DAY_S


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of one kind, their runtimes lognormal around `median_s`. `gpu_time` 0: people start them by hand."""

    name: str
    shapes: tuple[tuple[int, int], ...]
    """Replicas and GPUs of each, all equally likely."""
    gpu_time: float
    """Their part of the GPU-time of the allocated jobs, or of the unallocated ones."""
    median_s: int
    spread: float
    min_runtimes_s: tuple[int, ...]
    resumable: float
    """The part of these jobs that can resume."""
    burst: int = 1
    """At most so many at once, alike but for their length."""

    @property
    def allocated(self) -> bool:
        """Whether these jobs ask for protection."""
        return self.min_runtimes_s != (0,)

    @property
    def mean_gpu_s(self) -> float:
        """GPU-seconds of one submission, all of its burst, on average."""
        gpus = sum(replicas * each for replicas, each in self.shapes) / len(self.shapes)
        return gpus * self.median_s * math.exp(self.spread**2 / 2) * (1 + self.burst) / 2

    @property
    def smallest(self) -> int:
        """GPUs of the smallest of these jobs."""
        return min(replicas * each for replicas, each in self.shapes)

    def runtime_s(self, random: Random) -> int:
        """How long one of them runs: a tenth to twenty times the median, at most a week."""
        drawn = self.median_s * math.exp(random.gauss(0.0, self.spread))
        return round(min(max(drawn, self.median_s / 10), self.median_s * 20, LONGEST_S))


def kinds(*, hosts: int, gpus_per_host: int, largest: float) -> tuple[Kind, ...]:
    """The kinds that fit `hosts` equal hosts, the smallest first.

    `largest` is the part of the hosts that the largest gangs ask for. What a small cluster cannot hold is left out, and
    its GPU-time falls to the others.
    """
    one_host = _in_one_host(gpus_per_host)
    medium = [count for count in MEDIUM_HOSTS if count <= hosts / 8]
    large = sorted({round(part * hosts) for part in LARGE_PARTS if part <= largest} - {0, 1})
    huge = sorted({round(part * hosts) for part in (HUGE_PART, largest) if part <= largest} - {0, 1, *large, *medium})
    all_kinds = (
        Kind(
            name="debug", shapes=one_host, gpu_time=0.0, median_s=9 * MINUTE_S, spread=1.0,
            min_runtimes_s=(5 * MINUTE_S, 10 * MINUTE_S, 15 * MINUTE_S), resumable=0.0,
        ),
        Kind(
            name="interactive", shapes=one_host[:2], gpu_time=0.0, median_s=9 * HOUR_S, spread=0.5,
            min_runtimes_s=(8 * HOUR_S,), resumable=0.0,
        ),
        Kind(
            name="sweep", shapes=one_host, gpu_time=1.0, median_s=5 * HOUR_S, spread=0.9,
            min_runtimes_s=(0,), resumable=1.0, burst=24,
        ),
        Kind(
            name="small", shapes=one_host, gpu_time=0.25, median_s=4 * HOUR_S, spread=1.0,
            min_runtimes_s=(30 * MINUTE_S, HOUR_S, 2 * HOUR_S, 4 * HOUR_S), resumable=0.8,
        ),
        Kind(
            name="medium", shapes=_on_hosts(medium, gpus_per_host), gpu_time=0.3,
            median_s=9 * HOUR_S, spread=1.0,
            min_runtimes_s=(HOUR_S, 2 * HOUR_S, 4 * HOUR_S, 8 * HOUR_S), resumable=0.95,
        ),
        Kind(
            name="large", shapes=_on_hosts(large, gpus_per_host), gpu_time=0.3,
            median_s=20 * HOUR_S, spread=0.7,
            min_runtimes_s=(4 * HOUR_S, 6 * HOUR_S, 8 * HOUR_S), resumable=1.0,
        ),
        Kind(
            name="huge", shapes=_on_hosts(huge, gpus_per_host), gpu_time=0.15,
            median_s=24 * HOUR_S, spread=0.5,
            min_runtimes_s=(8 * HOUR_S,), resumable=1.0,
        ),
    )  # fmt: skip
    return tuple(kind for kind in all_kinds if kind.shapes)


def _in_one_host(gpus_per_host: int) -> tuple[tuple[int, int], ...]:
    """Jobs of 1, 2, 4 ... GPUs and of a whole host."""
    sizes = {2**power for power in range(7) if 2**power < gpus_per_host} | {gpus_per_host}
    return tuple((1, gpus) for gpus in sorted(sizes))


def _on_hosts(counts: list[int], gpus_per_host: int) -> tuple[tuple[int, int], ...]:
    return tuple((count, gpus_per_host) for count in counts)
