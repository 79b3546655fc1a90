"""When queued jobs start: the present simulated forward, against what then happens."""

import pytest

from simulator.live.book import ARRIVALS_MAX, FULL, Arrival, Book, evolve
from simulator.live.forecast import LATER_FOLLOWED, at_quantile, forecast, told
from simulator.live.future import Bounds, arrivals
from simulator.live.state import read
from simulator.live.thinning import queue_of, thin
from tenure.domain.ids import JobId, Position
from tenure.domain.units import DAY, HOUR, MINUTE, SECOND
from tenure.events.budgets import JobAdmitted
from tenure.events.fact import Recorded
from tests.unit.simulator.live.present import FOLDING, Present, a_job

BOUNDS = Bounds(draws=3)


def with_history(present: Present) -> None:
    """Three jobs of 10 minutes of each name are over after 40 minutes."""
    for name in ("short", "gang"):
        for number in range(3):
            present.submit(f"{name}-before-{number}", a_job(name=name, contract=5 * MINUTE), minutes=10)


def busy() -> Present:
    """Two hosts of 8 GPUs, held, and a queue of two budgets before them."""
    present = Present(hosts="2x8")
    with_history(present)
    for number in range(6):
        spec = a_job(name="short", budget="ab"[number % 2], contract=5 * MINUTE)
        present.submit(f"q-{number}", spec, minutes=10, at=60 + number / 10)
    present.submit("g-0", a_job(name="gang", replicas=2, contract=5 * MINUTE), minutes=10, at=61)
    return present


def test_with_lengths_that_are_known_the_forecast_is_what_happens() -> None:
    present = busy()
    payload = present.until(62)
    made = forecast(payload, FOLDING, now=62 * MINUTE, bounds=BOUNDS)
    present.until(300)
    happened = present.starts()
    assert {each.job for each in made.jobs} == {job for job, at in happened.items() if at > 62 * MINUTE}
    assert len(made.jobs) >= 4
    for each in made.jobs:
        assert each.followed
        assert each.p50 == pytest.approx(happened[each.job], abs=5 * SECOND), each.job
    assert made.jobs_finished == 6


def test_the_same_question_has_the_same_answer() -> None:
    payload = busy().until(62)
    assert forecast(payload, FOLDING, now=62 * MINUTE, bounds=BOUNDS) == forecast(
        payload, FOLDING, now=62 * MINUTE, bounds=BOUNDS
    )


def test_unsure_lengths_make_a_band() -> None:
    present = Present(hosts="1x8")
    for number, minutes in enumerate((5, 60, 240)):
        present.submit(f"before-{number}", a_job(name="odd", contract=MINUTE), minutes=minutes)
    present.submit("runs", a_job(name="odd", contract=MINUTE), minutes=60, at=400)
    present.submit("waits", a_job(contract=MINUTE), minutes=1, at=401)
    (made,) = forecast(present.until(402), FOLDING, now=402 * MINUTE, bounds=Bounds(draws=5)).jobs
    assert made.job == JobId("waits")
    assert made.earliest < 410 * MINUTE
    assert 430 * MINUTE < made.p50 < made.p90 <= made.latest
    assert made.latest <= 402 * MINUTE + LATER_FOLLOWED * (641 - 402) * MINUTE


def test_beyond_the_bound_jobs_start_at_the_rate_of_their_budget() -> None:
    present = busy()
    payload = present.until(62)
    whole = forecast(payload, FOLDING, now=62 * MINUTE, bounds=BOUNDS)
    cut = forecast(payload, FOLDING, now=62 * MINUTE, bounds=Bounds(draws=3, horizon_ms=5 * MINUTE))
    assert {each.job for each in cut.jobs} == {each.job for each in whole.jobs}
    beyond = [each for each in cut.jobs if not each.followed]
    assert beyond and cut.followed_until == 67 * MINUTE
    assert all(67 * MINUTE <= each.p50 <= 62 * MINUTE + DAY for each in beyond)


def test_of_a_long_queue_the_first_of_each_budget_are_followed() -> None:
    present = busy()
    payload = present.until(62)
    whole = forecast(payload, FOLDING, now=62 * MINUTE, bounds=BOUNDS)
    dumped, gone = thin(read(payload), FOLDING, most=3, now=62 * MINUTE)
    kept = queue_of(FOLDING.placer.load(dumped.placer).core)
    assert len(kept) == 3 and {job.spec.budget for job in kept} == {"a", "b"}
    assert {job.job for job in (*kept, *gone)} == {each.job for each in whole.jobs}
    made = forecast(payload, FOLDING, now=62 * MINUTE, bounds=Bounds(draws=3, queue=3))
    assert {each.job for each in made.jobs if each.followed} == {job.job for job in kept}
    last = max(each.p50 for each in made.jobs if each.followed)
    assert all(each.p50 >= last for each in made.jobs if not each.followed)
    assert made.position == whole.position


def test_a_short_queue_is_left_as_it_is() -> None:
    dumped = read(busy().until(62))
    assert thin(dumped, FOLDING, most=100, now=62 * MINUTE) == (dumped, [])


def test_an_empty_queue_has_an_empty_forecast() -> None:
    present = Present()
    present.submit("runs", a_job(), minutes=10)
    made = forecast(present.until(1), FOLDING, now=MINUTE, bounds=BOUNDS)
    assert made.jobs == () and made.followed_until == MINUTE


def test_what_is_no_state_is_said_to_be_none() -> None:
    with pytest.raises(ValueError, match="not a state of the forecast"):
        forecast(b"what", FOLDING, now=0, bounds=BOUNDS)


def test_a_state_that_was_loaded_goes_on_as_the_one_that_was_dumped() -> None:
    one, two = busy(), busy()
    two.state = FOLDING.load(two.until(62))
    assert one.until(100) == two.until(100)


def test_what_comes_is_what_came_a_week_or_a_day_before() -> None:
    now = 10 * DAY
    came = [Arrival(at=now - age, spec=a_job()) for age in (6 * DAY, 20 * HOUR, HOUR)]
    book = Book(since=0, arrivals=came)
    week = [each.at - now for each in arrivals(book, now=now, day_before=False, horizon_ms=7 * DAY)]
    assert week == [DAY, 7 * DAY - 20 * HOUR, 7 * DAY - HOUR]
    day = [each.at - now for each in arrivals(book, now=now, day_before=True, horizon_ms=2 * DAY)]
    assert day == [4 * HOUR, 23 * HOUR, 28 * HOUR, 47 * HOUR]
    young = Book(since=now - HOUR, arrivals=came)
    assert list(arrivals(young, now=now, day_before=True, horizon_ms=7 * DAY)) == []


@pytest.mark.parametrize(
    ("a_day", "days", "is_week"),
    [(2_000, 9, True), (5_000, 9, False), (40_000, 2, False)],
)
@pytest.mark.parametrize("day_before", [True, False])
def test_what_comes_is_like_what_is_remembered(a_day: int, days: int, is_week: bool, day_before: bool) -> None:
    book, gap = Book(), DAY // a_day
    now = days * DAY
    for number in range(days * a_day):
        fact = JobAdmitted(at=number * gap, job=JobId(f"{number}"), spec=a_job(), submitted_at=number * gap)
        evolve(book, Recorded(Position(number + 1), fact))
        del book.jobs[fact.job]
    assert len(book.arrivals) <= ARRIVALS_MAX and book.since is not None
    assert (now - book.since >= 7 * DAY) == is_week
    found = [each.at - now for each in arrivals(book, now=now, day_before=day_before, horizon_ms=2 * DAY)]
    assert found[0] <= 2 * gap, "as soon as before"
    assert len(found) == pytest.approx(2 * a_day, rel=0.01), "and as many"


def test_what_came_at_once_says_nothing_of_what_comes() -> None:
    came = [Arrival(at=HOUR + number, spec=a_job()) for number in range(FULL)]
    book = Book(since=HOUR, arrivals=came)
    assert list(arrivals(book, now=HOUR + MINUTE, day_before=True, horizon_ms=DAY)) == []


def test_nothing_later_is_said_than_what_is_promised() -> None:
    job, instants = JobId("1"), (10 * MINUTE, 20 * MINUTE, 40 * MINUTE)
    free = told(job, instants, followed=True, now=0)
    assert (free.p50, free.p90, free.latest) == (20 * MINUTE, 50 * MINUTE, 50 * MINUTE)
    kept = told(job, instants, followed=True, now=0, promised=15 * MINUTE)
    assert (kept.earliest, kept.p50, kept.p90, kept.latest) == (10 * MINUTE, *[15 * MINUTE] * 3)
    assert told(job, instants, followed=True, now=16 * MINUTE, promised=15 * MINUTE).p90 > 40 * MINUTE, "it is broken"


def test_quantiles_are_instants_by_which_so_much_has_come() -> None:
    assert at_quantile([5], 0.5) == at_quantile([5], 0.9) == 5
    assert at_quantile([5, 1, 4, 2, 3], 0.5) == 3
    assert at_quantile([5, 1, 4, 2, 3], 0.9) == 5
