from hypothesis import given
from hypothesis import strategies as st

from tenure.domain.job_id import MAKERS, JobIdMaker, ids_from, is_job_id

NOW = 1_700_000_000_000
EPOCH = st.integers(min_value=0, max_value=2**45 - 10_000)
MAKER = st.integers(min_value=0, max_value=MAKERS - 1)


def test_an_id_is_fifteen_characters_that_begin_with_j() -> None:
    (job,) = JobIdMaker(maker=1).make(now=NOW)
    assert (len(job), job[0], is_job_id(job)) == (15, "j", True)


@given(MAKER, st.lists(st.tuples(EPOCH, st.integers(min_value=1, max_value=3_000)), min_size=1, max_size=8))
def test_one_makers_ids_rise_whatever_the_clock_does(maker: int, calls: list[tuple[int, int]]) -> None:
    ids_of = JobIdMaker(maker=maker)
    ids = [job for now, count in calls for job in ids_of.make(now=now, count=count)]
    assert ids == sorted(set(ids))
    assert all(map(is_job_id, ids))


@given(MAKER, MAKER, EPOCH, st.integers(min_value=1, max_value=2_000))
def test_two_makers_never_make_the_same_id(one: int, other: int, now: int, count: int) -> None:
    if one != other:
        ids = {*JobIdMaker(maker=one).make(now=now, count=count), *JobIdMaker(maker=other).make(now=now, count=count)}
        assert len(ids) == 2 * count


@given(MAKER, EPOCH, st.integers(min_value=1, max_value=1_500), st.integers(min_value=1, max_value=2_500))
def test_the_ids_of_one_call_follow_from_the_first(maker: int, now: int, before: int, count: int) -> None:
    ids_of = JobIdMaker(maker=maker)
    ids_of.make(now=now, count=before)
    ids = ids_of.make(now=now, count=count)
    assert ids_from(ids[0], count=count) == ids


@given(EPOCH, EPOCH)
def test_ids_sort_as_text_in_order_of_time(early: int, late: int) -> None:
    if early < late:
        assert JobIdMaker(maker=9).make(now=early) < JobIdMaker(maker=3).make(now=late)


def test_other_text_is_no_id() -> None:
    (job,) = JobIdMaker(maker=1).make(now=NOW)
    for text in ("", "j", "j1", job + "0", job[:-1] + "u", job.upper(), "k" + job[1:]):
        assert not is_job_id(text)
