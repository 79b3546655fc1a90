"""Evidence that is not confirmed: nothing starts on the host, nothing on it ends, and not on too many (S63, P9)."""

from dataclasses import replace

from services.health.policy.mending import Plug
from services.health.policy.radius import allowed
from tenure.domain.host import HostState
from tenure.domain.ids import HostId, UserName
from tenure.domain.reasons import Reason
from tenure.domain.severity import Severity
from tenure.domain.units import MINUTE
from tenure.events.hosts import CapacityChanged
from tenure.events.policy import PolicyChanged
from tenure.events.reports import HealthSignal, HostSignal
from tests.unit.health.ward import BEAT, Ward

HEALTHY, SUSPECT, DRAINING = HostState.HEALTHY, HostState.SUSPECT, HostState.DRAINING


def complain(ward: Ward, *hosts: str, over: bool = False) -> None:
    for host in hosts:
        signal = HealthSignal(
            device="0000:0a:00.0",
            source="nvml",
            code="ecc_uncorrected",
            severity=Severity.DRAIN,
            text="",
            first_at=ward.now,
            last_at=ward.now,
            over=over,
        )
        ward.say(HostSignal(at=ward.now, host=HostId(host), signals=(signal,)))
    ward.decide()


def test_a_doubt_that_passes_leaves_no_trace_but_itself() -> None:
    ward = Ward()
    capacities = sum(isinstance(entry.fact, CapacityChanged) for entry in ward.log.recorded)
    complain(ward, "h0")
    assert ward.state("h0") is SUSPECT and not ward.changes("h0")[-1].incident
    complain(ward, "h0", over=True)
    assert ward.states("h0") == [HEALTHY, SUSPECT, HEALTHY]
    assert sum(isinstance(entry.fact, CapacityChanged) for entry in ward.log.recorded) == capacities


def test_a_doubt_that_lasts_becomes_a_drain() -> None:
    ward = Ward()
    ward.assign("j.1", "h0")
    complain(ward, "h0")
    ward.live(2 * MINUTE, *ward.names)
    assert ward.states("h0") == [HEALTHY, SUSPECT, DRAINING]
    last = ward.changes("h0")[-1]
    assert last.at - ward.changes("h0")[1].at == ward.policy.signal_confirm_ms
    assert (last.why.reason, last.automatic, last.fatal) == (Reason.HOST_SIGNALS, True, False)


def test_a_bad_driver_puts_no_more_in_doubt_than_automation_may_hold() -> None:
    ward = Ward(hosts=40)
    complain(ward, *ward.names)
    most = allowed(40, ward.policy.automation_share)
    assert sum(ward.state(host) is SUSPECT for host in ward.names) == most == 4
    ward.live(2 * MINUTE, *ward.names)
    held = [host for host in ward.names if ward.state(host) is not HEALTHY]
    assert len(held) == most, "what is drained is what was in doubt"
    complain(ward, held[0], over=True)
    ward.live(40 * MINUTE, *ward.names)
    assert sum(ward.state(host) is not HEALTHY for host in ward.names) == most, (
        "the next takes the place that came free"
    )
    assert ward.state(held[0]) is HEALTHY


def test_silence_of_a_doubted_host_is_silence() -> None:
    ward = Ward()
    complain(ward, "h0")
    ward.live(10 * MINUTE, *ward.names[1:])
    assert ward.state("h0") is HostState.LOST


def drained_during_a_mass_silence(ward: Ward) -> None:
    """Drained on evidence, empty when most hosts are silent."""
    ward.assign("j.1", "h0")
    complain(ward, "h0")
    ward.live(2 * MINUTE, *ward.names)
    assert ward.state("h0") is DRAINING
    ward.live(MINUTE, "h0")
    ward.end("j.1")
    ward.live(MINUTE, "h0")


def test_the_plug_is_asked_for_nothing_while_most_hosts_are_silent() -> None:
    """S66: a reboot is not what an outage of the network needs."""
    ward = Ward(plug=Plug(repairs=True))
    drained_during_a_mass_silence(ward)
    assert ward.state("h0") is HostState.DRAINED
    ward.live(2 * MINUTE, *ward.names)
    assert ward.state("h0") is HostState.REPAIRING, "now they are heard again"


def test_the_plug_is_asked_for_nothing_while_automation_is_off() -> None:
    ward = Ward(plug=Plug(repairs=True))
    ward.assign("j.1", "h0")
    complain(ward, "h0")
    ward.live(2 * MINUTE, *ward.names)
    off = replace(ward.policy, automation_share=0)
    ward.say(PolicyChanged(at=ward.now, policy=off, by=UserName("op")))
    ward.end("j.1")
    ward.live(MINUTE, *ward.names)
    assert ward.state("h0") is HostState.DRAINED
    ward.say(PolicyChanged(at=ward.now, policy=ward.policy, by=UserName("op")))
    ward.live(MINUTE, *ward.names)
    assert ward.state("h0") is HostState.REPAIRING


def test_evidence_at_the_instant_of_a_mass_silence_waits() -> None:
    """Nothing of the silence is on record yet when the evidence is judged: names and order must not decide (S67)."""
    for accused in ("h0", "h3"):
        ward = Ward()
        ward.live(MINUTE, *ward.names)
        ward.live(ward.policy.suspect_after_ms - BEAT, accused)
        ward.now += BEAT
        ward.beat(accused)
        complain(ward, accused)
        assert [ward.state(host) for host in ward.names if host != accused] == [SUSPECT] * 3
        assert ward.state(accused) is HEALTHY
        assert ward.changes(accused)[-1].why.reason is Reason.HOST_HELD_BACK
