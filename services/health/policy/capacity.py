"""P1: the GPUs a host adds to the available capacity. Suspicion is not failure: a suspect still counts (S51, S64)."""

from services.health.state import Host
from tenure.domain.host import HostState
from tenure.domain.units import Millis

_IN_SERVICE = (HostState.HEALTHY, HostState.SUSPECT)


def available_gpus(host: Host, state: HostState | None, now: Millis) -> int:
    """GPUs that `host` offers in `state`: those its last beat said work, none once it drains or is lost.

    Before a maintenance window it still takes what ends in time, and counts.
    """
    if in_window(host, now):
        return (host.gpus or 0) if state in (*_IN_SERVICE, HostState.DRAINING) else 0
    if host.drain is not None or state not in _IN_SERVICE:
        return 0
    return host.gpus or 0


def in_window(host: Host, now: Millis) -> bool:
    """Whether it drains for a maintenance window that has not begun."""
    drain = host.drain
    return (
        drain is not None and drain.accepts and not drain.fatal and drain.deadline is not None and now < drain.deadline
    )
