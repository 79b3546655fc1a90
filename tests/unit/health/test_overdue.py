"""Hosts that do not release in time what a run was told to leave (P7): suspect though heard, and how that ends."""

import pytest

from tenure.domain.host import HostState
from tenure.domain.ids import HostId, JobId, RunId, UserName
from tenure.domain.reasons import Reason, Why
from tenure.domain.units import MINUTE, SECOND
from tenure.events.intake import DrainRequested
from tenure.events.placing import PlacementDeferred
from tests.unit.health.ward import BEAT, Ward

HEALTHY, SUSPECT, LOST = HostState.HEALTHY, HostState.SUSPECT, HostState.LOST
OTHERS = ("h1", "h2", "h3")
ALL = ("h0", *OTHERS)


def expire(ward: Ward, *runs: str, host: str = "h0") -> None:
    """The placer gives an escrow up: these runs are still on the host."""
    why = Why(rule="P7", reason=Reason.DEFER_ESCROW_EXPIRED, numbers={})
    overdue = {HostId(host): tuple(RunId(run) for run in runs)}
    ward.say(PlacementDeferred(at=ward.now, job=JobId("j"), why=why, overdue=overdue))
    ward.decide()


def drain(ward: Ward, *, fatal: bool) -> None:
    """An operator drains h0."""
    ward.say(DrainRequested(at=ward.now, host=HostId("h0"), by=UserName("op"), comment="", fatal=fatal, deadline=None))
    ward.decide()


@pytest.fixture
def ward() -> Ward:
    """h0 is heard, and has not released v.1 in time."""
    ward = Ward()
    ward.assign("v.1", "h0")
    ward.assign("other.1", "h0")
    expire(ward, "v.1")
    return ward


def test_a_host_that_does_not_release_is_suspect_although_it_is_heard_and_is_never_lost_for_it(ward: Ward) -> None:
    ward.live(30 * MINUTE, *ALL)
    assert ward.states("h0") == [HEALTHY, SUSPECT]
    assert ward.changes("h0")[-1].why.reason is Reason.HOST_OVERDUE
    assert ward.changes("h0")[-1].why.numbers == {"runs": 1, "run": "v.1"}
    assert ward.capacity("h0") == 8, "suspicion is not failure"


def test_it_is_healthy_again_when_the_last_of_these_runs_is_over(ward: Ward) -> None:
    expire(ward, "other.1")
    ward.end("v.1")
    ward.live(BEAT, *ALL)
    assert ward.state("h0") is SUSPECT
    ward.end("other.1")
    ward.decide()
    assert ward.state("h0") is HEALTHY and ward.changes("h0")[-1].why.reason is Reason.HOST_RELEASED


def test_a_run_that_is_over_by_now_makes_nobody_suspect() -> None:
    ward = Ward()
    ward.assign("v.1", "h0")
    ward.end("v.1")
    expire(ward, "v.1")
    assert ward.states("h0") == [HEALTHY]


def test_silence_on_top_of_it_counts_from_its_own_beginning(ward: Ward) -> None:
    ward.live(30 * MINUTE, *ALL)
    began = ward.now
    ward.live(20 * SECOND, *OTHERS)
    assert [change.why.reason for change in ward.changes("h0")[1:]] == [Reason.HOST_OVERDUE, Reason.HOST_SILENT]
    ward.live(5 * MINUTE, *OTHERS)
    assert ward.state("h0") is LOST and ward.changes("h0")[-1].at == began + ward.policy.lost_after_ms


def test_a_silent_host_that_is_heard_again_with_such_runs_stays_suspect() -> None:
    ward = Ward()
    ward.assign("v.1", "h0")
    ward.live(MINUTE, *OTHERS)
    expire(ward, "v.1")
    assert [change.why.reason for change in ward.changes("h0")[1:]] == [Reason.HOST_SILENT]
    ward.live(2 * BEAT, *ALL)
    assert ward.changes("h0")[-1].why.reason is Reason.HOST_OVERDUE
    ward.live(30 * MINUTE, *ALL)
    ward.end("v.1")
    ward.decide()
    assert ward.states("h0") == [HEALTHY, SUSPECT, SUSPECT, HEALTHY]


def test_hosts_that_are_heard_are_no_mass_silence() -> None:
    ward = Ward()
    for index in (0, 1, 2):
        ward.assign(f"v{index}.1", f"h{index}")
        expire(ward, f"v{index}.1", host=f"h{index}")
    ward.live(6 * MINUTE, "h0", "h1", "h2")
    assert ward.state("h3") is LOST


def test_it_can_be_drained_and_given_up_as_dead(ward: Ward) -> None:
    drain(ward, fatal=False)
    assert ward.state("h0") is HostState.DRAINING
    ward = Ward()
    ward.assign("v.1", "h0")
    expire(ward, "v.1")
    drain(ward, fatal=True)
    assert ward.state("h0") is LOST, "its runs end and go elsewhere; it is back when it has none of them"
    ward.end("v.1")
    ward.now += BEAT
    ward.beat("h0", runs=("v.1",))
    ward.live(BEAT, *OTHERS)
    assert ward.state("h0") is LOST
