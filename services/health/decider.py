"""The health role on one screen: who went silent, who came back, what people asked for, and what that leaves usable."""

from collections.abc import Iterator
from functools import partial

from services.health.evolve import READS, evolve
from services.health.policy.capacity import available_gpus
from services.health.policy.silence import Silence
from services.health.policy.transitions import check_transition
from services.health.policy.verdict import Judge, Verdict
from services.health.state import Host, State, dump, initial, load
from tenure.domain.host import HostState
from tenure.domain.ids import HostId
from tenure.domain.policy import Policy
from tenure.domain.units import Millis
from tenure.events.fact import Fact, Lane
from tenure.events.hosts import CapacityChanged, DrainCompleted, HostStateChanged
from tenure.log.port import ATOMIC_MAX
from tenure.runtime.role import Decision, Role

FACTS_MAX = ATOMIC_MAX - 3
"""A decision stays below one atomic append; what does not fit is said by the next one, which follows at once."""


def decide(state: State, now: Millis, *, silence: Silence) -> Decision:
    """State and capacity changes that are due, and the next instant at which silence becomes one (P11)."""
    silent = state.watch.due(now, deadline_of=partial(_watch_deadline, state, silence))  # 1. who went silent
    if not silent and not state.touched and not state.suspects:
        return Decision(assumes=state.core.position, facts=[], wake_at=state.watch.next_at)
    judge = Judge(silence=silence, core=state.core, now=now, survey=None)
    if any(now >= silence.lost_at(state.core.hosts[name], state.core) for name in state.suspects):
        judge = Judge(silence=silence, core=state.core, now=now, survey=silence.survey(state.core, now))
    facts: list[Fact] = []
    for name in sorted(state.touched | dict.fromkeys(silent) | state.suspects):  # 2. everyone else is as he was
        host = state.core.hosts[name]
        changes = list(_changes(host, judge.judge(host), now))
        facts += changes
        if not changes:
            state.touched.pop(name, None)
        if len(facts) >= FACTS_MAX:
            break
    return Decision(assumes=state.position, facts=facts, wake_at=_next_silence(state, silence))  # 3.


def _changes(host: Host, verdict: Verdict | None, now: Millis) -> Iterator[Fact]:
    """The facts that bring what is on record of one host in line with the verdict."""
    name, state = host.spec.host, host.state
    if verdict is not None:
        state = verdict.state
        check_transition(host, to=state, reason=verdict.why.reason)
        drain = host.drain
        if state is HostState.DRAINED and drain is not None and not drain.completed:
            yield DrainCompleted(at=now, host=name, started_at=drain.asked_at, cause=drain.asked_by)
        yield HostStateChanged(
            at=now,
            host=name,
            state=state,
            previous=host.state,
            last_seen=host.last_seen,
            why=verdict.why,
            fatal=drain is not None and drain.fatal,
            deadline=None if drain is None else drain.deadline,
            cause=verdict.cause,
        )
    gpus = available_gpus(host, state)
    if gpus != host.offered or (gpus and host.spec.gpu_type != host.offered_type):
        cause = None if verdict is None else verdict.cause
        yield CapacityChanged(at=now, host=name, gpus=gpus, gpu_type=host.spec.gpu_type, cause=cause)


def _watch_deadline(state: State, silence: Silence, name: HostId) -> Millis | None:
    host = state.core.hosts[name]
    watched = host.state in (HostState.HEALTHY, HostState.DRAINING) or host.is_held_up
    return silence.suspect_at(host, state.core) if watched else None


def _next_silence(state: State, silence: Silence) -> Millis | None:
    instants = [silence.lost_at(state.core.hosts[name], state.core) for name in state.suspects]
    if state.watch.next_at is not None:
        instants.append(state.watch.next_at)
    return min(instants, default=None)


def role(policy: Policy, *, started_at: Millis = 0) -> Role[State]:
    """Health as the loop and the simulator run it. `started_at`: silence before this instant is nobody's fault."""
    return Role(
        name="health",
        reads=READS,
        guard=Lane.HOSTS,
        initial=initial,
        evolve=partial(evolve, suspect_after_ms=policy.suspect_after_ms),
        decide=partial(decide, silence=Silence(policy=policy, started_at=started_at)),
        dump=dump,
        load=load,
    )
