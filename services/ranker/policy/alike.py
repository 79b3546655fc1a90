"""Jobs that are alike: where one of them cannot start, the next cannot either, so few of them need to be listed.

However many identical jobs wait, a decision costs as much as if there were only those that could run at once.
"""

from collections.abc import Mapping
from typing import NamedTuple

from tenure.domain.ids import BudgetPath, UserName
from tenure.domain.job import HostChoice, Topology, Wanted
from tenure.domain.units import Millis

Pool = tuple[str, str]
"""A cluster of hosts, and the type of their GPUs."""
AT_ONCE_MAX = 256
"""Never list more of one kind, however large the cluster."""


class Alike(NamedTuple):
    """What jobs have in common that the placer cannot tell apart. `user` counts only where users are equal (P4)."""

    budget: BudgetPath
    user: UserName | None
    replicas: int
    gpus_per_replica: int
    gpu_type: str | None
    min_runtime_ms: Millis
    priority: int
    reserved: bool
    """Their commitment is counted already (P8)."""
    topology: Topology = Topology.ANY
    choice: HostChoice | None = None
    cluster: str | None = None


def at_once(alike: Alike, *, gpus_by_pool: Mapping[Pool, int]) -> int:
    """How many of these jobs could run at once on the empty clusters, between 1 and `AT_ONCE_MAX`."""
    wanted = Wanted(alike.cluster, alike.gpu_type)
    gpus = sum([gpus for pool, gpus in gpus_by_pool.items() if wanted.accepts(pool)])
    return max(1, min(AT_ONCE_MAX, gpus // (alike.replicas * alike.gpus_per_replica)))
