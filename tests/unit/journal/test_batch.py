"""Facts to rows and batches."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.journal.batch import FACTS_MAX, Batch, begin, month_of, rebuilt, refund_pieces
from services.journal.tables import EVENTS, Table
from tenure.domain.ids import BudgetPath, JobId, Position, RunId, UserName
from tenure.domain.units import DAY, HOUR
from tenure.events.budgets import RunCharged
from tenure.events.fact import Recorded
from tests.unit.journal.facts import T0, WHY, Story


def batch_of(story: Story) -> Batch:
    batch = begin(story.recorded[0])
    for recorded in story.recorded[1:]:
        assert batch.takes(recorded)
        batch.add(recorded)
    return batch


def derived(story: Story) -> dict[str, list[dict[str, object]]]:
    """The rows of each table as mappings."""
    rows: dict[str, list[dict[str, object]]] = {}
    for insert in batch_of(story).derived_inserts():
        rows.setdefault(insert.table.name, []).extend(as_mapping(insert.table, row) for row in insert.rows)
    return rows


def as_mapping(table: Table, row: tuple[object, ...]) -> dict[str, object]:
    return dict(zip(table.columns, row, strict=True))


def test_an_event_row_names_what_the_fact_speaks_of() -> None:
    story = Story()
    story.preempted("j1.2", T0, by="j9")
    story.submitted("j7", T0 + 1)
    preempted, submitted = (as_mapping(EVENTS, row) for row in batch_of(story).events)
    assert preempted | {"payload": "", "cluster": "lab"} == {
        "position": 1,
        "at_ms": T0,
        "cluster": "lab",
        "kind": "RunPreemptionRequested",
        "id": "f1",
        "job": "j1",
        "run": "j1.2",
        "host": "",
        "budget": "",
        "by": "j9",
        "cause": "",
        "payload": "",
        "batch": 1,
    }
    assert json.loads(str(preempted["payload"]))["type"] == "RunPreemptionRequested"
    assert (submitted["job"], submitted["budget"], submitted["batch"]) == ("j7", "science/chem", 1)


def test_a_segment_is_one_row_an_hour() -> None:
    story = Story()
    story.held("j1.1", T0 + HOUR - 10, T0 + HOUR + 20, gpus=4, busy_milli=500)
    rows = derived(story)["occupancy"]
    assert [(row["since_ms"], row["until_ms"], row["gpu_ms"]) for row in rows] == [
        (T0 + HOUR - 10, T0 + HOUR, 40),
        (T0 + HOUR, T0 + HOUR + 20, 80),
    ]
    assert {row["kind"] for row in rows} == {"segment"} and {row["busy_milli"] for row in rows} == {500}


def test_what_a_segment_takes_back_is_a_negative_row() -> None:
    story = Story()
    story.held("j1.1", T0, T0 + 20, gpus=-4)
    (row,) = derived(story)["occupancy"]
    assert (row["kind"], row["since_ms"], row["until_ms"], row["gpu_ms"]) == ("segment", T0, T0 + 20, -80)


def test_an_empty_segment_is_no_row() -> None:
    story = Story()
    story.held("j1.1", T0, T0)
    assert derived(story) == {}


def test_demand_is_of_allocated_jobs_only() -> None:
    story = Story()
    story.admitted("j1", T0, gpus=16)
    story.admitted("j2", T0, allocated=False)
    story.finished("j1", T0 + 5)
    assert [(row["job"], row["gpus"], row["finished"]) for row in derived(story)["demand"]] == [
        ("j1", 16, False),
        ("j1", 0, True),
    ]


def test_a_tree_is_a_row_a_budget() -> None:
    story = Story()
    story.tree(T0, science=50, science__chem=40)
    assert [(row["path"], row["fraction"], row["leaf"]) for row in derived(story)["shares"]] == [
        ("science", 0.5, False),
        ("science/chem", pytest.approx(0.2), True),
    ]


def test_a_batch_ends_with_its_month() -> None:
    story = Story()
    last = story.finished("j1", T0 + 31 * DAY)
    first_of_next = story.finished("j2", T0 + 40 * DAY)
    assert (month_of(last.fact.at), month_of(first_of_next.fact.at)) == ("202608", "202608")
    batch = begin(story.finished("j3", T0))
    assert month_of(T0) == "202607" and not batch.takes(last)


def test_a_batch_is_full_at_its_size() -> None:
    batch = begin(Story().finished("j", T0))
    fact = batch_of(one_fact()).events and one_fact().recorded[0].fact
    assert fact
    for position in range(2, FACTS_MAX + 1):
        recorded = Recorded(Position(position), fact)
        assert batch.takes(recorded)
        batch.add(recorded)
    assert not batch.takes(Recorded(Position(FACTS_MAX + 1), fact))
    assert (batch.first, batch.last) == (1, FACTS_MAX)


def one_fact() -> Story:
    story = Story()
    story.finished("j", T0)
    return story


def test_a_batch_is_rebuilt_from_its_facts_alone() -> None:
    story = Story()
    story.tree(T0, science=50, science__chem=40)
    story.held("j1.1", T0 - DAY * 20, T0 - DAY * 20 + HOUR, at=T0)
    story.held("j1.1", T0, T0 + HOUR)
    story.charged("j1.1", T0 + HOUR, refunded=100, since=T0)
    whole = batch_of(story)
    again = rebuilt(story.recorded, first=whole.first)
    assert list(again.derived_inserts()) == list(whole.derived_inserts())
    assert [insert.token for insert in whole.derived_inserts()] == [
        "shares-1-",
        "occupancy-1-202606",
        "occupancy-1-202607",
    ]


@given(
    refunded=st.integers(1, 10**12),
    since=st.integers(0, 3 * HOUR),
    length=st.integers(1, 30 * HOUR),
)
def test_a_refund_is_spread_exactly(refunded: int, since: int, length: int) -> None:
    pieces = list(refund_pieces(charge(refunded=refunded, since=since, until=since + length)))
    assert sum(gpu_ms for _, _, gpu_ms in pieces) == refunded
    assert pieces[0][0] == since and pieces[-1][1] == since + length
    assert all(begin_at // HOUR == (end_at - 1) // HOUR for begin_at, end_at, _ in pieces)
    assert all(one[1] == other[0] for one, other in pairwise(pieces))


def test_a_refund_without_a_stretch_falls_into_the_last_millisecond() -> None:
    assert list(refund_pieces(charge(refunded=7, since=None, until=None))) == [(99, 100, 7)]
    assert list(refund_pieces(charge(refunded=0, since=1, until=2))) == []


def charge(*, refunded: int, since: int | None, until: int | None) -> RunCharged:
    return RunCharged(
        at=100,
        run=RunId("j.1"),
        job=JobId("j"),
        budget=BudgetPath("a"),
        user=UserName("u"),
        charged_gpu_ms=0,
        refunded_gpu_ms=refunded,
        refund_since=since,
        refund_until=until,
        why=WHY,
    )
