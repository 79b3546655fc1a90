"""When hosts were taken away and given back, from the states that the log has of them: what is to be asked again.

A host that was lost, or drained at once, is lost with what it runs; one that was drained at the ends of its contracts
is drained so again. A silence that was not long enough to lose the host is left out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tenure.domain.host import HostState
from tenure.domain.ids import HostId
from tenure.domain.units import Millis
from tenure.events.hosts import HostStateChanged

_OUT = (
    HostState.DRAINING,
    HostState.DRAINED,
    HostState.REPAIRING,
    HostState.PROBATION,
    HostState.FAILED,
    HostState.LOST,
)


class Ask(StrEnum):
    """What becomes of a host."""

    LOSE = "lose"
    DRAIN = "drain"
    RETURN = "return"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """At an instant a host is taken away or given back. `empty_at`: until then it takes contracts that end before.

    `told_at`: when the log says so, which for a silent host is later.
    """

    at: Millis
    told_at: Millis
    host: HostId
    ask: Ask
    empty_at: Millis | None = None
    was_lost: bool = False
    """Of a return: what it returns from."""


def orders_of(states: Mapping[HostId, Sequence[HostStateChanged]]) -> list[Order]:
    """The orders for all hosts, in order of time, then of host."""
    orders = [order for host in sorted(states) for order in _of_host(host, states[host])]
    return sorted(orders, key=lambda order: (order.at, order.host))


def out_of_service(states: Iterable[HostStateChanged]) -> HostStateChanged | None:
    """The change by which a host left service, if the last one of these finds it outside."""
    left: HostStateChanged | None = None
    for change in states:
        if change.state in _OUT:
            left = change if left is None or _is_loss(change) else left
        elif change.state is HostState.HEALTHY:
            left = None
    return left


def _of_host(host: HostId, states: Sequence[HostStateChanged]) -> Iterable[Order]:
    out, lost = False, False
    silent_since: Millis | None = None
    for change in states:
        if change.state is HostState.SUSPECT:
            silent_since = change.at
            continue
        if change.state is HostState.HEALTHY:
            if out:
                yield Order(at=change.at, told_at=change.at, host=host, ask=Ask.RETURN, was_lost=lost)
            out, lost, silent_since = False, False, None
        elif _is_loss(change) and not lost:
            at = change.at if silent_since is None else silent_since
            yield Order(at=at, told_at=change.at, host=host, ask=Ask.LOSE)
            out, lost = True, True
        elif change.state in _OUT and not out:
            empty_at = change.deadline if change.accepts else None
            yield Order(at=change.at, told_at=change.at, host=host, ask=Ask.DRAIN, empty_at=empty_at)
            out = True


def _is_loss(change: HostStateChanged) -> bool:
    return change.state is HostState.LOST or (change.state is HostState.DRAINING and change.fatal)
