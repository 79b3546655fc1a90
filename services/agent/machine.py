"""Which machine an agent speaks on: two that were given one host name must not both run what the log gives that host.

The name is `MACHINE.PROCESS`: the first half is kept in the agent's folder and outlives restarts, the second is new
with each process, so that copies of one disk are told apart too.
"""

from services.agent.state import Registration, State
from tenure.domain.host import HostState
from tenure.domain.ids import HostId
from tenure.domain.refusal import Refusal
from tenure.domain.units import Millis, format_duration
from tenure.events.reports import HostRegistered

_HEARD = (HostState.HEALTHY, HostState.DRAINING)
"""A host in these states was heard a moment ago."""


def is_same_machine(one: str, other: str) -> bool:
    """Whether both are processes of one machine, for all we know: a name that was not said is nobody else's."""
    return not one or not other or one.partition(".")[0] == other.partition(".")[0]


def came_first(before: Registration | None, fact: HostRegistered, *, within_ms: Millis) -> bool:
    """Whether another machine registered the host so short a time before that both may be there."""
    return before is not None and not is_same_machine(before.machine, fact.machine) and fact.at - before.at < within_ms


def replaces(before: Registration | None, fact: HostRegistered, machine: str, *, within_ms: Millis) -> bool:
    """Whether another machine speaks for the host now in place of ours, which had been silent when it did."""
    ours = before is not None and before.machine == machine
    other = not is_same_machine(fact.machine, machine)
    return ours and other and not came_first(before, fact, within_ms=within_ms)


def find_rival(state: State, now: Millis, *, suspect_after_ms: Millis) -> tuple[HostId, Registration] | None:
    """A host of ours that another machine spoke for last and speaks for still, and that machine."""
    for spec in state.hosts:
        other = state.core.registrations.get(spec.host)
        if other is None or is_same_machine(other.machine, state.machine):
            continue
        known = state.core.host_states.get(spec.host)
        if known in _HEARD or (known is None and now - other.at < suspect_after_ms):
            return spec.host, other
    return None


def refusal(host: HostId, rival: Registration, *, suspect_after_ms: Millis) -> Refusal:
    """What the agent ends with that came second."""
    silent = format_duration(suspect_after_ms)
    return Refusal(
        field="--host",
        problem=f"another machine ({rival.machine}) speaks for {host}",
        fix=f"give this one another name; a machine that replaces it can start once the old one is silent for {silent}",
    )
