"""Incidents: when something is said of them, and when they end."""

from services.agent.watch.incidents import AGAIN_MS, OPEN_MAX, SAID_MAX, SETTLE_MS, Incidents
from tenure.domain.severity import Severity
from tenure.domain.units import HOUR
from tenure.events.reports import HealthSignal


def signal(code: str = "xid_48", *, at: int = 0, severity: Severity = Severity.WATCH, **more) -> HealthSignal:
    given = {"device": "d", "source": "s", "text": code, **more}
    return HealthSignal(code=code, severity=severity, first_at=at, last_at=at, **given)


def say(book: Incidents, now: int) -> list[tuple[str, int, bool]]:
    due = book.due(now)
    book.said(due, now)
    return [(each.code, each.count, each.over) for each in due]


def test_an_event_is_said_when_it_begins_goes_on_and_ends() -> None:
    book = Incidents()
    book.sighted([signal()], source="s", now=0)
    assert say(book, 0) == [("xid_48", 1, False)]
    for now in range(1, 100):
        book.sighted([signal(at=now)], source="s", now=now)
        assert say(book, now) == [], "not again so soon"
    assert say(book, AGAIN_MS) == [("xid_48", 100, False)]
    assert say(book, HOUR) == []
    assert say(book, 99 + HOUR) == [("xid_48", 100, True)]
    assert say(book, 9 * HOUR) == []
    assert not book.waiting


def test_a_state_is_said_when_it_begins_and_when_it_has_passed_for_a_while() -> None:
    book = Incidents()
    book.observed([signal()], source="s", now=0)
    assert say(book, 0) == [("xid_48", 1, False)]
    for now in (1000, AGAIN_MS, 3 * AGAIN_MS):
        book.observed([signal(at=now)], source="s", now=now)
        assert say(book, now) == [], "it goes on: no news"
    last = 3 * AGAIN_MS
    book.observed([], source="s", now=last + SETTLE_MS - 1)
    assert say(book, last + SETTLE_MS - 1) == []
    book.observed([], source="other", now=last + SETTLE_MS)
    assert say(book, last + SETTLE_MS) == [], "another source's reading says nothing of it"
    book.observed([], source="s", now=last + SETTLE_MS)
    assert say(book, last + SETTLE_MS) == [("xid_48", 4, True)]


def test_what_comes_and_goes_is_one_incident() -> None:
    book = Incidents()
    told = []
    for now in range(0, 20 * SETTLE_MS, SETTLE_MS // 2):
        shown = [signal(at=now)] if (now // (SETTLE_MS // 2)) % 2 == 0 else []
        book.observed(shown, source="s", now=now)
        told += say(book, now)
    assert told == [("xid_48", 1, False)]


def test_what_becomes_graver_is_said_at_once() -> None:
    book = Incidents()
    book.observed([signal()], source="s", now=0)
    say(book, 0)
    book.observed([signal(at=1, severity=Severity.FATAL)], source="s", now=1)
    (due,) = book.due(1)
    assert (due.severity, due.first_at, due.last_at) == (Severity.FATAL, 0, 1)


def test_new_words_are_said_but_not_every_moment() -> None:
    book = Incidents()
    book.observed([signal(text="3 errors")], source="s", now=0)
    say(book, 0)
    book.observed([signal(text="4 errors", at=1)], source="s", now=1)
    assert book.due(1) == []
    (due,) = book.due(AGAIN_MS)
    assert due.text == "4 errors"


def test_what_is_said_while_it_changes_is_said_again() -> None:
    book = Incidents()
    book.sighted([signal()], source="s", now=0)
    due = book.due(0)
    book.sighted([signal(at=5)], source="s", now=5)
    book.said(due, 9)
    assert say(book, 9 + AGAIN_MS) == [("xid_48", 2, False)]


def test_one_that_ended_and_began_again_before_that_was_said_goes_on() -> None:
    book = Incidents()
    book.observed([signal()], source="s", now=0)
    say(book, 0)
    book.observed([], source="s", now=SETTLE_MS)
    book.observed([signal(at=SETTLE_MS + 1)], source="s", now=SETTLE_MS + 1)
    assert not any(each.over for each in book.due(9 * HOUR))


def test_an_agents_successor_goes_on_and_ends_what_nobody_watches() -> None:
    book = Incidents()
    known = [signal(device="a"), signal(device="b", source="gone")]
    book.adopt(known, sources=["s"], events=["s"], now=HOUR // 2)
    assert [(each.device, each.over) for each in book.due(HOUR // 2)] == [("b", True)]
    book.said(book.due(HOUR // 2), HOUR // 2)
    book.sighted([signal(device="a", at=HOUR // 2)], source="s", now=HOUR // 2)
    (due,) = book.due(HOUR)
    assert (due.first_at, due.count) == (0, 2)


def test_a_flood_is_bounded_and_said() -> None:
    book = Incidents()
    book.sighted([signal(device=str(number)) for number in range(3 * OPEN_MAX)], source="s", now=0)
    told = []
    while due := book.due(0):
        assert len(due) <= SAID_MAX
        book.said(due, 0)
        told += due
    assert len(told) == OPEN_MAX + 1
    (flood,) = [each for each in told if each.code == "signals_flood"]
    assert flood.count == 2 * OPEN_MAX
