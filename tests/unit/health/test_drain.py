"""Drains, repairs, and what silence means meanwhile (P9)."""

from tenure.domain.host import HostState
from tenure.domain.ids import HostId, UserName
from tenure.domain.reasons import Reason
from tenure.domain.units import MINUTE, SECOND
from tenure.events.hosts import CapacityChanged, DrainCompleted, HostStateChanged
from tenure.events.intake import DrainRequested, RepairCompleted, ResumeRequested
from tests.unit.health.ward import BEAT, Ward

HEALTHY, SUSPECT, LOST = HostState.HEALTHY, HostState.SUSPECT, HostState.LOST
DRAINING, DRAINED = HostState.DRAINING, HostState.DRAINED
OTHERS = ("h1", "h2", "h3")
ALL = ("h0", *OTHERS)


def drain(ward: Ward, host: str = "h0", *, fatal: bool = False, deadline: int | None = None) -> str:
    request = DrainRequested(
        at=ward.now, host=HostId(host), by=UserName("op"), comment="fan", fatal=fatal, deadline=deadline
    )
    asked = ward.say(request)
    ward.decide()
    return asked


def resume(ward: Ward, host: str = "h0") -> None:
    ward.say(ResumeRequested(at=ward.now, host=HostId(host), by=UserName("op")))
    ward.decide()


def test_an_empty_host_drains_at_once() -> None:
    ward = Ward()
    asked = drain(ward)
    assert ward.states("h0") == [HEALTHY, DRAINING, DRAINED]
    assert ward.capacity("h0") == 0 and ward.drains_completed() == ["h0"]
    assert {change.cause for change in ward.changes("h0")[1:]} == {asked}


def test_a_host_drains_when_its_last_run_is_over() -> None:
    ward = Ward()
    ward.assign("j.1", "h0", "h1")
    ward.assign("k.1", "h0")
    drain(ward, deadline=ward.now + MINUTE)
    change = ward.changes("h0")[-1]
    assert (change.state, change.deadline, change.fatal) == (DRAINING, ward.now + MINUTE, False)
    assert ward.capacity("h0") == 0, "P1: draining GPUs are not available from then on"
    ward.end("j.1")
    ward.decide()
    assert ward.state("h0") is DRAINING
    ward.end("k.1")
    ward.decide()
    assert ward.state("h0") is DRAINED and ward.changes("h0")[-1].why.reason is Reason.HOST_EMPTY


def test_the_placer_hears_of_the_drain_before_the_host_can_be_called_empty() -> None:
    """A run assigned a moment before the drain is on record is waited for."""
    ward = Ward()
    ward.say(DrainRequested(at=ward.now, host=HostId("h0"), by=UserName("op"), comment=""))
    [state_said, capacity_said] = ward.actor.step(ward.now)
    assert isinstance(state_said, HostStateChanged) and state_said.state is DRAINING
    assert isinstance(capacity_said, CapacityChanged) and capacity_said.gpus == 0
    [completed, state_said] = ward.actor.step(ward.now)
    assert isinstance(completed, DrainCompleted)
    assert isinstance(state_said, HostStateChanged) and state_said.state is DRAINED


def test_a_drain_that_turns_fatal_is_said_again() -> None:
    ward = Ward()
    ward.assign("j.1", "h0")
    drain(ward)
    drain(ward, fatal=True)
    drain(ward, fatal=True)
    assert [(c.state, c.fatal) for c in ward.changes("h0")[1:]] == [(DRAINING, False), (DRAINING, True)]


def test_resume_and_repair_bring_a_host_back() -> None:
    ward = Ward()
    ward.assign("j.1", "h0")
    drain(ward)
    resume(ward)
    assert ward.state("h0") is HEALTHY and ward.changes("h0")[-1].why.reason is Reason.HOST_RESUMED
    drain(ward, "h1")
    ward.say(RepairCompleted(at=ward.now, host=HostId("h1"), by=UserName("op")))
    ward.decide()
    assert ward.state("h1") is HEALTHY and ward.changes("h1")[-1].why.reason is Reason.HOST_REPAIRED
    assert ward.capacity("h0") == ward.capacity("h1") == 8


def test_requests_that_change_nothing_say_nothing() -> None:
    ward = Ward()
    before = len(ward.log.recorded)
    resume(ward)
    drain(ward, "nobody")
    resume(ward, "nobody")
    assert len(ward.log.recorded) == before + 3


def test_a_draining_host_that_falls_silent_goes_on_draining_when_it_is_heard_again() -> None:
    ward = Ward()
    ward.assign("j.1", "h0")
    drain(ward, deadline=7)
    ward.live(30 * SECOND, *OTHERS)
    assert ward.state("h0") is SUSPECT and ward.changes("h0")[-1].deadline == 7
    ward.live(2 * BEAT, *ALL)
    assert ward.states("h0") == [HEALTHY, DRAINING, SUSPECT, DRAINING]
    assert ward.capacity("h0") == 0


def test_a_lost_host_with_a_drain_comes_back_drained() -> None:
    ward = Ward()
    ward.assign("j.1", "h0")
    drain(ward)
    ward.live(5 * MINUTE, *OTHERS)
    assert ward.state("h0") is LOST
    ward.end("j.1")
    ward.live(2 * BEAT, *ALL)
    assert ward.state("h0") is DRAINED and ward.drains_completed() == ["h0"] and ward.capacity("h0") == 0
    resume(ward)
    assert ward.state("h0") is HEALTHY and ward.capacity("h0") == 8


def test_a_drained_host_may_be_silent_and_returns_only_when_it_is_heard() -> None:
    ward = Ward()
    drain(ward)
    ward.live(10 * MINUTE, *OTHERS)
    assert ward.state("h0") is DRAINED
    resume(ward)
    assert ward.state("h0") is DRAINED, "nobody is there"
    ward.live(2 * BEAT, *ALL)
    assert ward.state("h0") is HEALTHY and ward.capacity("h0") == 8


def test_a_drain_of_a_suspect_takes_its_capacity_and_shows_when_it_is_back() -> None:
    ward = Ward()
    ward.live(20 * SECOND, *OTHERS)
    drain(ward)
    assert ward.state("h0") is SUSPECT and ward.capacity("h0") == 0
    ward.live(2 * BEAT, *ALL)
    assert ward.state("h0") is DRAINED


def test_a_fatal_drain_of_a_suspect_is_evidence_enough() -> None:
    """The way out of a mass silence: an operator who knows that a machine is dead says so."""
    ward = Ward()
    ward.assign("j.1", "h0")
    ward.live(MINUTE, "h3")
    drain(ward, fatal=True)
    assert ward.state("h0") is LOST and ward.state("h1") is SUSPECT
    assert ward.changes("h0")[-1].why.reason is Reason.HOST_DRAIN_REQUESTED


def test_a_drain_before_the_first_beat_keeps_the_host_out() -> None:
    ward = Ward()
    ward.register("new")
    drain(ward, "new")
    ward.beat("new")
    ward.decide()
    assert ward.states("new") == [DRAINED] and ward.capacity("new") == 0
