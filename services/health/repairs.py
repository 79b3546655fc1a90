"""What the repair plug is told, and which of its answers are still awaited."""

from services.health.instructions import Mend
from services.health.policy.evidence import asking
from services.health.state import AT_WORK, Host, State
from tenure.domain.host import HostState
from tenure.domain.reasons import Reason

SIGNALS = (Reason.HOST_SIGNAL_FATAL, Reason.HOST_SIGNALS)
"""Evidence that has lines of its own."""
LINES_MAX = 20
"""Evidence given with one request."""


def reason_for(host: Host) -> Reason:
    """Why the host is to be repaired, or tested: as its drain says; a lost one has none."""
    if host.drain is not None:
        return host.drain.reason
    return host.story[-1].reason if host.repair is None else host.repair.reason


def evidence_lines(host: Host) -> tuple[str, ...]:
    """A line for a lost host, one for what else drained it, one for each signal that asks for care, gravest first."""
    lost = [f"fatal health lost host: no sign of life since {host.last_seen}"] if host.state is HostState.LOST else []
    why = None if host.drain is None else host.drain.why
    if why is not None and why.reason not in SIGNALS:
        lost.append(f"health {why.reason}: " + ", ".join(f"{name} {value}" for name, value in why.numbers.items()))
    return tuple(
        lost
        + [
            f"{signal.severity} {signal.source} {signal.code} {signal.device}: {signal.text}"
            for signal in asking(host)[:LINES_MAX]
        ]
    )


def to_hand_over(state: State, hosts: list[Host]) -> tuple[Mend, ...]:
    """Of these hosts what is on record as asked for, not answered, and not in the hands of this process yet."""
    orders = []
    for host in hosts:
        asked = host.repair
        if asked is None or asked.answered_at is not None or host.state not in AT_WORK:
            continue
        order = Mend(
            host=host.spec.host,
            incident=host.incident,
            step=asked.step,
            reason=asked.reason,
            asked_at=asked.asked_at,
            gpus=host.gpus_expected if host.spec.only_gpus else 0,
            evidence=asked.evidence,
        )
        if order.key not in state.handed_over:
            state.handed_over[order.key] = None
            orders.append(order)
    return tuple(orders)
