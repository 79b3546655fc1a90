"""Names of the log: subjects, ids, addresses. What is shown to people hides secrets."""

import pytest

from tenure.domain.refusal import Refusal
from tenure.events.catalogue import KINDS
from tenure.events.fact import Lane
from tenure.events.intake import JobCancelRequested, JobSubmitted
from tenure.events.placing import RunStarted
from tenure.log.feed import _numbers
from tenure.log.link import Access
from tenure.log.port import check_ids
from tenure.log.subjects import Subjects
from tests.contract.log_facts import intake


def test_a_kind_has_one_subject_in_its_lane() -> None:
    subjects = Subjects("h100")
    assert subjects.of(JobSubmitted) == "tenure.h100.intake.JobSubmitted"
    assert subjects.of(RunStarted) == "tenure.h100.place.runs.RunStarted"
    assert len({subjects.of(kind) for kind in KINDS.values()}) == len(KINDS)


def test_a_lane_s_pattern_matches_its_kinds_and_those_of_the_lanes_below() -> None:
    subjects = Subjects("h100")
    for lane in Lane:
        start = subjects.in_lane(lane).removesuffix(">")
        for kind in KINDS.values():
            assert subjects.of(kind).startswith(start) == lane.covers(kind.lane)


def test_the_subjects_of_several_kinds_do_not_depend_on_their_order() -> None:
    subjects = Subjects("h100")
    both = (JobSubmitted, JobCancelRequested)
    assert subjects.of_all(both) == subjects.of_all(both[::-1]) == subjects.of_all(both * 2)


@pytest.mark.parametrize("name", ["a.b", "", "x y", ">", "ü"])
def test_a_cluster_name_is_one_word(name: str) -> None:
    with pytest.raises(Refusal, match="cluster"):
        Subjects(name)


@pytest.mark.parametrize(
    "url",
    [
        "nats://token@nats-0:4222",
        "nats://user:pass@nats-0:4222",
        "nats://user:p@ss@nats-0:4222",
        "tls://user:pass@nats-0:4222",
    ],
)
def test_an_address_is_shown_without_its_secret(url: str) -> None:
    assert Access(url=f"{url},{url}").shown == "nats-0:4222,nats-0:4222"


def test_an_address_without_a_secret_is_shown_as_it_is() -> None:
    assert Access(url="nats://nats-0:4222").shown == "nats-0:4222"


@pytest.mark.parametrize(
    "url", ["", "foo", "nats://", "http://h:1", "nats://h:port", "nats://h:99999", "nats://h:1,", "nats://[::1"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(Refusal, match="nats://HOST:PORT"):
        Access(url=url)


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
