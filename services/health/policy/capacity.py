"""P1: the GPUs a host adds to the available capacity. Suspicion is not failure: a suspect still counts (S51, S64)."""

from services.health.state import Host
from tenure.domain.host import HostState


def available_gpus(host: Host, state: HostState | None) -> int:
    """GPUs that `host` offers in `state`: those its last beat said work, none once it drains or is lost."""
    if host.drain is not None or state not in (HostState.HEALTHY, HostState.SUSPECT):
        return 0
    return host.gpus or 0
