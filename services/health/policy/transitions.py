"""The states a host may go through, as a table: (from, to) and the reasons that may lead there.

unheard -> healthy <-> draining -> drained -> repairing -> probation -> healthy, and failed where automation ends;
healthy, draining -> suspect -> back to what it was, or lost -> back again, or to repair when its runs are given up;
healthy -> suspect, though heard, while it does not release what it should have (P7), or while what is said against it
is not confirmed -> healthy, or as a drain asks.
"""

from dataclasses import dataclass

from services.health.state import Host
from tenure.domain.host import HostState, RepairStep
from tenure.domain.ids import FactId
from tenure.domain.reasons import Reason, Why

_BACK = frozenset({Reason.HOST_HEARD_AGAIN})
_RETURNED = frozenset({Reason.HOST_RESUMED, Reason.HOST_REPAIRED})
_CLEARED = frozenset({Reason.HOST_CLEARED})
_SILENT = frozenset({Reason.HOST_SILENT})
_OVERDUE = frozenset({Reason.HOST_OVERDUE})
_DOUBTED = frozenset({Reason.HOST_DOUBTED})
_REGISTERED = frozenset({Reason.HOST_REGISTERED})
_EVIDENCE = frozenset(
    {
        Reason.HOST_SIGNAL_FATAL,
        Reason.HOST_SIGNALS,
        Reason.HOST_GPUS_MISSING,
        Reason.HOST_JOBS_FAIL,
        Reason.HOST_LAUNCHES_FAIL,
        Reason.HOST_NAMED_TWICE,
    }
)
_ASKED = frozenset({Reason.HOST_DRAIN_REQUESTED})
_MENDED = frozenset({Reason.HOST_REPAIRED})
_HOPELESS = frozenset({Reason.HOST_REPAIR_FAILED})

TRANSITIONS: dict[tuple[HostState | None, HostState], frozenset[Reason]] = {
    (None, HostState.HEALTHY): _REGISTERED,
    (None, HostState.DRAINED): _REGISTERED,
    (None, HostState.DRAINING): _REGISTERED,
    (HostState.HEALTHY, HostState.HEALTHY): frozenset({Reason.HOST_HELD_BACK}),  # evidence that is not acted on
    (HostState.HEALTHY, HostState.SUSPECT): _SILENT | _OVERDUE | _DOUBTED,
    (HostState.HEALTHY, HostState.DRAINING): _ASKED | _EVIDENCE,
    (HostState.DRAINING, HostState.DRAINING): _ASKED | _EVIDENCE,  # its flags changed
    (HostState.DRAINING, HostState.DRAINED): frozenset({Reason.HOST_EMPTY}),
    (HostState.DRAINING, HostState.HEALTHY): _RETURNED | _CLEARED,
    (HostState.DRAINING, HostState.SUSPECT): _SILENT,
    (HostState.DRAINED, HostState.HEALTHY): _RETURNED | _CLEARED,
    (HostState.DRAINED, HostState.REPAIRING): frozenset({Reason.HOST_REPAIR_BEGUN}),
    (HostState.DRAINED, HostState.PROBATION): _MENDED | _CLEARED,
    (HostState.DRAINED, HostState.FAILED): frozenset({Reason.HOST_BREAKS_AGAIN}),
    (HostState.REPAIRING, HostState.PROBATION): _MENDED,
    (HostState.REPAIRING, HostState.HEALTHY): _RETURNED,
    (HostState.REPAIRING, HostState.FAILED): _HOPELESS,
    (HostState.PROBATION, HostState.HEALTHY): _RETURNED | {Reason.HOST_TESTED},
    (HostState.PROBATION, HostState.FAILED): _HOPELESS,
    (HostState.FAILED, HostState.HEALTHY): _RETURNED,
    (HostState.FAILED, HostState.PROBATION): _MENDED,
    # the verdict "lost" was withheld, so the suspicion is renewed; or it is suspect for the other reason now
    (HostState.SUSPECT, HostState.SUSPECT): _SILENT | _OVERDUE | _DOUBTED,
    (HostState.SUSPECT, HostState.HEALTHY): _BACK | _CLEARED | {Reason.HOST_RELEASED},
    (HostState.SUSPECT, HostState.DRAINING): _BACK | _ASKED | _EVIDENCE,
    (HostState.SUSPECT, HostState.DRAINED): _BACK,
    (HostState.SUSPECT, HostState.LOST): frozenset({Reason.HOST_SILENT_TOO_LONG}) | _ASKED,
    (HostState.LOST, HostState.REPAIRING): frozenset({Reason.HOST_REPAIR_BEGUN}),
    (HostState.LOST, HostState.FAILED): frozenset({Reason.HOST_BREAKS_AGAIN}),
    (HostState.LOST, HostState.HEALTHY): _BACK,
    (HostState.LOST, HostState.DRAINING): _BACK,
    (HostState.LOST, HostState.DRAINED): _BACK,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The state a host goes to, why, and the fact that led to it.

    `fatal`: its runs end now. `automatic`: evidence drains it. `ends_window`: it takes nothing more before its
    maintenance. `asks`: what the repair plug is to do.
    """

    state: HostState
    why: Why
    cause: FactId | None = None
    fatal: bool = False
    automatic: bool = False
    ends_window: bool = False
    asks: RepairStep | None = None


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
