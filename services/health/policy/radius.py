"""P9, the blast radius: how much of the cluster automation may hold at once (S66).

Counted are hosts that a verdict of this role took out of service, lost ones included; not those that people drained.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from services.health.state import AT_WORK, Core, Host
from tenure.domain.host import HostSpec, HostState
from tenure.domain.policy import Policy
from tenure.domain.reasons import Number


@dataclass(slots=True, kw_only=True)
class Radius:
    """What may still be taken in one decision; `taken` are the hosts that it took, `mended` those it sent to repair."""

    policy: Policy
    core: Core
    taken: list[HostSpec] = field(default_factory=list)
    mended: list[HostSpec] = field(default_factory=list)

    def refuses(self, spec: HostSpec) -> dict[str, Number] | None:
        """The group that has no host to spare, with its numbers; None when the host may be taken."""
        return self._full(spec, self.taken, counts=is_held)

    def refuses_repair(self, spec: HostSpec) -> bool:
        """Whether as many hosts of a group are with the repair plug already: lost ones may be more than that."""
        return self._full(spec, self.mended, counts=lambda host: host.state in AT_WORK) is not None

    def _full(
        self, spec: HostSpec, more: Sequence[HostSpec], *, counts: Callable[[Host], bool]
    ) -> dict[str, Number] | None:
        for group, name in groups(spec):
            hosts = [host for host in self.core.hosts.values() if (group, name) in groups(host.spec)]
            held = [host for host in hosts if counts(host) and host.spec.host != spec.host]
            count = len(held) + sum((group, name) in groups(each) for each in more)
            most = allowed(len(hosts), self.policy.of_cluster(spec.cluster).automation_share)
            if count >= most:
                return {"group": f"{group} {name}", "hosts": len(hosts), "held": count, "allowed": most}
        return None


def groups(spec: HostSpec) -> tuple[tuple[str, str], ...]:
    """What the host is a part of."""
    cluster = spec.cluster
    return (("cluster", cluster), ("block", f"{cluster}/{spec.block}"), ("type", f"{cluster}/{spec.gpu_type}"))


def allowed(hosts: int, share: float) -> int:
    """So many hosts of a group may be held. A share of 0 turns automation off; else it may always hold one."""
    return max(1, int(hosts * share)) if share else 0


def is_held(host: Host) -> bool:
    """Whether automation keeps it out of service."""
    away = host.drain is None and host.state in (HostState.LOST, HostState.FAILED, *AT_WORK)
    return host.state is HostState.LOST or away or host.is_doubted or (host.drain is not None and host.drain.automatic)
