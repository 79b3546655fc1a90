"""The agent on one screen: make the hosts hold what the log says, and say what they really hold."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import msgspec

from services.agent.state import Checkpoint, Core, Key, Replica, State, Wanted
from tenure.domain.host import HostSpec
from tenure.domain.ids import FactId, JobId, RunId
from tenure.domain.job import ReplicaPlace
from tenure.domain.policy import Policy
from tenure.domain.units import Millis
from tenure.events.fact import Fact, Recorded
from tenure.events.placing import RunAssigned, RunEnded, RunPreemptionRequested, RunStopRequested
from tenure.events.reports import CheckpointReported, HostRegistered, ReplicasExited, ReplicasStarted, ReplicaStart
from tenure.runtime.role import Decision, Role

READS = (RunAssigned, RunPreemptionRequested, RunStopRequested, RunEnded)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartReplica:
    """Launch it; what comes of it is observed."""

    assigned: RunAssigned
    place: ReplicaPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class NeverStart:
    """It was to stop before it was launched: note that it is gone without having been."""

    assigned: RunAssigned
    place: ReplicaPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplica:
    """SIGTERM, the grace period, SIGKILL."""

    key: Key
    grace_ms: Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetRun:
    """Nothing of the run is left to do or to say: its files may go once logs need not be kept."""

    run: RunId


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareBeat:
    """Measure and write down the next heartbeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The log has these now."""

    started: tuple[Key, ...] = ()
    exited: tuple[Key, ...] = ()
    checkpoints: tuple[tuple[JobId, Millis], ...] = ()
    beats: bool = False
    registration: bool = False


Instruction = StartReplica | NeverStart | StopReplica | ForgetRun | PrepareBeat | Said


def evolve(state: State, recorded: Recorded) -> None:
    """Fold one fact: which runs are wanted here, which are to stop, which are over."""
    fact = recorded.fact
    core = state.core
    core.position = recorded.position
    if isinstance(fact, RunAssigned):
        ours = {spec.host for spec in state.hosts}
        mine = tuple(place for place in fact.placement if place.host in ours)
        if mine:
            core.runs[fact.run] = Wanted(assigned=fact, mine=mine)
            state.attention[fact.run] = None
    elif isinstance(fact, RunPreemptionRequested | RunStopRequested):
        wanted = core.runs.get(fact.run)
        if wanted is not None:
            wanted.stop = True
            state.attention[fact.run] = None
    elif isinstance(fact, RunEnded):
        core.runs.pop(fact.run, None)
        if state.of_run(fact.run):
            state.attention[fact.run] = None


def decide(state: State, now: Millis, *, agent: str, policy: Policy) -> Decision:
    """What to launch, stop, forget and say now, and when the next heartbeat is due."""
    instructions = [instruction for run in state.attention for instruction in steer(state, run)]
    facts, said = news(state)
    if not state.registered:
        facts.insert(0, HostRegistered(at=now, id=FactId(f"{agent}-registered-{now}"), agent=agent, hosts=state.hosts))
    if facts:
        instructions.append(said)
    if not state.pending_beats and now >= state.next_beat_at:
        instructions.append(PrepareBeat())
    if not instructions:
        state.attention.clear()
    wake_at = now + policy.heartbeat_ms if state.pending_beats else state.next_beat_at
    return Decision(assumes=state.position, facts=facts, instructions=instructions, wake_at=wake_at)


def steer(state: State, run: RunId) -> Iterator[Instruction]:
    """What a run needs done here: launched while it is wanted, stopped when it is not, forgotten when it is over."""
    wanted, seen = state.core.runs.get(run), state.of_run(run)
    known = {replica.key.replica for replica in seen}
    for place in wanted.mine if wanted is not None else ():
        if wanted is not None and place.replica not in known:
            launch = NeverStart if wanted.stop else StartReplica
            yield launch(assigned=wanted.assigned, place=place)
    if wanted is not None and not wanted.stop:
        return
    grace_ms = wanted.assigned.grace_ms if wanted is not None else 0
    for replica in seen:
        if replica.exit is None and not replica.told_to_stop:
            yield StopReplica(key=replica.key, grace_ms=grace_ms)
    if wanted is None and seen and all(replica.settled for replica in seen):
        yield ForgetRun(run=run)


def news(state: State) -> tuple[list[Fact], Said]:
    """What the log does not have yet: heartbeats, saved progress, starts, exits; in the order they must be read."""
    facts: list[Fact] = [*state.pending_beats]
    saved = [checkpoint for checkpoint in state.checkpoints.values() if not checkpoint.said]
    facts += [_saved(checkpoint) for checkpoint in saved]
    starts: dict[RunId, list[Replica]] = {}
    exits: dict[RunId, list[Replica]] = {}
    for key in sorted(state.unsaid):
        replica = state.replicas[key]
        if replica.started_at is not None and not replica.said_start:
            starts.setdefault(key.run, []).append(replica)
        if replica.exit is not None and not replica.said_exit:
            exits.setdefault(key.run, []).append(replica)
    facts += [_started(run, replicas) for run, replicas in starts.items()]
    facts += [_exited(run, replicas) for run, replicas in exits.items()]
    said = Said(
        started=tuple(replica.key for replicas in starts.values() for replica in replicas),
        exited=tuple(replica.key for replicas in exits.values() for replica in replicas),
        checkpoints=tuple((checkpoint.job, checkpoint.at) for checkpoint in saved),
        beats=bool(state.pending_beats),
        registration=not state.registered,
    )
    return facts, said


def _saved(saved: Checkpoint) -> CheckpointReported:
    return CheckpointReported(
        at=saved.at, id=FactId(f"{saved.run}-saved-{saved.at}"), run=saved.run, job=saved.job, host=saved.host
    )


def _started(run: RunId, replicas: list[Replica]) -> ReplicasStarted:
    numbers = "-".join(str(replica.key.replica) for replica in replicas[:8])
    starts = tuple(
        ReplicaStart(replica=replica.key.replica, host=replica.host, at=replica.started_at)
        for replica in replicas
        if replica.started_at is not None
    )
    return ReplicasStarted(
        at=max(start.at for start in starts),
        id=FactId(f"{run}-started-{len(replicas)}-{numbers}"),
        run=run,
        job=replicas[0].assigned.job,
        replicas=starts,
    )


def _exited(run: RunId, replicas: list[Replica]) -> ReplicasExited:
    numbers = "-".join(str(replica.key.replica) for replica in replicas[:8])
    exits = tuple(replica.exit for replica in replicas if replica.exit is not None)
    return ReplicasExited(
        at=max(gone.at for gone in exits),
        id=FactId(f"{run}-exited-{len(replicas)}-{numbers}"),
        run=run,
        job=replicas[0].assigned.job,
        replicas=exits,
    )


def role(policy: Policy, *, agent: str, hosts: tuple[HostSpec, ...]) -> Role[State]:
    """The agent as the loop runs it. It writes nothing that depends on what others wrote, so it guards nothing."""

    def load(payload: bytes) -> State:
        try:
            return State(msgspec.msgpack.decode(payload, type=Core), hosts)
        except msgspec.DecodeError as damage:
            raise ValueError(str(damage)) from damage

    return Role(
        name=f"agent-{agent}",
        reads=READS,
        guard=None,
        initial=lambda: State(Core(), hosts),
        evolve=evolve,
        decide=partial(decide, agent=agent, policy=policy),
        dump=lambda state: msgspec.msgpack.encode(state.core),
        load=load,
    )
