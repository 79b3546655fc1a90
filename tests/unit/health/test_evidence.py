"""When evidence counts: on hosts that are suspect, wait for maintenance, were resumed by a person, or repaired."""

import pytest

from services.health.policy.mending import Plug
from tenure.domain.host import HostState, RepairStep
from tenure.domain.ids import HostId, UserName
from tenure.domain.policy import Policy
from tenure.domain.reasons import Reason
from tenure.domain.severity import Severity
from tenure.domain.units import HOUR, MINUTE, SECOND, Millis
from tenure.events.hosts import HostStateChanged, RepairRequested
from tenure.events.intake import DrainRequested, RepairCompleted
from tenure.events.reports import HealthSignal, HostSignal
from tests.unit.health.test_drain import drain, resume
from tests.unit.health.test_overdue import expire
from tests.unit.health.ward import BEAT, Ward

HEALTHY, SUSPECT, LOST, FAILED = HostState.HEALTHY, HostState.SUSPECT, HostState.LOST, HostState.FAILED
DRAINING, DRAINED, REPAIRING = HostState.DRAINING, HostState.DRAINED, HostState.REPAIRING
FALLEN = ("kernel", "xid_79", Severity.FATAL)
WORN = ("nvml", "row_remap_pending", Severity.DRAIN)
LOST_GPU = ("nvml", "gpu_lost", Severity.FATAL)


def signal(of: tuple[str, str, Severity], *, first_at: Millis, last_at: Millis) -> HealthSignal:
    source, code, severity = of
    return HealthSignal(
        device="gpu5", source=source, code=code, severity=severity, text="", first_at=first_at, last_at=last_at
    )


def say(ward: Ward, host: str, *signals: HealthSignal) -> None:
    ward.say(HostSignal(at=ward.now, host=HostId(host), signals=signals))
    ward.decide()


def now(ward: Ward, of: tuple[str, str, Severity]) -> HealthSignal:
    return signal(of, first_at=ward.now, last_at=ward.now)


def overdue() -> Ward:
    ward = Ward()
    ward.assign("v.1", "h0")
    expire(ward, "v.1")
    assert ward.changes("h0")[-1].why.reason is Reason.HOST_OVERDUE
    return ward


def last(ward: Ward, host: str = "h0") -> HostStateChanged:
    return ward.changes(host)[-1]


def test_a_host_that_does_not_release_may_have_lost_the_gpu_that_its_run_hangs_on() -> None:
    ward = overdue()
    say(ward, "h0", now(ward, FALLEN))
    assert (last(ward).state, last(ward).fatal, last(ward).why.reason) == (DRAINING, True, Reason.HOST_SIGNAL_FATAL)


def test_where_automation_is_off_it_stays_suspect() -> None:
    ward = Ward(policy=Policy(automation_share=0))
    ward.assign("v.1", "h0")
    expire(ward, "v.1")
    say(ward, "h0", now(ward, FALLEN))
    ward.live(HOUR, *ward.names)
    assert ward.states("h0") == [HEALTHY, SUSPECT]


def test_what_is_said_against_a_host_that_waits_for_maintenance_ends_what_it_takes_before() -> None:
    ward = Ward()
    window = DrainRequested(
        at=ward.now, host=HostId("h0"), by=UserName("op"), comment="fan", deadline=ward.now + 24 * HOUR, accepts=True
    )
    ward.say(window)
    ward.decide()
    assert (last(ward).accepts, ward.capacity("h0")) == (True, 8)
    ward.assign("paid.1", "h0")
    say(ward, "h0", now(ward, WORN), now(ward, ("dcgm", "ecc_uncorrected", Severity.DRAIN)))
    ended = last(ward)
    assert (ended.state, ended.accepts, ended.fatal, ended.deadline) == (DRAINING, False, False, window.deadline)
    assert ward.capacity("h0") == 0, "and what is promised to end before it goes on"
    ward.live(HOUR, *ward.names)
    assert len(ward.changes("h0")) == 3, "it is said once"
    ward.end("paid.1")
    ward.decide()
    assert ward.state("h0") is DRAINED


def missing_one(ward: Ward) -> None:
    """It comes back with seven, and the plug has it."""
    ward.register("h0", gpus=7)
    ward.live(2 * MINUTE, "h0", gpus=7)
    assert ward.state("h0") is REPAIRING


def answer(ward: Ward) -> None:
    host, incident = HostId("h0"), last(ward).incident
    ward.say(
        RepairCompleted(
            at=ward.now, host=host, by=UserName("plug"), comment="", incident=incident, step=RepairStep.REPAIR, ok=True
        )
    )
    ward.decide()


def test_a_host_that_still_lacks_a_gpu_is_not_repaired_whatever_the_plug_says() -> None:
    ward = Ward(hosts=1, plug=Plug(repairs=True, tests=True))
    missing_one(ward)
    answer(ward)
    ward.live(ward.policy.repair_limit_ms, "h0", gpus=7)
    assert ward.states("h0") == [HEALTHY, SUSPECT, DRAINING, DRAINED, REPAIRING, FAILED]
    assert last(ward).why.numbers["gpus"] == 7


def test_one_whose_gpu_is_back_goes_on_to_its_test() -> None:
    ward = Ward(hosts=1, plug=Plug(repairs=True, tests=True))
    missing_one(ward)
    answer(ward)
    ward.register("h0")
    ward.live(BEAT, "h0")
    assert ward.state("h0") is HostState.PROBATION


def test_the_plug_is_told_what_drained_a_host_that_no_device_complains_of() -> None:
    ward = Ward(hosts=1, plug=Plug(repairs=True))
    missing_one(ward)
    (asked,) = [each.fact for each in ward.log.recorded if isinstance(each.fact, RepairRequested)]
    (line,) = asked.evidence
    assert line.startswith("health host_gpus_missing: gpus 7, gpus_registered 8, lasted_ms 60000")


def resumed(of: tuple[str, str, Severity]) -> tuple[Ward, HealthSignal]:
    """Drained for it, looked at by a person and resumed, while the signal is open."""
    ward = Ward()
    seen = now(ward, of)
    say(ward, "h0", seen)
    ward.live(2 * MINUTE, *ward.names)
    resume(ward)
    ward.live(10 * MINUTE, *ward.names)
    assert ward.state("h0") is HEALTHY
    return ward, seen


@pytest.mark.parametrize(("of", "state"), [(FALLEN, DRAINED), (LOST_GPU, HEALTHY)])
def test_a_person_excuses_what_is_so_and_not_what_happens_again(
    of: tuple[str, str, Severity], state: HostState
) -> None:
    ward, seen = resumed(of)
    say(ward, "h0", signal(of, first_at=seen.first_at, last_at=ward.now))
    assert ward.state("h0") is state


def test_a_clock_that_is_behind_hides_nothing_new_after_a_return() -> None:
    ward, _ = resumed(WORN)
    drain(ward)
    resume(ward)
    ward.live(BEAT, *ward.names)
    at = ward.now - 8 * SECOND
    say(ward, "h0", signal(FALLEN, first_at=at, last_at=at))
    assert ward.states("h0")[-2:] == [DRAINING, DRAINED]


def test_what_was_open_before_a_return_is_not_new_by_a_clock_that_is_behind() -> None:
    ward = Ward()
    at = ward.now - 3 * SECOND
    say(ward, "h0", signal(FALLEN, first_at=at, last_at=at))
    ward.now += SECOND
    ward.beat(*ward.names)
    ward.now += SECOND
    ward.beat(*ward.names)
    ward.say(RepairCompleted(at=ward.now, host=HostId("h0"), by=UserName("op"), comment="reset"))
    ward.decide()
    ward.live(HOUR, *ward.names)
    assert ward.state("h0") is HEALTHY


def test_a_person_who_resumes_a_silent_host_has_seen_it_too() -> None:
    ward = Ward()
    ward.assign("r.1", "h0")
    seen = now(ward, WORN)
    say(ward, "h0", seen)
    ward.live(2 * MINUTE, *ward.names)
    ward.live(2 * MINUTE, "h1", "h2", "h3")
    assert ward.states("h0") == [HEALTHY, SUSPECT, DRAINING, SUSPECT]
    resume(ward)
    ward.live(MINUTE, *ward.names)
    say(ward, "h0", signal(WORN, first_at=seen.first_at, last_at=ward.now))
    ward.live(HOUR, *ward.names)
    assert ward.state("h0") is HEALTHY


def test_evidence_held_back_in_a_mass_silence_is_looked_at_when_that_ends_by_a_loss() -> None:
    ward = Ward(hosts=40)
    silent, heard = ward.names[:21], ward.names[21:]
    ward.live(MINUTE, *heard)
    say(ward, "h21", now(ward, FALLEN))
    ward.live(BEAT, *heard)
    assert (ward.state("h21"), last(ward, "h21").why.reason) == (HEALTHY, Reason.HOST_HELD_BACK)
    for host in silent[:2]:  # a person calls two of them dead: no more than half are silent now
        drain(ward, host, fatal=True)
    assert ward.state(silent[0]) is LOST
    ward.live(BEAT, *heard)
    assert ward.states("h21")[-2:] == [DRAINING, DRAINED]


def test_beats_that_say_nothing_new_cost_nothing() -> None:
    ward = Ward(policy=Policy(automation_share=0))
    ward.live(2 * MINUTE, "h0", gpus=7)
    assert last(ward).why.reason is Reason.HOST_HELD_BACK
    ward.beat("h0", gpus=7)
    ward.actor.fold()
    assert not ward.actor.state.touched
