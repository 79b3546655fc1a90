"""What is asked of hosts again, from the states that the log has of them. Instants in hours."""

from dataclasses import replace

import msgspec

from simulator.past.outages import Ask, orders_of, out_of_service
from simulator.past.replay import Changes
from simulator.past.story import Past
from tenure.domain.host import HostSpec, HostState
from tenure.domain.ids import HostId
from tenure.domain.reasons import EndCause, Reason
from tenure.domain.units import HOUR
from tenure.events.hosts import HostStateChanged
from tenure.events.placing import RunAssigned, RunEnded
from tenure.events.reports import HostRegistered
from tests.unit.simulator.past.diary import HOST, Diary, ms
from tests.unit.simulator.past.scene import replayed

H = HostState


def orders(diary: Diary) -> list[tuple[float, str]]:
    return [(order.at / HOUR, order.ask.value) for order in orders_of(Past(diary.facts).host_states)]


def test_a_drain_is_asked_once_until_the_host_is_given_back() -> None:
    diary = Diary()
    for at, state in enumerate([H.HEALTHY, H.DRAINING, H.DRAINED, H.REPAIRING, H.PROBATION, H.HEALTHY]):
        diary.host(state, at)
    assert orders(diary) == [(1, "drain"), (5, "return")]


def test_a_drain_that_became_fatal_is_a_loss_from_then_on() -> None:
    diary = Diary()
    diary.host(H.DRAINING, 1)
    diary.host(H.DRAINING, 2, fatal=True)
    diary.host(H.DRAINED, 2)
    diary.host(H.HEALTHY, 4)
    assert orders(diary) == [(1, "drain"), (2, "lose"), (4, "return")]
    assert orders_of(Past(diary.facts).host_states)[-1].was_lost


def test_a_silent_host_is_lost_when_it_fell_silent_and_a_short_silence_is_none() -> None:
    diary = Diary()
    diary.host(H.SUSPECT, 1)
    diary.host(H.HEALTHY, 2)
    diary.host(H.SUSPECT, 3)
    diary.host(H.LOST, 4)
    assert orders(diary) == [(3, "lose")]


def test_a_maintenance_window_is_kept() -> None:
    diary = Diary()
    diary.host(H.DRAINING, 1, window=9)
    (order,) = orders_of(Past(diary.facts).host_states)
    assert order.ask is Ask.DRAIN and order.empty_at == 9 * HOUR


def test_who_is_out_of_service() -> None:
    diary = Diary()
    diary.host(H.HEALTHY, 0)
    diary.host(H.SUSPECT, 1)
    assert out_of_service(Past(diary.facts).host_states[HOST]) is None, "a silent host may come back any moment"
    diary.host(H.DRAINING, 2)
    diary.host(H.DRAINED, 3)
    left = out_of_service(Past(diary.facts).host_states[HOST])
    assert left is not None and left.at == 2 * HOUR
    diary.host(H.HEALTHY, 4)
    assert out_of_service(Past(diary.facts).host_states[HOST]) is None


def test_a_host_that_is_lost_when_the_replay_begins_is_used_again_when_it_was_back() -> None:
    diary = Diary()
    diary.host(H.HEALTHY, 0, reason=Reason.HOST_REGISTERED)
    diary.host(H.SUSPECT, 2, reason=Reason.HOST_SILENT)
    diary.host(H.LOST, 3, reason=Reason.HOST_SILENT_TOO_LONG)
    diary.submit("j", 11)
    diary.host(H.HEALTHY, 30, reason=Reason.HOST_HEARD_AGAIN)
    diary.ran("j", 31, 32)
    recorded = replayed(Past(diary.facts), start=10 * HOUR, end=40 * HOUR)
    starts = [entry.fact.at / HOUR for entry in recorded if isinstance(entry.fact, RunAssigned)]
    assert starts == [30]


def test_a_host_that_falls_silent_before_the_replay_begins_and_is_lost_after_is_lost_at_its_beginning() -> None:
    diary = Diary()
    diary.host(H.HEALTHY, 0, reason=Reason.HOST_REGISTERED)
    diary.ran("runs", 1, None, resumable=True)
    diary.host(H.SUSPECT, 9, reason=Reason.HOST_SILENT)
    diary.host(H.LOST, 11, reason=Reason.HOST_SILENT_TOO_LONG)
    diary.submit("j", 12)
    diary.host(H.HEALTHY, 30, reason=Reason.HOST_HEARD_AGAIN)
    diary.submit("last", 40)
    recorded = replayed(Past(diary.facts), start=10 * HOUR, end=40 * HOUR)
    facts = [entry.fact for entry in recorded]
    ends = [(fact.at / HOUR, fact.cause_of_end) for fact in facts if isinstance(fact, RunEnded)]
    assert ends[0] == (10, EndCause.HOST_LOST)
    assert min(fact.at / HOUR for fact in facts if isinstance(fact, RunAssigned) and fact.at >= 10 * HOUR) == 30


def test_outages_of_hosts_that_came_later_are_kept_where_the_cluster_has_them_from_the_beginning() -> None:
    first = HostSpec(host=HOST, gpus=8, gpu_type="H100", block="b0", cluster="main")
    late, other = replace(first, host=HostId("late")), replace(first, host=HostId("other"))
    diary = Diary()
    diary.host(H.HEALTHY, 0, reason=Reason.HOST_REGISTERED)
    diary.ran("early", 1, 2)
    diary.facts.append(HostRegistered(at=ms(8), agent="agent", hosts=(late, replace(other, gpus=4))))
    for host in ("late", "other"):
        lost = Diary()
        lost.host(H.LOST, 20, reason=Reason.HOST_SILENT_TOO_LONG)
        diary.facts.append(msgspec.structs.replace(lost.facts[-1], host=HostId(host)))  # type: ignore[type-var]
    diary.ran("last", 38, 39)
    changes = Changes(hosts=(first, late, other))
    facts = [e.fact for e in replayed(Past(diary.facts), start=5 * HOUR, end=40 * HOUR, changes=changes)]
    lost_hosts = [
        (fact.at / HOUR, fact.host)
        for fact in facts
        if isinstance(fact, HostStateChanged) and fact.state is not H.HEALTHY
    ]
    assert {host for _, host in lost_hosts} == {"late"}, "the other one is another machine"
    assert min(lost_hosts)[0] == 20
