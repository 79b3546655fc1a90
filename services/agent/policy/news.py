"""What the log does not have yet: heartbeats, saved progress, starts and exits of replicas, signals of health."""

from services.agent.instructions import Said
from services.agent.policy.told import cut, told_by
from services.agent.state import Checkpoint, Replica, State
from tenure.domain.ids import FactId, RunId
from tenure.events.fact import Fact
from tenure.events.reports import CheckpointReported, Heartbeat, ReplicasExited, ReplicasStarted, ReplicaStart


def news(state: State) -> tuple[list[Fact], Said]:
    """What the log does not have yet: heartbeats, saved progress, starts, health, exits; in reading order."""
    beats = _beats(state)
    facts: list[Fact] = [*beats]
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
    facts += [state.pending_signals] if state.pending_signals is not None else []  # before GPUs are free (S63)
    facts += [_exited(run, replicas) for run, replicas in exits.items()]
    said = Said(
        started=tuple(replica.key for replicas in starts.values() for replica in replicas),
        exited=tuple(replica.key for replicas in exits.values() for replica in replicas),
        checkpoints=tuple((checkpoint.job, checkpoint.at) for checkpoint in saved),
        beats=bool(beats),
        told=tuple(told_by(state.pending_beats, beats).items()),
        signals=state.pending_signals is not None,
        registration=not state.registered,
    )
    return facts, said


def _beats(state: State) -> list[Heartbeat]:
    """The heartbeats that wait. They may have been made before their host was lost: then they say too much (P2)."""
    if not state.pending_beats:
        return []
    given_up = {key: r.given_up_at for key, r in state.replicas.items() if r.given_up_at is not None}
    return [cut(beat, given_up) for beat in state.pending_beats] if given_up else [*state.pending_beats]


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
