"""The memory log beyond the port: a reader's own list of facts, and appends without an event loop."""

import pytest

from tenure.domain.ids import FactId, HostId, JobId, Position, UserName
from tenure.events.fact import Fact, Lane
from tenure.events.hosts import CapacityChanged
from tenure.events.intake import DrainRequested, JobCancelRequested
from tenure.log.memory import MemoryLog
from tenure.log.port import Conflict, Expect

ANA = UserName("ana")


def cancel(name: str) -> JobCancelRequested:
    return JobCancelRequested(at=0, id=FactId(name), job=JobId("j"), by=ANA)


def drain(name: str) -> DrainRequested:
    return DrainRequested(at=0, id=FactId(name), host=HostId("h"), by=ANA, comment="")


def capacity(name: str) -> CapacityChanged:
    return CapacityChanged(at=0, id=FactId(name), host=HostId("h"), gpus=8, gpu_type="A")


def test_an_inbox_gets_what_there_is_and_what_comes_of_its_kinds() -> None:
    log = MemoryLog()
    log.append_now([cancel("a"), drain("b")])
    inbox, both = log.inbox([JobCancelRequested]), log.inbox([JobCancelRequested, DrainRequested])
    log.append_now([drain("c"), cancel("d")])
    assert [entry.fact.id for entry in inbox] == ["a", "d"]
    assert both == log.recorded
    inbox.clear()
    log.append_now([drain("e"), cancel("d"), cancel("f")])
    assert [(entry.position, entry.fact.id) for entry in inbox] == [(6, "f")], "what is known again is no news"


@pytest.mark.parametrize("facts", [[cancel("a"), drain("b"), cancel("a")], [drain("b")]])
def test_what_is_known_is_a_duplicate_whatever_is_expected(facts: list[Fact]) -> None:
    log = MemoryLog()
    log.append_now([cancel("a"), drain("b")])
    again = log.append_now(facts, expect=Expect(lane=Lane.INTAKE, last=Position(0)))
    assert again.duplicate and again.last == log.append_now(facts[-1:]).last
    assert len(log.recorded) == 2


def test_a_lane_ends_with_the_facts_below_it_too() -> None:
    log = MemoryLog()
    log.append_now([cancel("a"), capacity("b")])
    with pytest.raises(Conflict, match="expected last 1, found 2"):
        log.append_now([cancel("c")], expect=Expect(lane=Lane.PLACE, last=Position(1)))
    with pytest.raises(Conflict, match="expected last 2, found 0"):
        log.append_now([cancel("c")], expect=Expect(lane=Lane.RUNS, last=Position(2)))
    assert log.append_now([cancel("c")], expect=Expect(lane=Lane.PLACE, last=Position(2))).last == 3
    assert [entry.position for entry in log.recorded] == [1, 2, 3]
