"""The states a host may go through, as a table: (from, to) and the reasons that may lead there.

unheard -> healthy <-> draining -> drained -> healthy;
healthy, draining -> suspect -> back to what it was, or lost -> back again;
healthy -> suspect, though heard, while it does not release what it should have (P7) -> healthy, or as a drain asks.
"""

from services.health.state import Host
from tenure.domain.host import HostState
from tenure.domain.reasons import Reason

_BACK = frozenset({Reason.HOST_HEARD_AGAIN})
_RETURNED = frozenset({Reason.HOST_RESUMED, Reason.HOST_REPAIRED})
_SILENT = frozenset({Reason.HOST_SILENT})
_OVERDUE = frozenset({Reason.HOST_OVERDUE})
_REGISTERED = frozenset({Reason.HOST_REGISTERED})
_DRAIN = frozenset({Reason.HOST_DRAIN_REQUESTED})

TRANSITIONS: dict[tuple[HostState | None, HostState], frozenset[Reason]] = {
    (None, HostState.HEALTHY): _REGISTERED,
    (None, HostState.DRAINED): _REGISTERED,
    (HostState.HEALTHY, HostState.SUSPECT): _SILENT | _OVERDUE,
    (HostState.HEALTHY, HostState.DRAINING): _DRAIN,
    (HostState.DRAINING, HostState.DRAINING): _DRAIN,  # its flags changed
    (HostState.DRAINING, HostState.DRAINED): frozenset({Reason.HOST_EMPTY}),
    (HostState.DRAINING, HostState.HEALTHY): _RETURNED,
    (HostState.DRAINING, HostState.SUSPECT): _SILENT,
    (HostState.DRAINED, HostState.HEALTHY): _RETURNED,
    # the verdict "lost" was withheld, so the suspicion is renewed; or it is suspect for the other reason now
    (HostState.SUSPECT, HostState.SUSPECT): _SILENT | _OVERDUE,
    (HostState.SUSPECT, HostState.HEALTHY): _BACK | frozenset({Reason.HOST_RELEASED}),
    (HostState.SUSPECT, HostState.DRAINING): _BACK | _DRAIN,
    (HostState.SUSPECT, HostState.DRAINED): _BACK,
    (HostState.SUSPECT, HostState.LOST): frozenset({Reason.HOST_SILENT_TOO_LONG, Reason.HOST_DRAIN_REQUESTED}),
    (HostState.LOST, HostState.HEALTHY): _BACK,
    (HostState.LOST, HostState.DRAINING): _BACK,
    (HostState.LOST, HostState.DRAINED): _BACK,
}


class IllegalTransitionError(AssertionError):
    """A state change that the table does not know. Its message tells the host's last changes."""


def check_transition(host: Host, *, to: HostState, reason: Reason) -> None:
    """Raise `IllegalTransitionError` if `host` cannot go from its state to `to` for this reason."""
    if reason in TRANSITIONS.get((host.state, to), frozenset()):
        return
    story = ", ".join(f"{change.at}: {change.state} ({change.reason})" for change in host.story) or "nothing said yet"
    raise IllegalTransitionError(
        f"host {host.spec.host}: {host.state or 'unheard'} -> {to} for {reason} is not in the table; its story: {story}"
    )
