"""Two machines with one host name: the one that comes second gives way before it touches anything."""

from pathlib import Path

import pytest

from services.agent.decider import role
from services.agent.instructions import GiveWay, StartReplica
from services.agent.machine import is_same_machine
from services.agent.machine_file import machine_name
from services.agent.state import State
from tenure.domain.host import HostSpec, HostState
from tenure.domain.ids import HostId, Position, UserName
from tenure.domain.policy import Policy
from tenure.events.fact import Fact, Recorded
from tenure.events.hosts import HostStateChanged
from tenure.events.policy import PolicyChanged
from tenure.events.reports import HostRegistered
from tenure.runtime.role import Decision
from tests.unit.agent.runs import WHY, assigned

HOST = HostId("h0")
HOSTS = (HostSpec(host=HOST, gpus=8, gpu_type="t", block="b", cluster="c"),)
POLICY = Policy()


class Agent:
    """An agent of `h0` on a machine of its own, told facts by hand."""

    def __init__(self, machine: str) -> None:
        self.machine = machine
        self.role = role(POLICY, agent=HOST, hosts=HOSTS, machine=machine)
        self.state: State = self.role.initial()

    def hear(self, *facts: Fact) -> None:
        for fact in facts:
            self.role.evolve(self.state, Recorded(Position(self.state.position + 1), fact))

    def decide(self, now: int) -> Decision:
        return self.role.decide(self.state, now)


def registered(machine: str, at: int) -> HostRegistered:
    return HostRegistered(at=at, agent=HOST, hosts=HOSTS, machine=machine)


def changed(state: HostState) -> HostStateChanged:
    return HostStateChanged(at=1, host=HOST, state=state, previous=None, last_seen=1, why=WHY)


@pytest.mark.parametrize("state", [HostState.HEALTHY, HostState.DRAINING])
def test_who_comes_second_says_nothing_and_starts_nothing(state: HostState) -> None:
    second = Agent("bbbb.2")
    second.hear(registered("aaaa.1", 0), changed(state), assigned(HOST))
    decision = second.decide(now=3_600_000)
    assert decision.facts == []
    (order,) = decision.instructions
    assert isinstance(order, GiveWay) and (order.host, order.rival.machine) == (HOST, "aaaa.1")


@pytest.mark.parametrize("state", [HostState.SUSPECT, HostState.LOST, HostState.DRAINED, HostState.FAILED])
def test_a_machine_that_is_silent_or_taken_out_may_be_replaced(state: HostState) -> None:
    second = Agent("bbbb.2")
    second.hear(registered("aaaa.1", 0), changed(state))
    (fact, *_) = second.decide(now=3_600_000).facts
    assert isinstance(fact, HostRegistered) and fact.machine == "bbbb.2"


def test_an_agent_that_starts_again_on_its_machine_goes_on() -> None:
    again = Agent("aaaa.2")
    again.hear(registered("aaaa.1", 0), changed(HostState.HEALTHY))
    assert isinstance(again.decide(now=1_000).facts[0], HostRegistered)
    old = Agent("bbbb.1")
    old.hear(registered("", 0), changed(HostState.HEALTHY))
    assert isinstance(old.decide(now=1_000).facts[0], HostRegistered), "an earlier version said no machine"


def test_of_two_that_start_at_the_same_time_the_first_in_the_log_stays() -> None:
    first, second = Agent("aaaa.1"), Agent("bbbb.2")
    said = [agent.decide(now=10).facts[0] for agent in (first, second)]
    for agent in (first, second):
        agent.state.registered = True
        agent.hear(*said, assigned(HOST))
    assert [type(order) for order in second.decide(now=20).instructions] == [GiveWay]
    assert next(type(order) for order in first.decide(now=20).instructions) is StartReplica


def test_how_long_a_silence_is_none_is_said_by_the_policy_of_the_log() -> None:
    """And what the agent was started with counts only where the log says nothing."""
    policy = Policy(suspect_after_ms=3_600_000, lost_after_ms=7_200_000, heartbeat_ms=60_000)
    plain, told = Agent("bbbb.2"), Agent("bbbb.2")
    for agent in (plain, told):
        agent.hear(registered("aaaa.1", 0))
    told.hear(PolicyChanged(at=1, policy=policy, by=UserName("ana")))
    assert isinstance(plain.decide(now=60_000).facts[0], HostRegistered)
    assert [type(order) for order in told.decide(now=60_000).instructions] == [GiveWay]
    again = told.role.load(told.role.dump(told.state))
    assert told.role.policy is not None
    assert told.role.policy(again) == policy


def test_an_agent_that_was_suspended_and_replaced_starts_nothing_when_it_wakes() -> None:
    old = Agent("aaaa.1")
    (said, *_) = old.decide(now=0).facts
    old.state.registered = True
    old.hear(said, changed(HostState.HEALTHY), changed(HostState.LOST))
    old.hear(registered("bbbb.2", POLICY.suspect_after_ms), changed(HostState.HEALTHY), assigned(HOST))
    (order,) = old.decide(now=3_600_000).instructions
    assert isinstance(order, GiveWay) and order.rival.machine == "bbbb.2"


def test_a_machine_keeps_its_name_and_a_copy_of_its_disk_is_told_apart(tmp_path: Path) -> None:
    first, again, other = machine_name(tmp_path), machine_name(tmp_path), machine_name(tmp_path / "other")
    assert first != again and is_same_machine(first, again)
    assert not is_same_machine(first, other)
