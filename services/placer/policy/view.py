"""What is free for whom during one decision: an overlay over the state that is thrown away, never undone."""

from collections.abc import Iterable

from services.placer.state import Core, Escrow, Run, State, gpu_mask
from tenure.domain.host import HostState
from tenure.domain.ids import HostId
from tenure.domain.job import JobSpec, Placement, gpus_by_host

Pool = tuple[str, str]
"""A GPU cluster and a GPU type: a gang lives inside one pool."""


class View:
    """Usable GPUs per healthy host, as bit masks, by pool. Hosts and pools are in order of name."""

    def __init__(self, pools: dict[Pool, dict[HostId, int]]) -> None:
        self.pools = pools

    @classmethod
    def of(cls, state: State) -> "View":
        """All that no run holds and no escrow keeps, on healthy hosts."""
        pools: dict[Pool, dict[HostId, int]] = {}
        for name in state.sorted_hosts():
            host = state.core.hosts[name]
            if host.state is HostState.HEALTHY:
                pool = pools.setdefault((host.spec.cluster, host.spec.gpu_type), {})
                pool[name] = state.free(name)
        view = cls(dict(sorted(pools.items())))
        for escrow in state.core.escrows.values():
            view.take(escrow.placement)
        return view

    def copy(self) -> "View":
        """An overlay for a what-if."""
        return View({name: dict(pool) for name, pool in self.pools.items()})

    def pools_for(self, spec: JobSpec) -> Iterable[tuple[Pool, dict[HostId, int]]]:
        """The pools whose type the job accepts."""
        return (item for item in self.pools.items() if spec.gpu_type is None or spec.gpu_type == item[0][1])

    def take(self, placement: Placement) -> None:
        """These GPUs are used or held from here on."""
        for host, gpus in gpus_by_host(placement).items():
            for pool in self.pools.values():
                if host in pool:
                    pool[host] &= ~gpu_mask(gpus)

    def gpus_free(self, spec: JobSpec) -> int:
        """Usable GPUs in the pools the job accepts."""
        return sum(mask.bit_count() for _, pool in self.pools_for(spec) for mask in pool.values())

    def largest_hole(self, spec: JobSpec) -> int:
        """Most usable GPUs on one host of these pools."""
        return max((mask.bit_count() for _, pool in self.pools_for(spec) for mask in pool.values()), default=0)

    def free_run(self, run: Run) -> None:
        """As if `run` had ended: its GPUs on hosts of this view are usable."""
        for host, gpus in run.hosts.items():
            for pool in self.pools.values():
                if host in pool:
                    pool[host] |= gpu_mask(gpus)


def escrow_is_free(escrow: Escrow, state: State) -> bool:
    """Whether every GPU of the escrow is free of runs and on a healthy host."""
    core: Core = state.core
    return all(
        core.hosts[host].state is HostState.HEALTHY and state.free(host) & gpu_mask(gpus) == gpu_mask(gpus)
        for host, gpus in gpus_by_host(escrow.placement).items()
    )
