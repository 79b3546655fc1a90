"""Silence, suspicion, loss and return (S56, S64, S66, S67)."""

import pytest

from services.health.decider import role
from services.health.policy.transitions import IllegalTransitionError
from services.health.state import dump, load
from tenure.domain.host import HostState
from tenure.domain.ids import HostId, Position, UserName
from tenure.domain.policy import Policy
from tenure.domain.reasons import Reason, Why
from tenure.domain.units import HOUR, MINUTE, SECOND
from tenure.events.fact import Recorded
from tenure.events.hosts import HostStateChanged
from tenure.events.intake import DrainRequested
from tests.unit.health.ward import BEAT, START, Ward

HEALTHY, SUSPECT, LOST = HostState.HEALTHY, HostState.SUSPECT, HostState.LOST
OTHERS = ("h1", "h2", "h3")


def test_a_registered_host_is_usable_with_its_first_beat() -> None:
    ward = Ward(hosts=1)
    ward.register("new")
    ward.decide()
    assert ward.states("new") == [] and ward.capacity("new") == 0
    ward.beat("new", gpus=7)
    ward.decide()
    assert ward.states("new") == [HEALTHY, SUSPECT], "nothing starts there until that is confirmed or over"
    assert ward.capacity("new") == 7, "capacity is what the beat says works, not what was registered"


def test_a_beat_of_an_unregistered_host_says_nothing() -> None:
    ward = Ward()
    ward.beat("stranger")
    ward.decide()
    assert ward.states("stranger") == []


def test_silence_becomes_suspicion_at_the_knob_and_capacity_stays() -> None:
    ward = Ward()
    ward.live(15 * SECOND, *OTHERS)
    assert ward.state("h0") is HEALTHY
    assert ward.actor.wake_at == START + 20 * SECOND, "P11: a timer, not luck"
    ward.live(5 * SECOND, *OTHERS)
    change = ward.changes("h0")[-1]
    assert (change.state, change.previous, change.at, change.last_seen) == (SUSPECT, HEALTHY, START + 20_000, START)
    assert change.why.reason is Reason.HOST_SILENT and change.why.numbers["silent_ms"] == 20_000
    assert ward.capacity("h0") == 8, "S64: suspicion is not failure"


def test_who_was_heard_a_moment_ago_is_not_lost_by_a_suspicion_that_was_written_late() -> None:
    """Seed 6: the role stood still between its decision and its append, for as long as it takes to lose a host."""
    ward = Ward()
    for at in range(START + BEAT, START + 20 * SECOND, BEAT):
        ward.beat(*OTHERS, at=at)

    def stand_still() -> None:
        for at in range(START + 20 * SECOND, START + 5 * MINUTE, BEAT):
            ward.beat("h0", *OTHERS, at=at)

    ward.actor.step(START + 20 * SECOND, between=stand_still)
    ward.now = START + 5 * MINUTE
    ward.decide()
    assert ward.states("h0") == [HEALTHY, SUSPECT], "on record for long enough, and heard five seconds ago"
    assert ward.actor.wake_at == START + 5 * MINUTE - BEAT + ward.policy.suspect_after_ms, "silent again first"
    ward.live(2 * BEAT, "h0", *OTHERS)
    assert ward.state("h0") is HEALTHY


def test_one_beat_does_not_bring_a_suspect_back_two_do() -> None:
    ward = Ward()
    ward.live(20 * SECOND, *OTHERS)
    ward.live(BEAT, "h0", *OTHERS)
    assert ward.state("h0") is SUSPECT
    ward.live(BEAT, "h0", *OTHERS)
    assert ward.states("h0") == [HEALTHY, SUSPECT, HEALTHY]
    assert ward.changes("h0")[-1].why.reason is Reason.HOST_HEARD_AGAIN


def test_beats_that_were_kept_back_do_not_bring_a_suspect_back_by_themselves() -> None:
    ward = Ward()
    ward.live(MINUTE, *OTHERS)
    for late in range(3):
        ward.beat("h0", at=START + (late + 1) * BEAT)
    ward.decide()
    assert ward.state("h0") is SUSPECT, "they are old: nobody knows whether the host is there now"


def test_a_host_that_flaps_is_never_lost() -> None:
    """S64: 45 s away every 5 min."""
    ward = Ward()
    for _ in range(4):
        ward.live(45 * SECOND, *OTHERS)
        ward.live(255 * SECOND, "h0", *OTHERS)
    assert ward.states("h0") == [HEALTHY] + [SUSPECT, HEALTHY] * 4
    assert ward.capacity("h0") == 8


def test_long_silence_while_others_are_heard_is_loss() -> None:
    ward = Ward()
    ward.live(5 * MINUTE, *OTHERS)
    change = ward.changes("h0")[-1]
    assert (change.state, change.at, change.last_seen) == (LOST, START + 5 * MINUTE, START)
    assert change.why.reason is Reason.HOST_SILENT_TOO_LONG
    assert change.why.numbers["hosts_silent"] == 1 and change.why.numbers["hosts_watched"] == 4
    assert ward.capacity("h0") == 0


def test_a_lost_host_is_back_after_two_signs_of_life() -> None:
    ward = Ward()
    ward.live(5 * MINUTE, *OTHERS)
    ward.live(BEAT, "h0", *OTHERS)
    assert ward.state("h0") is LOST
    ward.live(BEAT, "h0", *OTHERS)
    assert ward.state("h0") is HEALTHY and ward.capacity("h0") == 8


def test_a_registration_counts_as_a_sign_of_life() -> None:
    ward = Ward()
    ward.live(5 * MINUTE, *OTHERS)
    ward.register("h0")
    ward.decide()
    assert ward.state("h0") is LOST, "nobody knows yet what it still runs"
    ward.beat("h0")
    ward.decide()
    assert ward.state("h0") is HEALTHY


def test_a_lost_host_is_not_back_while_it_holds_runs_that_are_over() -> None:
    """I1: its GPUs are not free although the log gave the run up."""
    ward = Ward()
    ward.assign("j.1", "h0")
    ward.live(5 * MINUTE, *OTHERS)
    ward.end("j.1")
    for _ in range(3):
        ward.now += BEAT
        ward.beat("h0", runs=("j.1",))
        ward.beat(*OTHERS)
        ward.decide()
    assert ward.state("h0") is LOST
    ward.live(BEAT, "h0", *OTHERS)
    assert ward.state("h0") is HEALTHY


def test_while_most_hosts_are_silent_nobody_is_lost() -> None:
    """S66: three of four cannot all have died; the network has."""
    ward = Ward()
    ward.live(HOUR, "h3")
    for host in ("h0", "h1", "h2"):
        assert set(ward.states(host)[1:]) == {SUSPECT}
        assert ward.capacity(host) == 8
        renewed = ward.changes(host)[2]
        assert renewed.why.numbers["hosts_silent"] == 3, "the log says why nobody was given up"
    ward.live(10 * SECOND, "h0", "h1", "h2", "h3")
    assert [ward.state(host) for host in ward.names] == [HEALTHY] * 4


def test_after_a_mass_silence_every_host_has_the_whole_time_again() -> None:
    """S67: most come back; the one that does not is lost only after a silence of its own."""
    ward = Ward()
    ward.live(HOUR, "h3")
    over_at = ward.now + 2 * BEAT
    ward.live(4 * MINUTE, *OTHERS)
    assert ward.state("h0") is SUSPECT
    ward.live(2 * MINUTE, *OTHERS)
    assert ward.state("h0") is LOST
    assert ward.changes("h0")[-1].at == over_at + ward.policy.lost_after_ms - ward.policy.suspect_after_ms


def racks() -> tuple[Ward, list[str], list[str]]:
    """Ten hosts, the first three of them a block of their own."""
    ward = Ward(hosts=10)
    rack, rest = [str(name) for name in ward.names[:3]], [str(name) for name in ward.names[3:]]
    ward.register(*rack, block="rack")
    ward.live(2 * BEAT, *rack, *rest)
    return ward, rack, rest


def test_a_block_that_is_silent_whole_is_waited_for_as_its_switch_may_come_back() -> None:
    ward, rack, rest = racks()
    ward.live(25 * MINUTE, *rest)
    for host in rack:
        assert ward.state(host) is SUSPECT and ward.capacity(host) == 8
        assert ward.changes(host)[2].why.numbers["block_silent"] == 3, "the log says why it was not given up"
    ward.live(2 * BEAT, *rack, *rest)
    assert {ward.state(host) for host in ward.names} == {HEALTHY}


def test_a_block_that_stays_silent_is_lost_in_the_end() -> None:
    ward, rack, rest = racks()
    ward.live(ward.policy.block_lost_after_ms + ward.policy.lost_after_ms, *rest)
    assert [ward.state(host) for host in rack] == [LOST] * 3
    silent = ward.changes(rack[0])[-1].why.numbers["silent_ms"]
    assert isinstance(silent, int) and silent >= ward.policy.block_lost_after_ms


def test_hosts_of_a_block_of_which_others_are_heard_are_lost_as_any() -> None:
    ward, rack, rest = racks()
    ward.live(6 * MINUTE, rack[2], *rest)
    assert [ward.state(host) for host in rack] == [LOST, LOST, HEALTHY]


def test_one_of_two_hosts_is_lost_while_the_other_is_heard() -> None:
    ward = Ward(hosts=2)
    ward.live(5 * MINUTE, "h1")
    assert [ward.state(host) for host in ward.names] == [LOST, HEALTHY]


@pytest.mark.parametrize("hosts", [1, 2])
def test_a_small_cluster_that_is_cut_off_whole_is_not_lost(hosts: int) -> None:
    """S67: with nobody heard, dead hosts cannot be told from a way to them that is closed."""
    ward = Ward(hosts=hosts)
    ward.live(HOUR)
    for host in ward.names:
        assert set(ward.states(host)[1:]) == {SUSPECT}
        assert ward.changes(host)[2].why.numbers["hosts_silent"] == hosts
        assert ward.capacity(host) == 8
    ward.live(10 * SECOND, *ward.names)
    assert [ward.state(host) for host in ward.names] == [HEALTHY] * hosts


def test_of_a_small_cluster_one_is_lost_after_a_silence_of_its_own() -> None:
    """The other is heard again: from then on the silent one is alone, and has the whole time."""
    ward = Ward(hosts=2)
    ward.live(HOUR)
    ward.live(4 * MINUTE, "h1")
    assert [ward.state(host) for host in ward.names] == [SUSPECT, HEALTHY]
    ward.live(2 * MINUTE, "h1")
    assert [ward.state(host) for host in ward.names] == [LOST, HEALTHY]


def test_a_drained_host_that_is_heard_shows_that_the_way_to_its_cluster_is_open() -> None:
    ward = Ward(hosts=2)
    ward.say(DrainRequested(at=ward.now, host=HostId("h1"), by=UserName("op"), comment=""))
    ward.live(BEAT, "h0", "h1")
    assert ward.state("h1") is HostState.DRAINED
    ward.live(5 * MINUTE, "h1")
    assert ward.state("h0") is LOST


def test_a_small_cluster_that_flaps_keeps_nobody_elsewhere_from_being_lost() -> None:
    ward = Ward()
    ward.register("dev", cluster="dev", block="dev")
    ward.live(2 * BEAT, "dev", *ward.names)
    for _ in range(3):
        ward.live(40 * SECOND, *OTHERS)
        ward.live(3 * MINUTE, "dev", *OTHERS)
    assert ward.states("dev").count(SUSPECT) == 3, "each time a mass, and over"
    assert ward.state("h0") is LOST


def test_a_host_of_which_a_beat_comes_now_and_then_is_not_lost() -> None:
    """S64: fewer beats than it takes to be well, and never a silence of `lost_after`."""
    ward = Ward()
    for _ in range(30):
        ward.live(55 * SECOND, *OTHERS)
        ward.live(BEAT, "h0", *OTHERS)
    assert ward.state("h0") is SUSPECT and ward.capacity("h0") == 8
    ward.live(ward.policy.lost_after_ms, *OTHERS)
    assert ward.state("h0") is LOST
    silent, limit = (ward.changes("h0")[-1].why.numbers[name] for name in ("silent_ms", "lost_after_ms"))
    assert isinstance(silent, int) and isinstance(limit, int) and silent >= limit, "the record is what was promised"


def test_a_host_that_registers_in_another_cluster_counts_there() -> None:
    """I6: as after a restart from a snapshot."""
    ward = Ward(hosts=7)
    ward.live(MINUTE, *ward.names[3:])
    ward.register(*ward.names[:3], cluster="d")
    ward.decide()
    folded = ward.actor.state.tally
    assert {name: counts for name, counts in folded.items() if any(counts)} == load(dump(ward.actor.state)).tally


def test_an_outage_of_the_log_is_no_evidence() -> None:
    """S67: nobody could say anything for an hour; afterwards one agent is slower than the others to say something."""
    ward = Ward()
    ward.now += HOUR
    ward.beat(*OTHERS)
    ward.decide()
    assert ward.states("h0") == [HEALTHY], "silence is counted from when the log could be followed again"
    ward.live(15 * SECOND, "h0", *OTHERS)
    assert [ward.states(host) for host in ward.names] == [[HEALTHY]] * 4


def test_a_role_that_was_away_renews_the_suspicion_instead_of_giving_up_the_host() -> None:
    """The process was stopped over the deadline: the backlog it reads first shows the others, not yet the suspect."""
    ward = Ward()
    ward.live(MINUTE, *OTHERS)
    for _ in range(120):
        ward.now += BEAT
        ward.beat(*OTHERS)
    ward.decide()
    assert ward.states("h0") == [HEALTHY, SUSPECT, SUSPECT]
    assert int(ward.changes("h0")[-1].why.numbers["late_ms"] or 0) >= 20_000
    ward.live(10 * SECOND, "h0", *OTHERS)
    assert ward.state("h0") is HEALTHY


def test_a_fresh_role_gives_every_host_time_to_be_heard() -> None:
    ward = Ward()
    later = START + 10 * MINUTE
    fresh = role(ward.policy, started_at=later)
    state = fresh.initial()
    for recorded in ward.log.recorded:
        fresh.evolve(state, recorded)
    assert fresh.decide(state, later).facts == () or list(fresh.decide(state, later).facts) == []
    assert fresh.decide(state, later).wake_at == later + ward.policy.suspect_after_ms
    silent = fresh.decide(state, later + ward.policy.suspect_after_ms).facts
    assert [fact.state for fact in silent if isinstance(fact, HostStateChanged)] == [SUSPECT] * 4


def test_a_change_of_working_gpus_is_said_once() -> None:
    """S51: capacity is its own stream of facts."""
    ward = Ward(hosts=1)
    for gpus in (7, 7, 8):
        ward.now += BEAT
        ward.beat("h0", gpus=gpus)
        before = len(ward.log.recorded)
        ward.decide()
        assert ward.capacity("h0") == gpus
        said = len(ward.log.recorded) - before
        assert said == (0 if gpus == 7 and ward.now == START + 2 * BEAT else 2), "and the doubt begins and ends"


def test_another_gpu_type_is_said() -> None:
    ward = Ward(hosts=1)
    ward.register("h0", gpu_type="H200")
    before = len(ward.log.recorded)
    ward.decide()
    assert len(ward.log.recorded) == before + 1


def test_an_illegal_transition_tells_the_story() -> None:
    ward = Ward(hosts=1)
    why = Why(rule="P2", reason=Reason.HOST_SILENT_TOO_LONG)
    fact = HostStateChanged(at=1, host=HostId("h0"), state=LOST, previous=HEALTHY, last_seen=0, why=why)
    with pytest.raises(IllegalTransitionError, match=r"healthy -> lost .* 1000000: healthy \(host_registered\)"):
        ward.actor.role.evolve(ward.actor.state, Recorded(Position(99), fact))


def test_many_hosts_at_once_are_said_in_atomic_parts() -> None:
    ward = Ward(hosts=1)
    many = [f"m{index:04}" for index in range(1_200)]
    ward.register(*many)
    ward.beat(*many)
    ward.actor.fold()
    first = ward.actor.step(ward.now)
    assert 900 < len(first) < 1_000
    ward.decide()
    assert all(ward.state(host) is HEALTHY and ward.capacity(host) == 8 for host in many)


def test_the_knobs_decide() -> None:
    quick = role(Policy(suspect_after_ms=1_000, lost_after_ms=3_000))
    ward = Ward(hosts=2)
    state = quick.initial()
    for recorded in ward.log.recorded:
        quick.evolve(state, recorded)
    facts = quick.decide(state, START + 1_000).facts
    assert [fact.state for fact in facts if isinstance(fact, HostStateChanged)] == [SUSPECT, SUSPECT]
