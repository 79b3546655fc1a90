"""How long a job will hold its GPUs, by jobs like it that are over."""

import pytest

from simulator.live.book import SAMPLES_MAX, Book, Doing, kinds_of
from simulator.live.lengths import UNKNOWN, Lengths, quantile_of
from tenure.domain.ids import JobId
from tenure.domain.units import HOUR, MINUTE, Millis
from tests.unit.simulator.live.present import Present, a_job


def of(**by_kind: list[Millis]) -> Lengths:
    """Lengths known of the kinds of one job: `name`, `user`, `budget`, `all`."""
    kinds = dict(zip(("name", "user", "budget", "all"), kinds_of(a_job(name="train")), strict=True))
    return Lengths(Book(samples={kinds[kind]: lengths for kind, lengths in by_kind.items()}), now=0)


TRAIN = a_job(name="train")
HOURS = [1 * HOUR, 2 * HOUR, 3 * HOUR]


def test_the_closest_kind_counts() -> None:
    lengths = of(name=HOURS, user=[9 * HOUR] * 9, all=[99 * HOUR] * 9)
    assert lengths.of(TRAIN, had_ms=0, quantile=0.5) == 2 * HOUR
    assert lengths.of(a_job(name="other"), had_ms=0, quantile=0.5) == 9 * HOUR
    assert lengths.of(a_job(name="other", budget="b"), had_ms=0, quantile=0.5) == 99 * HOUR


def test_quantiles_do_not_go_beyond_what_was_seen() -> None:
    lengths = of(name=HOURS)
    assert lengths.of(TRAIN, had_ms=0, quantile=0.01) == HOUR
    assert lengths.of(TRAIN, had_ms=0, quantile=0.99) == 3 * HOUR
    assert HOUR < lengths.of(TRAIN, had_ms=0, quantile=0.3) < 2 * HOUR


def test_a_job_that_runs_is_like_those_that_ran_for_longer() -> None:
    lengths = of(name=[MINUTE] * 9 + [5 * HOUR] * 3)
    assert lengths.of(TRAIN, had_ms=0, quantile=0.5) == MINUTE
    assert lengths.of(TRAIN, had_ms=2 * MINUTE, quantile=0.5) == 5 * HOUR


def test_where_too_few_of_a_kind_ran_for_longer_the_next_kind_counts() -> None:
    lengths = of(name=[MINUTE] * 9, user=[MINUTE] * 9 + [5 * HOUR] * 3)
    assert lengths.of(TRAIN, had_ms=2 * MINUTE, quantile=0.5) == 5 * HOUR


def test_with_nothing_known_a_job_lasts_as_its_contract_says_or_goes_on_as_it_has() -> None:
    lengths = Lengths(Book(), now=0)
    assert lengths.of(a_job(contract=8 * HOUR), had_ms=0, quantile=0.5) == 8 * HOUR
    assert lengths.of(a_job(), had_ms=0, quantile=0.5) == UNKNOWN
    assert lengths.of(a_job(), had_ms=0, quantile=0.1) < UNKNOWN < lengths.of(a_job(), had_ms=0, quantile=0.9)
    assert lengths.of(a_job(), had_ms=10 * HOUR, quantile=0.5) == 20 * HOUR
    assert lengths.of(a_job(), had_ms=10 * HOUR, quantile=0.001) > 10 * HOUR


def test_jobs_that_last_or_were_ended_by_others_count_as_longer() -> None:
    ended = [HOUR, 2 * HOUR, 3 * HOUR, 4 * HOUR]
    assert of(name=ended).of(TRAIN, had_ms=0, quantile=0.5) == 2.5 * HOUR
    assert of(name=[*ended, -1, -1]).of(TRAIN, had_ms=0, quantile=0.5) == 2.5 * HOUR, "no length says nothing"
    later = of(name=[*ended, -round(2.5 * HOUR), -round(2.5 * HOUR)]).of(TRAIN, had_ms=0, quantile=0.5)
    assert 3 * HOUR <= later < 4 * HOUR
    doing = {JobId(f"j-{n}"): Doing(spec=TRAIN, started_at=0) for n in range(2)}
    book = Book(jobs=doing, samples=dict.fromkeys(kinds_of(TRAIN), ended))
    assert Lengths(book, now=round(2.5 * HOUR)).of(TRAIN, had_ms=0, quantile=0.5) == later
    assert Lengths(book, now=9 * HOUR).of(TRAIN, had_ms=0, quantile=0.99) == 9 * HOUR


@pytest.mark.parametrize("draws", [1, 4, 5])
def test_the_draws_of_a_job_are_in_each_part_of_its_distribution_once(draws: int) -> None:
    for job in (JobId("j-1"), JobId("j-2"), JobId("j-3")):
        quantiles = [quantile_of(job, draw=draw, draws=draws, seed=7) for draw in range(draws)]
        assert sorted(int(each * draws) for each in quantiles) == list(range(draws))
        assert quantiles == [quantile_of(job, draw=draw, draws=draws, seed=7) for draw in range(draws)]
    assert quantile_of(JobId("j-1"), draw=0, draws=5, seed=7) != quantile_of(JobId("j-1"), draw=0, draws=5, seed=8)


def test_the_book_keeps_the_latest_lengths_of_each_kind() -> None:
    present = Present()
    for number in range(SAMPLES_MAX + 3):
        present.submit(f"j-{number:03}", a_job(name="train"), minutes=1 + number, at=0)
    present.until(60_000)
    book = present.state.book
    assert not book.jobs
    assert book.finished == SAMPLES_MAX + 3
    known = book.samples[kinds_of(TRAIN)[0]]
    assert len(known) == SAMPLES_MAX
    assert known[-1] == (SAMPLES_MAX + 3) * MINUTE


def test_a_resumable_job_is_as_long_as_its_runs_together() -> None:
    present = Present(hosts="1x8")
    spec = a_job(name="train", budget="a")
    resumable = type(spec)(**{**{name: getattr(spec, name) for name in spec.__slots__}, "resumable": True})
    present.submit("long", resumable, minutes=60)
    present.submit("asker", a_job(budget="b", contract=10 * MINUTE), minutes=10, at=20)
    present.until(200)
    (length,) = present.state.book.samples[kinds_of(spec)[0]]
    assert length == pytest.approx(60 * MINUTE, abs=MINUTE)
