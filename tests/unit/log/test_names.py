"""Names of the log: subjects, who may say what on them, ids."""

import pytest

from tenure.domain.host import HostSpec, HostState
from tenure.domain.ids import HostId, JobId, RunId
from tenure.domain.reasons import EndCause, Reason, Why
from tenure.domain.refusal import Refusal
from tenure.events.catalogue import KINDS
from tenure.events.fact import Lane
from tenure.events.hosts import HostStateChanged
from tenure.events.intake import JobCancelRequested, JobSubmitted
from tenure.events.placing import RunEnded, RunPreemptionRequested, RunStarted, RunStopRequested
from tenure.events.policy import PolicyChanged
from tenure.events.reports import (
    CheckpointReported,
    Heartbeat,
    HostBeat,
    HostRegistered,
    HostSignal,
    ReplicaExit,
    ReplicasExited,
    ReplicasStarted,
    ReplicaStart,
)
from tenure.log.feed import _numbers
from tenure.log.port import check_ids
from tenure.log.subjects import Subjects, district_of
from tests.contract.log_facts import hosts, intake, report, runs


def test_a_kind_has_one_subject_in_its_lane() -> None:
    subjects = Subjects("h100")
    assert subjects.written(JobSubmitted) == "tenure.h100.intake.JobSubmitted"
    assert subjects.written(RunStarted) == "tenure.h100.place.runs.RunStarted"
    assert len({subjects.written(kind) for kind in KINDS.values()}) == len(KINDS)
    assert subjects.of(intake(1)) == subjects.written(JobCancelRequested)


def test_a_lane_s_pattern_matches_its_kinds_and_those_of_the_lanes_below() -> None:
    subjects = Subjects("h100")
    for lane in Lane:
        start = subjects.in_lane(lane).removesuffix(">")
        for kind in KINDS.values():
            assert subjects.written(kind).startswith(start) == lane.covers(kind.lane)


def test_the_subjects_of_several_kinds_do_not_depend_on_their_order() -> None:
    subjects = Subjects("h100")
    both = (JobSubmitted, JobCancelRequested)
    assert subjects.of_all(both) == subjects.of_all(both[::-1]) == subjects.of_all(both * 2)


@pytest.mark.parametrize("name", ["a.b", "", "x y", ">", "ü"])
def test_a_cluster_name_is_one_word(name: str) -> None:
    with pytest.raises(Refusal, match="cluster"):
        Subjects(name)


def test_reports_are_written_under_their_speaker_and_read_from_all() -> None:
    one, many = Subjects("h100", speaker=HostId("n1.lab")), Subjects("h100")
    assert one.written(Heartbeat) == "tenure.h100.report.n1/lab.Heartbeat"
    assert many.written(Heartbeat) == "tenure.h100.report.~.Heartbeat"
    assert many.of_all([Heartbeat]) == ["tenure.h100.report.*.Heartbeat"]


def test_what_agents_are_told_is_addressed_to_the_district_of_the_host() -> None:
    subjects = Subjects("h100")
    alone, other = HostId("h1"), HostId("h2")
    assert district_of(alone) != district_of(other)
    why = Why(rule="P10", reason=Reason.END_COMPLETED, numbers={})
    of_run = {"at": 1, "run": RunId("j.1"), "job": JobId("j"), "why": why}
    for only_on, district in ((alone, district_of(alone)), (None, "~")):
        for fact in (
            RunPreemptionRequested(**of_run, only_on=only_on, by="k"),
            RunStopRequested(**of_run, only_on=only_on, by=None, cause_of_end=EndCause.CANCELLED),
            RunEnded(**of_run, only_on=only_on, cause_of_end=EndCause.COMPLETED),
        ):
            assert subjects.of(fact) == f"tenure.h100.place.runs.{district}.{type(fact).__name__}"
            assert subjects.vouches(subjects.of(fact), fact)
            assert not subjects.vouches(f"tenure.h100.place.runs.{district_of(other)}.{type(fact).__name__}", fact)
    changed = HostStateChanged(at=1, host=alone, state=HostState.HEALTHY, previous=None, last_seen=1, why=why)
    assert subjects.of(changed) == f"tenure.h100.place.hosts.{district_of(alone)}.HostStateChanged"
    assert subjects.of_all([RunEnded]) == ["tenure.h100.place.runs.*.RunEnded"]


def test_an_agent_of_one_host_reads_what_is_of_its_host_and_of_several() -> None:
    own = Subjects("h100", speaker=HostId("n1.lab"))
    district = district_of(HostId("n1.lab"))
    assert own.of_all([RunEnded, ReplicasStarted, PolicyChanged]) == [
        "tenure.h100.budget.PolicyChanged",
        f"tenure.h100.place.runs.{district}.RunEnded",
        "tenure.h100.place.runs.~.RunEnded",
        "tenure.h100.report.n1/lab.ReplicasStarted",
        "tenure.h100.report.~.ReplicasStarted",
    ]


def test_a_fact_counts_only_where_its_kind_belongs() -> None:
    subjects = Subjects("h100")
    made = [intake(1), runs(1), hosts(1), report(1)]
    for fact in made:
        for other in made:
            assert subjects.vouches(subjects.of(other), fact) == (fact is other)
    assert not subjects.vouches("tenure.h200.intake.JobCancelRequested", intake(1))


def test_a_speaker_says_nothing_of_other_hosts() -> None:
    subjects = Subjects("h100", speaker=HostId("h1"))
    for host in ("h1", "h2"):
        spec = HostSpec(host=HostId(host), gpus=8, gpu_type="H100", block="b0", cluster="h100", address="127.0.0.1")
        start, gone = (
            ReplicaStart(replica=0, host=spec.host, at=1),
            ReplicaExit(replica=0, host=spec.host, at=1, code=0),
        )
        own = HostBeat(host=HostId("h1"), gpus=8)
        said = [
            HostRegistered(at=1, agent="h1", hosts=(spec,)),
            Heartbeat(at=1, agent="h1", hosts=(own, HostBeat(host=spec.host, gpus=8))),
            ReplicasStarted(at=1, run=RunId("j.1"), job=JobId("j"), replicas=(start,)),
            ReplicasExited(at=1, run=RunId("j.1"), job=JobId("j"), replicas=(gone,)),
            CheckpointReported(at=1, run=RunId("j.1"), job=JobId("j"), host=spec.host),
            HostSignal(at=1, host=spec.host),
        ]
        assert {type(fact) for fact in said} == {kind for kind in KINDS.values() if kind.lane is Lane.REPORT}
        for fact in said:
            assert subjects.vouches(subjects.of(fact), fact) == (host == "h1")
            assert Subjects("h100").vouches(Subjects("h100").of(fact), fact), "who speaks for many, for all"


@pytest.mark.parametrize("reply", ["$JS.ACK.s.c.1.70.9.1700000000.3", "$JS.ACK.dom.acc.s.c.1.70.9.1700000000.3.rnd"])
def test_position_and_number_are_read_from_both_forms_of_a_reply_subject(reply: str) -> None:
    assert _numbers(reply) == (70, 9)


@pytest.mark.parametrize("fact_id", ["x", "gateway-1-2", "a" * 256, "{}[]!~"])
def test_a_usable_id_is_accepted(fact_id: str) -> None:
    check_ids([intake(1, id=fact_id)])


@pytest.mark.parametrize("fact_id", ["", " ", "a b", "a\r\nNats-TTL: 1", "é", "a" * 257])
def test_an_unusable_id_is_named(fact_id: str) -> None:
    with pytest.raises(ValueError, match="JobCancelRequested has the id"):
        check_ids([intake(0), intake(1, id=fact_id)])
