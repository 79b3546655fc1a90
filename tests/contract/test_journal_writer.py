"""Exactly once, whatever dies in between: the writer on a real engine, killed at every point of a batch."""

import threading
import time
from typing import Any, cast

import pytest
from clickhouse_connect.driver import Client
from clickhouse_connect.driver.exceptions import DatabaseError

from services.journal.writer import Overtaken, Writer
from tenure.clickhouse.story import visible_position
from tenure.clickhouse.window import read_window
from tenure.domain.ids import Position
from tenure.domain.refusal import Refusal
from tenure.domain.units import DAY, HOUR
from tests.contract.own_clickhouse import Server, clickhouse, client
from tests.contract.test_clickhouse_schema import batches, busy_lab, by_budget, occupied
from tests.unit.journal.facts import T0, Story

__all__ = ["clickhouse", "client"]


class Killed(Exception):
    """The journal died here."""


class Mortal:
    """A client whose process dies at its n-th insert, before or after the server took it."""

    def __init__(self, client: Client, *, dies_at: int, taken: bool) -> None:
        self._client, self._left, self._taken = client, dies_at, taken

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def insert(self, *given: Any, **more: Any) -> None:
        """As `Client.insert`."""
        self._left -= 1
        if self._left > 0 or self._taken:
            self._client.insert(*given, **more)
        if self._left <= 0:
            raise Killed


def lab() -> Story:
    """Facts that write to every table, in two months."""
    told = Story()
    told.tree(T0, a=50, b=50)
    told.capacity("h0", T0, 8)
    for index in range(6):
        told.admitted(f"j{index}", T0 + index, budget="a")
        told.held(f"j{index}.1", T0 + index * HOUR, T0 + (index + 1) * HOUR, budget="a")
        told.held(f"k{index}.1", T0 - 30 * DAY, T0 - 30 * DAY + index + 1, budget="b", at=T0 + index * HOUR)
        told.finished(f"j{index}", T0 + index * HOUR + 5)
    told.charged("j1.1", T0 + 7 * HOUR, refunded=8 * HOUR, since=T0 + HOUR, until=T0 + 2 * HOUR)
    told.held("j9.1", T0 + 20 * DAY, T0 + 20 * DAY + 1000, budget="a")
    return told


def resume_and_finish(client: Client, told: Story, *, size: int) -> None:
    """Another journal takes over and writes all that is missing."""
    writer = Writer(client)
    after = writer.resume("log")
    for batch in batches(told.recorded[after:], size=size):
        writer.write(batch)


def totals(client: Client) -> dict[str, Any]:
    """Everything that must not depend on who died when."""
    queries = {
        "events": "SELECT count(), uniqExact(position), sum(position) FROM events",
        "occupancy": "SELECT kind, count(), sum(gpu_ms), sum(position) FROM occupancy GROUP BY kind ORDER BY kind",
        "hourly": "SELECT hour, budget, kind, sum(gpu_ms) s FROM occupancy_hourly GROUP BY ALL ORDER BY ALL",
        "capacity": "SELECT * FROM capacity ORDER BY ALL",
        "demand": "SELECT * FROM demand ORDER BY ALL",
        "shares": "SELECT * FROM shares ORDER BY ALL",
    }
    return {name: client.query(text).result_rows for name, text in queries.items()}


def inserts_of(told: Story, *, size: int) -> int:
    return sum(1 + len(list(batch.derived_inserts())) for batch in batches(told.recorded, size=size))


@pytest.mark.parametrize("taken", [False, True], ids=["before-it-is-taken", "after-it-is-taken"])
def test_killed_at_every_insert(client: Client, taken: bool) -> None:
    """The journal dies again and again, each time one insert further than it had come."""
    told = lab()
    deaths = 0
    for dies_at in range(1, 2 * inserts_of(told, size=5)):
        try:
            resume_and_finish(cast(Client, Mortal(client, dies_at=dies_at, taken=taken)), told, size=5)
        except Killed:
            deaths += 1
        else:
            break
    assert deaths > 5
    check_totals(client, told)


def check_totals(client: Client, told: Story) -> None:
    """Every row once; the rollup agrees with the rows, the rows with the facts."""
    found = totals(client)
    count = len(told.recorded)
    assert found["events"] == [(count, count, count * (count + 1) // 2)]
    rows = client.query("SELECT hour, budget, kind, sum(gpu_ms) FROM occupancy GROUP BY ALL ORDER BY ALL").result_rows
    assert found["hourly"] == rows, "the view counts what the rows count"
    whole = by_budget(read_window(client, T0 - 40 * DAY, T0 + 40 * DAY))
    refunded = sum(getattr(r.fact, "refunded_gpu_ms", 0) for r in told.recorded)
    held = occupied(told, T0 - 40 * DAY, T0 + 40 * DAY)
    if refunded:
        refund_budget = whole.pop(("science/chem", True), 0)
        assert refund_budget == -refunded
    assert whole == held
    kinds = [type(r.fact).__name__ for r in told.recorded]
    assert len(found["capacity"]) == kinds.count("CapacityChanged")
    assert len(found["demand"]) == kinds.count("JobAdmitted") + kinds.count("JobFinished")


def test_what_a_suspended_journal_had_in_hand_is_not_written(client: Client) -> None:
    """The database remembers the tokens of some batches only: another journal may have written more meanwhile."""
    told = lab()
    writer = Writer(client)
    writer.resume("log")
    batch = batches(told.recorded, size=5)[0]
    with pytest.raises(Overtaken, match="took so long"):
        writer.write(batch, until=time.monotonic() - 1)
    assert visible_position(client) == 0
    writer.write(batch, until=time.monotonic() + 60)
    assert visible_position(client) == batch.last


def test_the_same_batch_twice_counts_once(client: Client) -> None:
    told = lab()
    writer = Writer(client)
    writer.resume("log")
    for batch in batches(told.recorded, size=5):
        writer.write(batch)
    before = totals(client)
    last = batches(told.recorded, size=5)[-1]
    writer.write(last)
    for _ in range(2):
        assert Writer(client).resume("log") == len(told.recorded)
    assert totals(client) == before


def test_facts_that_are_there_twice_are_noticed(client: Client) -> None:
    """Should a server ever forget a token that it ought to know: nothing is built on top of that."""
    told = lab()
    resume_and_finish(client, told, size=5)
    last = batches(told.recorded, size=5)[-1]
    table = last.event_insert().table
    client.insert(table.name, last.events, column_names=table.columns, column_type_names=table.types)
    with pytest.raises(Refusal, match=f"facts from position {last.first} on are twice"):
        Writer(client).resume("log")


def test_a_batch_with_other_boundaries_is_noticed_and_dropped(client: Client) -> None:
    """The last request of a journal that was killed arrives after its successor looked where the table ends."""
    told = busy_lab(5, segments=30)
    late, early = Writer(client), Writer(client)
    assert late.resume("log") == early.resume("log") == 0
    early.write(batches(told.recorded, size=10)[0])
    with pytest.raises(Overtaken):
        late.write(batches(told.recorded, size=4)[0])
    after = late.resume("log")
    assert after == Position(10)
    for batch in batches(told.recorded[after:], size=4):
        late.write(batch)
    check_totals(client, told)


def test_two_journals_at_once(clickhouse: Server, client: Client) -> None:
    told = busy_lab(6, segments=30)

    def keep_writing(size: int) -> None:
        own = clickhouse.client()
        while True:
            try:
                resume_and_finish(own, told, size=size)
            except Overtaken:
                continue
            return

    writers = [threading.Thread(target=keep_writing, args=(size,)) for size in (3, 7)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    check_totals(client, told)


def test_the_server_is_killed_while_it_inserts(clickhouse: Server, client: Client) -> None:
    """kill -9 of the engine under load, twice: nothing acknowledged is lost, nothing counts twice."""
    if clickhouse.process is None:
        pytest.skip("the server is not ours to kill")
    told = busy_lab(7, segments=200)

    for kill_at in (40, 100):
        fallen = threading.Event()

        def keep_writing(fallen: threading.Event = fallen) -> None:
            try:
                resume_and_finish(clickhouse.client(), told, size=4)
            except (DatabaseError, ConnectionError):
                fallen.set()

        writing = threading.Thread(target=keep_writing)
        writing.start()
        while visible_position(client) < kill_at and writing.is_alive():
            pass
        clickhouse.kill()
        writing.join()
        assert fallen.is_set(), "it was killed too late to be a test"
        clickhouse.start()
        client = clickhouse.client()
    resume_and_finish(client, told, size=200)
    check_totals(client, told)
