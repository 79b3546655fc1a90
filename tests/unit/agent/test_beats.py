"""Heartbeats: occupancy without a gap, without an overlap, cut at full hours, in facts of bounded size."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.agent.beats import SEGMENTS_MAX, Spool, make_beats, read_spool, write_spool
from services.agent.policy.told import cut, told_by
from services.agent.state import Core, Key, Replica, State
from tenure.domain.host import HostSpec
from tenure.domain.ids import HostId, Position, RunId
from tenure.domain.job import ReplicaPlace
from tenure.domain.units import HOUR
from tenure.events.plausible import impossible
from tenure.events.reports import Heartbeat, ReplicaExit
from tests.unit.agent.runs import assigned


def a_state(*replicas: Replica, hosts: int = 1) -> State:
    specs = tuple(HostSpec(host=HostId(f"h{n}"), gpus=8, gpu_type="t", block="b", cluster="c") for n in range(hosts))
    state = State(Core(), specs)
    for replica in replicas:
        state.see(replica)
    return state


def a_replica(*, number: int = 0, host: str = "h0", started_at: int | None = 0, ended_at: int | None = None) -> Replica:
    run = assigned(host)
    place = ReplicaPlace(replica=number, host=HostId(host), gpus=(0, 1))
    gone = None if ended_at is None else ReplicaExit(replica=number, host=HostId(host), at=ended_at, code=0)
    return Replica(key=Key(RunId("j.1"), number), assigned=run, place=place, started_at=started_at, exit=gone)


def beats_of(state: State, now: int) -> tuple[tuple[Heartbeat, ...], dict[Key, int]]:
    return make_beats(state, now, agent="h0", busy=lambda _: 250, gpus_working=lambda spec: spec.gpus)


def test_a_segment_says_who_held_how_many_gpus_and_how_busy_they_were() -> None:
    (beat,), until = beats_of(a_state(a_replica(started_at=100)), 5_100)
    (segment,) = beat.hosts[0].segments
    assert (segment.run, segment.budget, segment.user, segment.charged) == ("j.1", "a", "u", True)
    assert (segment.gpus, segment.since, segment.until, segment.busy_milli) == (2, 100, 5_100, 250)
    assert beat.hosts[0].runs == ("j.1",) and until == {Key(RunId("j.1"), 0): 5_100}


def test_an_ended_replica_is_reported_to_its_end_and_held_no_more() -> None:
    (beat,), _ = beats_of(a_state(a_replica(started_at=100, ended_at=900)), 5_100)
    assert beat.hosts[0].runs == () and beat.hosts[0].segments[0].until == 900


def test_what_a_run_held_after_it_was_given_up_with_its_host_is_nobodys() -> None:
    replica = a_replica(started_at=100, ended_at=9_000)
    replica.given_up_at = 4_000
    (beat,), until = beats_of(a_state(replica), 9_100)
    assert beat.hosts[0].segments[0].until == 4_000 and until == {replica.key: 4_000}
    replica.said_exit, replica.occupied_until = True, 4_000
    assert replica.settled


def test_what_the_log_heard_of_it_beyond_that_is_taken_back_once() -> None:
    replica = a_replica(started_at=100, ended_at=HOUR + 9_000)
    replica.said_exit, replica.given_up_at, replica.occupied_until = True, HOUR - 4_000, HOUR + 9_000
    assert not replica.settled
    (beat,), until = beats_of(a_state(replica), HOUR + 9_100)
    pieces = [(part.gpus, part.since, part.until, part.busy_milli) for part in beat.hosts[0].segments]
    assert pieces == [(-2, HOUR - 4_000, HOUR, None), (-2, HOUR, HOUR + 9_000, None)]
    assert until == {replica.key: HOUR - 4_000} == told_by([beat], [beat])
    assert impossible(beat) == "", "no reader passes it over"
    replica.occupied_until = until[replica.key]
    assert replica.settled
    (beat,), until = beats_of(a_state(replica), HOUR + 9_200)
    assert not beat.hosts[0].segments and not until


@pytest.mark.parametrize(("given_up", "told"), [(9_000, 5_100), (4_000, 4_000), (50, 100)])
def test_of_a_heartbeat_that_was_cut_the_log_has_what_was_left(given_up: int, told: int) -> None:
    replica = a_replica(started_at=100)
    (beat,), _ = beats_of(a_state(replica), 5_100)
    assert told_by([beat], [cut(beat, {replica.key: given_up})]) == {replica.key: told}


def test_a_replica_that_has_not_started_occupies_nothing_but_is_held() -> None:
    (beat,), until = beats_of(a_state(a_replica(started_at=None)), 5_100)
    assert beat.hosts[0].runs == ("j.1",) and not beat.hosts[0].segments and not until


@given(st.integers(0, 3 * HOUR), st.lists(st.integers(1, 2 * HOUR), min_size=1, max_size=8))
def test_segments_join_and_never_cross_an_hour(started_at: int, steps: list[int]) -> None:
    replica = a_replica(started_at=started_at)
    state, now, seen = a_state(replica), started_at, []
    for step in steps:  # some beats are lost on the way and reach back when they come through
        now += step
        beats, until = beats_of(state, now)
        if step % 3:
            seen += [segment for beat in beats for host in beat.hosts for segment in host.segments]
            replica.occupied_until = until[replica.key]
    edges = [started_at, *[segment.until for segment in seen]]
    assert [segment.since for segment in seen] == edges[:-1], "no gap, no overlap"
    assert all(segment.since // HOUR == (segment.until - 1) // HOUR for segment in seen)


def test_many_hosts_are_spread_over_facts_of_bounded_size() -> None:
    replicas = [a_replica(number=number, host=f"h{number % 50}") for number in range(SEGMENTS_MAX + 500)]
    beats, _ = beats_of(a_state(*replicas, hosts=50), 10)
    assert len(beats) == 2
    assert all(sum(len(host.segments) + 1 for host in beat.hosts) <= SEGMENTS_MAX for beat in beats)
    assert [host.host for beat in beats for host in beat.hosts] == [f"h{number}" for number in range(50)]
    assert len({beat.id for beat in beats}) == 2


def test_the_spool_is_read_as_it_was_written(tmp_path: Path) -> None:
    beats, _ = beats_of(a_state(a_replica()), 5_000)
    spool = Spool(before=Position(17), beats=beats, occupied_until={"j.1/0": 5_000})
    assert read_spool(tmp_path / "beat.json") is None
    write_spool(tmp_path / "beat.json", spool)
    assert read_spool(tmp_path / "beat.json") == spool
