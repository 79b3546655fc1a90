"""The agent's decider: what it launches, stops, forgets and says (P10, I2 on one host)."""

from pathlib import Path

import pytest

from services.agent.beats import make_beats
from services.agent.decider import role
from services.agent.instructions import ForgetRun, NeverStart, PrepareBeat, Said, StartReplica, StopReplica
from services.agent.run_files import RunFiles
from services.agent.state import Checkpoint, Key, Replica, State
from tenure.domain.host import HostSpec, HostState
from tenure.domain.ids import HostId, JobId, Position, RunId
from tenure.domain.policy import Policy
from tenure.domain.reasons import EndCause
from tenure.events.fact import Fact, Recorded
from tenure.events.hosts import HostStateChanged
from tenure.events.placing import RunEnded, RunPreemptionRequested
from tenure.events.reports import (
    CheckpointReported,
    Heartbeat,
    HostRegistered,
    ReplicaExit,
    ReplicasExited,
    ReplicasStarted,
    ReplicaStart,
)
from tenure.runtime.role import Decision
from tests.unit.agent.runs import JOB, RUN, WHY, assigned

POLICY = Policy(heartbeat_ms=5_000)
HOSTS = (HostSpec(host=HostId("h0"), gpus=8, gpu_type="t", block="b", cluster="c"),)


class Agent:
    """An agent of `h0`, told facts by hand; it is registered and its first heartbeat is far away."""

    def __init__(self) -> None:
        self.role = role(POLICY, agent="h0", hosts=HOSTS)
        self.state: State = self.role.initial()
        self.state.registered = True
        self.state.next_beat_at = 1_000_000

    def hear(self, fact: Fact) -> None:
        self.role.evolve(self.state, Recorded(Position(self.state.position + 1), fact))

    def decide(self, now: int = 1) -> Decision:
        return self.role.decide(self.state, now)

    def replica(self, number: int = 0, **more: object) -> Replica:
        run = assigned("h0", "h0")
        replica = Replica(key=Key(RUN, number), assigned=run, place=run.placement[number], **more)  # type: ignore[arg-type]
        self.state.see(replica)
        return replica


def stop() -> RunPreemptionRequested:
    return RunPreemptionRequested(at=5, run=RUN, job=JOB, by="other", why=WHY)


def ended() -> RunEnded:
    return RunEnded(at=9, run=RUN, job=JOB, cause_of_end=EndCause.COMPLETED, why=WHY)


def gone(replica: int = 0, **more: object) -> ReplicaExit:
    return ReplicaExit(replica=replica, host=HostId("h0"), at=8, started_at=2, code=0, **more)  # type: ignore[arg-type]


def test_it_says_who_it_is_before_anything_else() -> None:
    agent = Agent()
    agent.state.registered = False
    decision = agent.decide()
    assert isinstance(decision.facts[0], HostRegistered) and decision.facts[0].hosts == HOSTS
    assert any(isinstance(told, Said) and told.registration for told in decision.instructions)


def test_only_replicas_on_its_own_hosts_are_launched() -> None:
    agent = Agent()
    agent.hear(assigned("h0", "elsewhere", "h0"))
    launched = [told.place.replica for told in agent.decide().instructions if isinstance(told, StartReplica)]
    assert launched == [0, 2]
    agent.hear(assigned("elsewhere", run=RunId("k.1"), job=JobId("k")))
    assert RunId("k.1") not in agent.state.core.runs


def test_what_is_launched_is_not_launched_again() -> None:
    agent = Agent()
    agent.hear(assigned("h0"))
    agent.replica(0)
    assert not [told for told in agent.decide().instructions if isinstance(told, StartReplica)]


def test_a_stop_is_told_once_with_the_grace_of_the_contract() -> None:
    agent = Agent()
    agent.hear(assigned("h0"))
    replica = agent.replica(0, started_at=2, said_start=True)
    agent.hear(stop())
    assert StopReplica(key=Key(RUN, 0), grace_ms=7_000) in agent.decide().instructions
    replica.told_to_stop = True
    assert not [told for told in agent.decide().instructions if isinstance(told, StopReplica)]


def test_a_stop_before_the_launch_means_that_it_never_starts() -> None:
    agent = Agent()
    agent.hear(assigned("h0"))
    agent.hear(stop())
    assert [type(told) for told in agent.decide().instructions] == [NeverStart]


def test_a_run_that_the_log_has_ended_is_stopped_at_once() -> None:
    agent = Agent()
    agent.hear(assigned("h0"))
    agent.replica(0, started_at=2, said_start=True)
    agent.hear(ended())
    assert StopReplica(key=Key(RUN, 0), grace_ms=0, given_up=True) in agent.decide().instructions  # S60


def test_a_run_is_forgotten_when_its_exit_and_all_its_occupancy_are_in_the_log() -> None:
    agent = Agent()
    agent.hear(assigned("h0"))
    replica = agent.replica(0, started_at=2, said_start=True, exit=gone(), said_exit=True, occupied_until=7)
    agent.state.unsaid.clear()
    agent.hear(ended())
    assert ForgetRun(run=RUN) not in agent.decide().instructions, "a millisecond is not reported yet"
    replica.occupied_until = 8
    agent.state.attention[RUN] = None
    assert ForgetRun(run=RUN) in agent.decide().instructions


def test_starts_and_exits_are_said_under_ids_that_stay_the_same() -> None:
    agent = Agent()
    agent.hear(assigned("h0", "h0"))
    agent.replica(0, started_at=2)
    agent.replica(1, started_at=3, exit=gone(1))
    first, again = agent.decide().facts, agent.decide(2).facts
    assert [fact.id for fact in first] == [fact.id for fact in again]
    started, exited = first
    assert isinstance(started, ReplicasStarted) and [start.at for start in started.replicas] == [2, 3]
    assert isinstance(exited, ReplicasExited) and exited.replicas == (gone(1),)


def test_progress_is_said_before_the_exit_that_follows_it() -> None:
    agent = Agent()
    agent.hear(assigned("h0"))
    agent.replica(0, started_at=2, said_start=True, exit=gone())
    agent.state.checkpoints[JOB] = Checkpoint(run=RUN, job=JOB, host=HostId("h0"), at=7)
    assert [type(fact) for fact in agent.decide().facts] == [CheckpointReported, ReplicasExited]


def test_a_heartbeat_is_prepared_when_it_is_due_and_not_before_the_last_one_is_sent() -> None:
    agent = Agent()
    agent.state.next_beat_at = 10
    assert PrepareBeat() not in agent.decide(9).instructions
    assert agent.decide(9).wake_at == 10
    assert PrepareBeat() in agent.decide(10).instructions


def test_no_second_heartbeat_is_prepared_while_one_is_on_its_way_to_the_disk() -> None:
    agent = Agent()
    agent.state.next_beat_at, agent.state.preparing_beat = 10, True
    assert PrepareBeat() not in agent.decide(20).instructions


def test_a_restored_agent_launches_what_it_had_folded_but_not_launched() -> None:
    agent = Agent()
    agent.hear(assigned("h0"))
    agent.state = agent.role.load(agent.role.dump(agent.state))
    assert [told.place.replica for told in agent.decide().instructions if isinstance(told, StartReplica)] == [0]


def test_a_run_that_never_started_can_be_noted_as_over(tmp_path: Path) -> None:
    files = RunFiles(tmp_path, remove=lambda run: None)
    files.note_over(RUN)
    assert files.read_assigned(RUN) is None and (tmp_path / RUN / "over").exists()


def test_a_snapshot_keeps_what_is_wanted() -> None:
    agent = Agent()
    agent.hear(assigned("h0"))
    agent.hear(stop())
    again = agent.role.load(agent.role.dump(agent.state))
    assert again.core == agent.state.core and again.position == agent.state.position


def started(*numbers: int) -> ReplicasStarted:
    starts = tuple(ReplicaStart(replica=number, host=HostId("h0"), at=2) for number in numbers)
    return ReplicasStarted(at=2, run=RUN, job=JOB, replicas=starts)


def exited(*numbers: int) -> ReplicasExited:
    return ReplicasExited(at=8, run=RUN, job=JOB, replicas=tuple(gone(number) for number in numbers))


def lost(*, last_seen: int) -> HostStateChanged:
    return HostStateChanged(
        at=20, host=HostId("h0"), state=HostState.LOST, previous=HostState.SUSPECT, last_seen=last_seen, why=WHY
    )


def test_what_ended_unheard_on_a_lost_host_holds_nothing_after_its_last_sign_of_life() -> None:
    agent = Agent()
    agent.hear(assigned("h0", "h0"))
    agent.hear(started(0, 1))
    unheard = agent.replica(0, started_at=2, said_start=True, exit=gone(), occupied_until=4)
    heard = agent.replica(1, started_at=2, said_start=True, exit=gone(1), said_exit=True, occupied_until=4)
    agent.hear(exited(1))
    agent.hear(lost(last_seen=5))
    assert (unheard.held_until(30), heard.held_until(30)) == (5, 8)


def test_an_end_that_the_log_heard_counts_whole_though_the_agent_died_before_it_said_the_rest() -> None:
    """Its successor finds the exit on disk and does not know that it was said; the host was lost meanwhile (I5)."""
    agent = Agent()
    agent.hear(assigned("h0", "h0"))
    agent.hear(started(0, 1))
    agent.hear(exited(0))
    found = [agent.replica(number, started_at=2, exit=gone(number), occupied_until=4) for number in (0, 1)]
    agent.hear(lost(last_seen=5))
    assert [replica.held_until(30) for replica in found] == [8, 5]


@pytest.mark.parametrize(("last_seen", "left"), [(6, [(4, 6), (4, 6)]), (4, [])])
def test_a_heartbeat_made_before_its_host_was_lost_says_no_more_than_the_books(
    last_seen: int, left: list[tuple[int, int]]
) -> None:
    agent = Agent()
    agent.hear(assigned("h0", "h0"))
    agent.hear(started(0, 1))
    for number in (0, 1):
        agent.replica(number, started_at=2, said_start=True, occupied_until=4)
    beats, _ = make_beats(agent.state, 9, agent="h0", busy=lambda _: None, gpus_working=lambda spec: spec.gpus)
    agent.state.pending_beats = beats
    assert held_in(agent) == [(4, 9), (4, 9)]
    agent.hear(lost(last_seen=last_seen))
    assert held_in(agent) == left, "under the same id, so that the log keeps one of the two"
    agent.hear(lost(last_seen=8))
    assert held_in(agent) == left, "the first end that is heard of holds"


def test_what_was_given_up_before_an_agent_was_restarted_is_given_up_for_its_successor() -> None:
    agent = Agent()
    agent.hear(assigned("h0", "h0"))
    agent.hear(started(0))
    agent.hear(lost(last_seen=5))
    agent.state = agent.role.load(agent.role.dump(agent.state))
    found = [agent.replica(number, started_at=2, occupied_until=4) for number in (0, 1)]
    assert [replica.held_until(30) for replica in found] == [5, 0]


def test_what_the_log_never_heard_of_before_its_host_was_lost_held_nothing() -> None:
    """Cut off between its start and the next word to the log: to the books it never was (P2, I5)."""
    agent = Agent()
    agent.hear(assigned("h0", "h0"))
    agent.hear(started(0))
    for number in (0, 1):
        agent.replica(number, started_at=2 + number)
    beats, _ = make_beats(agent.state, 9, agent="h0", busy=lambda _: None, gpus_working=lambda spec: spec.gpus)
    agent.state.pending_beats = beats
    agent.hear(lost(last_seen=5))
    agent.hear(started(1))  # it comes when the host has been given up
    assert held_in(agent) == [(2, 5)]


def held_in(agent: Agent) -> list[tuple[int, int]]:
    """The occupancy in the heartbeats that it says now."""
    beats = [fact for fact in agent.decide().facts if isinstance(fact, Heartbeat)]
    assert [beat.id for beat in beats] == [beat.id for beat in agent.state.pending_beats]
    return [(each.since, each.until) for beat in beats for on in beat.hosts for each in on.segments]
