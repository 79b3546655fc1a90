"""The agent on one screen: make the hosts hold what the log says, and say what they really hold."""

from functools import partial

import msgspec

from services.agent.evolve import READS, evolve
from services.agent.instructions import GiveWay, PrepareBeat
from services.agent.machine import find_rival
from services.agent.policy.news import news
from services.agent.policy.steer import steer
from services.agent.state import Core, State
from tenure.domain.host import HostSpec
from tenure.domain.ids import FactId
from tenure.domain.policy import Policy
from tenure.domain.units import Millis
from tenure.events.reports import HostRegistered
from tenure.runtime.role import Decision, Role


def decide(state: State, now: Millis, *, agent: str, policy: Policy) -> Decision:
    """What to launch, stop, forget and say now, and when the next heartbeat is due.

    `policy` says how often to report, and counts in all else while the log has none.
    """
    suspect_after_ms = (state.core.policy or policy).suspect_after_ms
    rival = state.rival if state.registered else find_rival(state, now, suspect_after_ms=suspect_after_ms)
    if rival is not None:
        give_way = GiveWay(host=rival[0], rival=rival[1])
        return Decision(assumes=state.position, facts=[], instructions=[give_way], wake_at=None)
    instructions = [instruction for run in state.attention for instruction in steer(state, run, now)]
    facts, said = news(state)
    if not state.registered:
        fact_id = FactId(f"{agent}-registered-{now}")
        facts.insert(0, HostRegistered(at=now, id=fact_id, agent=agent, hosts=state.hosts, machine=state.machine))
    if facts:
        instructions.append(said)
    if not state.pending_beats and not state.preparing_beat and now >= state.next_beat_at:
        instructions.append(PrepareBeat())
    if not instructions:
        state.attention.clear()
    busy = state.pending_beats or state.preparing_beat
    wake_at = now + policy.heartbeat_ms if busy else state.next_beat_at
    return Decision(assumes=state.position, facts=facts, instructions=instructions, wake_at=wake_at)


def role(policy: Policy, *, agent: str, hosts: tuple[HostSpec, ...], machine: str = "") -> Role[State]:
    """The agent as the loop runs it. It writes nothing that depends on what others wrote, so it guards nothing."""

    def load(payload: bytes) -> State:
        try:
            core = msgspec.msgpack.decode(payload, type=Core)
        except msgspec.DecodeError as damage:
            raise ValueError(str(damage)) from damage
        return State(core, hosts, attention=dict.fromkeys(core.runs), machine=machine)

    return Role(
        name=f"agent-{agent}",
        reads=READS,
        guard=None,
        initial=lambda: State(Core(), hosts, machine=machine),
        evolve=partial(evolve, suspect_after_ms=policy.suspect_after_ms),
        decide=partial(decide, agent=agent, policy=policy),
        dump=lambda state: msgspec.msgpack.encode(state.core),
        load=load,
        policy=lambda state: state.core.policy,
    )
