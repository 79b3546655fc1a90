"""I6: prefix and rest, snapshot and replay give the same state and the same next decision; and what it costs."""

import random
import time

import pytest

from services.health.decider import role
from services.health.state import dump, load
from tenure.domain.ids import HostId, UserName
from tenure.domain.policy import Policy
from tenure.domain.units import SECOND
from tenure.events.intake import DrainRequested, ResumeRequested
from tests.unit.health.ward import BEAT, Ward


def stormy_ward(seed: int) -> Ward:
    """Hosts that come and go, drains and resumes, runs, late decisions."""
    chance = random.Random(seed)
    ward = Ward(hosts=6)
    running: list[str] = []
    for step in range(300):
        ward.now += chance.choice([SECOND, BEAT, BEAT, 4 * BEAT, 60 * BEAT if chance.random() < 0.05 else BEAT])
        speaking = [host for host in ward.names if chance.random() < 0.7]
        if speaking:
            ward.beat(*speaking, gpus=chance.choice([8, 8, 8, 7]))
        host = HostId(chance.choice(ward.names))
        match chance.randrange(8):
            case 0:
                fatal = chance.random() < 0.3
                ward.say(DrainRequested(at=ward.now, host=host, by=UserName("op"), comment="", fatal=fatal))
            case 1:
                ward.say(ResumeRequested(at=ward.now, host=host, by=UserName("op")))
            case 2:
                ward.assign(f"j{step}.1", host)
                running.append(f"j{step}.1")
            case 3 if running:
                ward.end(running.pop(0))
            case 4:
                ward.register(host)
        if chance.random() < 0.8:
            ward.decide()
    return ward


@pytest.mark.parametrize("seed", range(5))
def test_snapshot_and_replay_agree_with_the_live_state(seed: int) -> None:
    ward = stormy_ward(seed)
    ward.actor.fold()
    live = ward.actor.state
    replayed = ward.actor.role.initial()
    for index, recorded in enumerate(ward.log.recorded):
        if type(recorded.fact) in ward.actor.role.reads:
            ward.actor.role.evolve(replayed, recorded)
        if index % 97 == 0:
            replayed = load(dump(replayed))
    assert dump(replayed) == dump(live)
    decisions = [ward.actor.role.decide(state, ward.now) for state in (live, replayed, load(dump(live)))]
    assert decisions[1:] == decisions[:-1]


def test_damage_is_a_value_error() -> None:
    with pytest.raises(ValueError):
        load(b"\x00nonsense")


def test_a_thousand_beating_hosts_cost_little() -> None:
    """A generous bound on what `make bench` measures: one round of beats (5 s) of 1,000 hosts, one fact a host."""
    ward = Ward(hosts=1_000)
    assert ward.actor.role.name == role(Policy()).name
    began = time.process_time()
    for host in ward.names:
        ward.now += 5
        ward.beat(host)
        ward.decide()
    took = time.process_time() - began
    assert took < 0.5, f"{took:.3f} s of processor for 5 s of heartbeats"
