"""P10 on a host: launch what is wanted, stop what is not, forget what is over."""

from collections.abc import Iterator

from services.agent.instructions import ForgetRun, Instruction, NeverStart, StartReplica, StopReplica
from services.agent.state import State
from tenure.domain.ids import RunId
from tenure.domain.units import Millis


def steer(state: State, run: RunId, now: Millis) -> Iterator[Instruction]:
    """What a run needs done here: launched while it is wanted, stopped when it is not, forgotten when it is over."""
    wanted, seen = state.core.runs.get(run), state.of_run(run)
    known = {replica.key.replica for replica in seen}
    for place in wanted.mine if wanted is not None else ():
        if wanted is not None and place.replica not in known:
            if wanted.stop:
                yield NeverStart(assigned=wanted.assigned, place=place)
            else:
                yield StartReplica(assigned=wanted.assigned, place=place, decided_at=now)
    if wanted is not None and not wanted.stop:
        return
    grace_ms = wanted.assigned.grace_ms if wanted is not None else 0
    for replica in seen:
        if replica.exit is None and not replica.told_to_stop:
            yield StopReplica(key=replica.key, grace_ms=grace_ms, given_up=wanted is None)
    if wanted is None and seen and all(replica.settled for replica in seen):
        yield ForgetRun(run=run)
