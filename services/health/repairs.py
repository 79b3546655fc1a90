"""What the repair plug is told, and which of its answers are still awaited."""

from services.health.instructions import Mend
from services.health.policy.evidence import asking
from services.health.state import Host, State
from tenure.domain.host import HostState

LINES_MAX = 20
"""Evidence given with one request."""
_AT_WORK = (HostState.REPAIRING, HostState.PROBATION)


def evidence_lines(host: Host) -> tuple[str, ...]:
    """A line for each signal that asks for care, the gravest first."""
    return tuple(
        [
            f"{signal.severity} {signal.source} {signal.code} {signal.device}: {signal.text}"
            for signal in asking(host)[:LINES_MAX]
        ]
    )


def to_hand_over(state: State, hosts: list[Host]) -> tuple[Mend, ...]:
    """Of these hosts what is on record as asked for, not answered, and not in the hands of this process yet."""
    orders = []
    for host in hosts:
        asked = host.repair
        if asked is None or asked.answered_at is not None or host.state not in _AT_WORK:
            continue
        order = Mend(
            host=host.spec.host,
            incident=host.incident,
            step=asked.step,
            reason=asked.reason,
            asked_at=asked.asked_at,
            evidence=asked.evidence,
        )
        if order.key not in state.handed_over:
            state.handed_over[order.key] = None
            orders.append(order)
    return tuple(orders)
