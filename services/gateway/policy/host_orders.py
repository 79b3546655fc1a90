"""P9, what operators may ask of a host: drain it, have it take runs again, say that it is repaired."""

from services.gateway.entries import HostEntry
from services.gateway.order import Order
from services.gateway.refusals import NotFound, WrongState
from services.gateway.state import State
from tenure.domain.host import EMPTIED, HostState
from tenure.domain.ids import HostId
from tenure.domain.nearest import did_you_mean, shown
from tenure.domain.refusal import Refusal
from tenure.domain.units import Millis
from tenure.events.intake import DrainRequested, RepairCompleted, ResumeRequested
from tenure.events.plausible import AT_MAX

_DRAINED = (HostState.DRAINING, *EMPTIED)


def drain(
    state: State, host: str, order: Order, *, fatal: bool, deadline: Millis | None, accepts: bool = False
) -> DrainRequested:
    """The wish to empty a host. Raises `NotFound`, `Refusal`, or `WrongState` when it drains already.

    `accepts`: a maintenance window begins at the deadline, and until then it takes what ends before. A drain that goes
    on may still be made fatal.
    """
    entry = find_host(state, host)
    if not order.comment.strip():
        raise Refusal(field="comment", problem="empty", fix="say why the host is to be drained, for those who wait")
    if deadline is not None and not order.now < deadline <= AT_MAX:
        problem = "not in the future" if deadline <= order.now else "after the year 2100"
        raise Refusal(field="deadline_ms", problem=problem, fix="give an instant to come, or 0 for none")
    if accepts and (deadline is None or fatal):
        problem = "a fatal drain waits for nothing" if fatal else "no deadline to work towards"
        raise Refusal(field="accepts", problem=problem, fix="give a deadline for a window, or no window")
    if _drains(entry) and not (fatal and not entry.drain_fatal):
        said = f" ({entry.comment})" if entry.comment else ""
        stage = entry.state if entry.state in _DRAINED else HostState.DRAINING
        raise WrongState(field="host", problem=f"{host} is {stage} already{said}", fix="resume it to have it take runs")
    return DrainRequested(
        at=order.now,
        id=order.fact_id,
        cluster=order.cluster,
        host=entry.spec.host,
        by=order.by,
        comment=order.comment,
        fatal=fatal,
        deadline=deadline,
        accepts=accepts,
        origin=order.origin,
    )


def resume(state: State, host: str, order: Order) -> ResumeRequested:
    """The wish to have a drained host take runs again. Raises `NotFound`, or `WrongState` when it does not drain."""
    entry = find_host(state, host)
    if not _drains(entry):
        raise WrongState(field="host", problem=f"{host} is {entry.state}, not draining", fix="only a drain is resumed")
    return ResumeRequested(
        at=order.now,
        id=order.fact_id,
        cluster=order.cluster,
        host=entry.spec.host,
        by=order.by,
        comment=order.comment,
        origin=order.origin,
    )


def repair(state: State, host: str, order: Order) -> RepairCompleted:
    """The word that a host is repaired. Raises `NotFound`, or `WrongState` when it was taken for sound."""
    entry = find_host(state, host)
    if not _drains(entry) and entry.state is not HostState.LOST:
        raise WrongState(field="host", problem=f"{host} is {entry.state}, not drained", fix="drain it before a repair")
    return RepairCompleted(
        at=order.now,
        id=order.fact_id,
        cluster=order.cluster,
        host=entry.spec.host,
        by=order.by,
        comment=order.comment,
        origin=order.origin,
    )


def find_host(state: State, host: str) -> HostEntry:
    """The host of that name. Raises `NotFound` with the nearest name."""
    entry = state.hosts.get(HostId(host))
    if entry is None:
        near = did_you_mean(host, state.hosts)
        raise NotFound(field="host", problem=f"there is no host {shown(host)}", fix=f"{near}see `tenure host list`")
    return entry


def _drains(entry: HostEntry) -> bool:
    return entry.drain_asked or entry.state in _DRAINED
