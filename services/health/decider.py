"""The health role on one screen: who went silent, who came back, what people asked for, and what that leaves usable."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from services.health.evolve import READS, evolve
from services.health.policy.capacity import available_gpus
from services.health.policy.mending import Mending, Plug
from services.health.policy.radius import Radius
from services.health.policy.silence import Silence
from services.health.policy.transitions import Verdict, check_transition
from services.health.policy.verdict import Judge
from services.health.repairs import evidence_lines, reason_for, to_hand_over
from services.health.state import Host, State, dump, initial, load
from tenure.domain.host import HostState
from tenure.domain.ids import HostId
from tenure.domain.policy import Policy
from tenure.domain.units import Millis
from tenure.events.fact import Fact, Lane
from tenure.events.hosts import CapacityChanged, DrainCompleted, HostStateChanged, RepairRequested
from tenure.events.leading import HealthLeadTaken
from tenure.log.port import ATOMIC_MAX
from tenure.runtime.role import Decision, Role

FACTS_MAX = ATOMIC_MAX - 4
"""A decision stays below one atomic append; what does not fit is said by the next one, which follows at once."""
REST_S = 0.1
"""How long facts may gather before the role reads them: nobody waits for a verdict by the millisecond."""
NO_PLUG = Plug()
_OUT_OF_SERVICE = (HostState.DRAINING, HostState.DRAINED, HostState.LOST)


def decide(state: State, now: Millis, *, silence: Silence, plug: Plug) -> Decision:
    """State and capacity changes that are due, and the next instant at which something becomes due by itself (P11).

    The policy of `silence` counts while the log has none.
    """
    core = state.core
    if core.policy is not None:
        silence = replace(silence, policy=core.policy)
    silent = state.watch.due(now, deadline_of=partial(_watch_deadline, state, silence))  # 1. who went silent
    timed = [name for name, due in state.timers.items() if due <= now]  # 2. whose time has come otherwise
    if not silent and not timed and not state.touched and not state.suspects:
        return Decision(assumes=core.position, facts=[], wake_at=_next_instant(state, silence))
    mending, radius = Mending(policy=silence.policy, plug=plug, now=now), Radius(policy=silence.policy, core=core)
    judge = Judge(silence=silence, mending=mending, radius=radius, core=core, now=now)
    facts: list[Fact] = []
    looked_at: list[Host] = []
    for name in sorted(state.touched | dict.fromkeys(silent) | dict.fromkeys(timed) | state.suspects):  # 3. the others
        host = core.hosts[name]  # are as they were
        changes = list(_changes(host, judge.judge(host), now))
        facts += changes
        looked_at.append(host)
        if not changes:
            state.touched.pop(name, None)
        _set_timer(state, name, judge.next_at(host))
        if len(facts) >= FACTS_MAX:
            break
    orders = () if facts else to_hand_over(state, looked_at)  # 4. what is on record is handed to the plug
    return Decision(assumes=core.position, facts=facts, instructions=orders, wake_at=_next_instant(state, silence))


def _set_timer(state: State, name: HostId, due: Millis | None) -> None:
    if due is None:
        state.timers.pop(name, None)
    else:
        state.timers[name] = due


def _changes(host: Host, verdict: Verdict | None, now: Millis) -> Iterator[Fact]:
    """The facts that bring what is on record of one host in line with the verdict."""
    name, state = host.spec.host, host.state
    if verdict is not None:
        state = verdict.state
        check_transition(host, to=state, reason=verdict.why.reason)
        drain = host.drain
        if state is HostState.DRAINED and drain is not None and not drain.completed:
            yield DrainCompleted(at=now, host=name, started_at=drain.asked_at, cause=drain.asked_by)
        incident = host.incident or (f"{name}@{now}" if state in _OUT_OF_SERVICE else "")
        yield HostStateChanged(
            at=now,
            host=name,
            state=state,
            previous=host.state,
            last_seen=host.last_seen,
            why=verdict.why,
            fatal=verdict.fatal or (drain is not None and drain.fatal),
            deadline=None if drain is None else drain.deadline,
            accepts=drain is not None and drain.accepts and not verdict.ends_window,
            automatic=verdict.automatic,
            incident=incident,
            cause=verdict.cause,
        )
        if verdict.asks is not None:
            yield RepairRequested(
                at=now,
                host=name,
                incident=incident,
                step=verdict.asks,
                reason=reason_for(host),
                evidence=evidence_lines(host),
            )
    gpus = available_gpus(host, state, now)
    if gpus != host.offered or (gpus and host.spec.gpu_type != host.offered_type):
        cause = None if verdict is None else verdict.cause
        yield CapacityChanged(at=now, host=name, gpus=gpus, gpu_type=host.spec.gpu_type, cause=cause)


def _watch_deadline(state: State, silence: Silence, name: HostId) -> Millis | None:
    host = state.core.hosts[name]
    watched = host.state in (HostState.HEALTHY, HostState.DRAINING) or host.is_held_up
    return silence.suspect_at(host, state.core) if watched else None


def _next_instant(state: State, silence: Silence) -> Millis | None:
    instants = list(state.timers.values())
    instants += [silence.lost_at(state.core.hosts[name], state.core) for name in state.suspects]
    if state.watch.next_at is not None:
        instants.append(state.watch.next_at)
    return min(instants, default=None)


def role(policy: Policy, *, started_at: Millis = 0, plug: Plug = NO_PLUG) -> Role[State]:
    """Health as the loop and the simulator run it. `started_at`: silence before this instant is nobody's fault."""
    return Role(
        name="health",
        reads=READS,
        guard=Lane.HOSTS,
        initial=initial,
        evolve=partial(evolve, suspect_after_ms=policy.suspect_after_ms),
        decide=partial(decide, silence=Silence(policy=policy, started_at=started_at), plug=plug),
        dump=dump,
        load=load,
        lead=HealthLeadTaken,
        rest_s=REST_S,
        policy=lambda state: state.core.policy,
    )
