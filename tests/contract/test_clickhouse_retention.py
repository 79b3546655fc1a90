"""What the database forgets and what it keeps, and how the schema is changed while it is in use."""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from clickhouse_connect.driver import Client

from services.journal.writer import Writer
from tenure.clickhouse.migrate import MIGRATIONS, migrate, read_migrations
from tenure.clickhouse.report import budget_report
from tenure.clickhouse.story import export, story
from tenure.clickhouse.window import read_window
from tenure.domain.ids import JobId
from tenure.domain.units import DAY, HOUR
from tenure.events.catalogue import KINDS
from tenure.events.reports import Heartbeat
from tests.contract.own_clickhouse import Server, clickhouse, client, tables
from tests.contract.test_clickhouse_schema import batches, busy_lab, by_budget, occupied
from tests.contract.test_journal_writer import check_totals, lab, resume_and_finish
from tests.unit.journal.facts import T0

__all__ = ["clickhouse", "client"]

RETENTION = "012_ttl.sql"
PLAIN = {"events", "occupancy", "capacity", "demand", "shares", "journal_log"}
WEEK = (T0, T0 + 7 * DAY)


def grow_old(client: Client, table: str, *, days: int) -> None:
    """As if its rows had been written so many days ago; then what the server does by itself, now."""
    aged = f"written = now() - INTERVAL {days} DAY"
    client.command(f"ALTER TABLE {table} UPDATE {aged} WHERE 1 SETTINGS mutations_sync = 2")
    client.command(f"OPTIMIZE TABLE {table} FINAL")


def count(client: Client, query: str) -> int:
    return int(client.query(f"SELECT count() FROM {query}").result_rows[0][0])


def kept(client: Client) -> dict[str, Any]:
    """What has to outlive heartbeats: reports, windows, stories, every table but the one they lie in."""
    counts = {table: count(client, table) for table in ("capacity", "demand", "shares")}
    counts |= {table: count(client, f"{table} FINAL") for table in set(tables(client)) - PLAIN}
    return {
        "report": budget_report(client, *WEEK),
        "window": read_window(client, T0 + 7, T0 + 3 * HOUR + 5),
        "story": story(client, JobId("j1")),
        "facts": [recorded for recorded in export(client) if not isinstance(recorded.fact, Heartbeat)],
        **counts,
    }


def test_heartbeats_are_forgotten_after_thirty_days_and_nothing_else_is(client: Client) -> None:
    told = lab()
    resume_and_finish(client, told, size=5)
    before, beats = kept(client), count(client, "events WHERE kind = 'Heartbeat'")
    grow_old(client, "events", days=29)
    assert count(client, "events WHERE kind = 'Heartbeat'") == beats > 0
    grow_old(client, "events", days=31)
    assert count(client, "events WHERE kind = 'Heartbeat'") == 0
    assert kept(client) == before
    assert [each.position for each in export(client)] == [
        each.position for each in told.recorded if not isinstance(each.fact, Heartbeat)
    ]


def test_the_log_can_be_made_anew_without_the_heartbeats_that_are_gone(client: Client) -> None:
    """Each other fact stands where it stood: `tenure log restore` leaves the positions between them empty."""
    told = lab()
    resume_and_finish(client, told, size=5)
    grow_old(client, "events", days=31)
    others = [kind for kind in KINDS.values() if kind is not Heartbeat]
    assert [*export(client)] == [*export(client, others)]
    assert [*export(client)] == [each for each in told.recorded if not isinstance(each.fact, Heartbeat)]


def test_the_journal_goes_on_beside_what_is_forgotten(client: Client) -> None:
    told = lab()
    half = len(told.recorded) // 2
    writer = Writer(client)
    writer.resume("log")
    for batch in batches(told.recorded[:half], size=5):
        writer.write(batch)
    grow_old(client, "events", days=31)
    resume_and_finish(client, told, size=5)
    totals = client.query("SELECT kind, count() FROM occupancy GROUP BY kind ORDER BY kind").result_rows
    clean = sum(len(beat.segments) for each in told.recorded for beat in getattr(each.fact, "hosts", ()))
    assert dict(totals)["segment"] == clean
    assert count(client, "events WHERE kind = 'Heartbeat'") > 0, "what is written later is young"


def test_an_instant_in_a_fact_does_not_make_it_old(client: Client) -> None:
    """A host whose clock is decades behind: its heartbeats are there for thirty days like all others."""
    told = busy_lab(2, segments=20)
    long_ago = 400 * DAY
    for each in list(told.recorded[:5]):
        for beat in getattr(each.fact, "hosts", ()):
            for part in beat.segments:
                told.held("old.1", part.since - long_ago, part.until - long_ago, at=part.until - long_ago)
    resume_and_finish(client, told, size=5)
    for table in ("events", "occupancy"):
        client.command(f"OPTIMIZE TABLE {table} FINAL")
    assert count(client, "events") == len(told.recorded)
    assert count(client, "occupancy") == len(told.recorded)


def test_occupancy_is_dropped_by_whole_parts_after_two_years_and_its_rollup_stays(client: Client) -> None:
    told = busy_lab(4)
    resume_and_finish(client, told, size=50)
    before, hours = kept(client), (T0, T0 + 8 * HOUR)
    grow_old(client, "occupancy", days=700)
    assert count(client, "occupancy") == len(told.recorded)
    grow_old(client, "occupancy", days=740)
    assert count(client, "occupancy") == 0
    assert by_budget(read_window(client, *hours)) == occupied(told, *hours)
    after = kept(client)
    assert after["report"] == before["report"], "whole hours come from the rollup"
    assert after["window"] != before["window"], "the two edges of a stretch need its rows: docs/operations.md says so"
    assert after["occupancy_hourly"] == before["occupancy_hourly"] and after["held_samples"] == before["held_samples"]


def test_a_month_can_be_taken_away_by_hand(client: Client) -> None:
    told = lab()
    resume_and_finish(client, told, size=5)
    months = [row[0] for row in client.query("SELECT DISTINCT _partition_id FROM occupancy ORDER BY 1").result_rows]
    assert len(months) > 1
    left = count(client, f"occupancy WHERE _partition_id != '{months[0]}'")
    client.command(f"ALTER TABLE occupancy DROP PARTITION {months[0]}")
    assert count(client, "occupancy") == left > 0


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """The schema without what is kept for how long; what came after that does not depend on it."""
    folder = tmp_path / "older"
    folder.mkdir()
    for path in MIGRATIONS.glob("*.sql"):
        if path.name != RETENTION:
            shutil.copy(path, folder)
    return folder


@pytest.fixture
def empty(client: Client) -> Iterator[Client]:
    """A database with nothing in it, and afterwards one with the present schema and no rows."""
    clear(client)
    yield client
    clear(client)
    migrate(client)


def clear(client: Client) -> None:
    """Views first: they hold on to tables."""
    query = "SELECT name, engine LIKE '%View' FROM system.tables WHERE database = {name:String} ORDER BY 2 DESC, 1"
    for name, is_view in client.query(query, {"name": client.database}).result_rows:
        client.command(f"DROP {'VIEW' if is_view else 'TABLE'} `{name}` SYNC")


def schema(client: Client) -> list[Any]:
    """Every table and view as the server would write it."""
    query = "SELECT name, create_table_query FROM system.tables WHERE database = {name:String} ORDER BY name"
    return list(client.query(query, {"name": client.database}).result_rows)


class Mortal:
    """A client whose process dies at its n-th command, before or after the server did it."""

    def __init__(self, client: Client, *, dies_at: int, taken: bool) -> None:
        self._client, self._left, self._taken = client, dies_at, taken

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def command(self, *given: Any) -> None:
        """As `Client.command`."""
        self._left -= 1
        if self._left > 0 or self._taken:
            self._client.command(*given)
        if self._left <= 0:
            raise Killed


class Killed(Exception):
    """It died here."""


@pytest.mark.parametrize("taken", [False, True], ids=["before-it-is-done", "after-it-is-done"])
def test_migrations_are_cut_off_at_every_statement(empty: Client, taken: bool) -> None:
    """Each time one statement further than before, then once whole: the schema is that of a single run."""
    expected = wanted_schema(empty)
    clear(empty)
    deaths = 0
    for dies_at in range(1, 200):
        try:
            migrate(cast(Client, Mortal(empty, dies_at=dies_at, taken=taken)))
        except Killed:
            deaths += 1
        else:
            break
    longest = max(len(migration.statements) for migration in read_migrations(MIGRATIONS))
    assert deaths >= longest
    assert schema(empty) == expected
    write_all(empty)


def wanted_schema(client: Client) -> list[Any]:
    migrate(client)
    return schema(client)


def write_all(client: Client) -> None:
    told = lab()
    resume_and_finish(client, told, size=5)
    check_totals(client, told)


def test_an_older_journal_writes_while_a_newer_one_migrates(clickhouse: Server, empty: Client, before: Path) -> None:
    """Nothing is lost or doubled, and the older one may start again afterwards."""
    told = busy_lab(8, segments=240)
    migrate(empty, folder=before)
    own, begun, done = clickhouse.client(), threading.Event(), []

    def write_as_before() -> None:
        try:
            writer = Writer(own)
            for number, batch in enumerate(batches(told.recorded, size=4)):
                writer.write(batch)
                if number == 10:
                    begun.set()
            done.append(True)
        finally:
            begun.set()

    older = threading.Thread(target=write_as_before)
    older.start()
    begun.wait(60)
    assert migrate(empty)[0] == RETENTION
    assert older.is_alive(), "the older one was done too early for this to be a test"
    older.join()
    assert done
    check_totals(empty, told)
    assert migrate(empty, folder=before) == []


def test_a_migration_does_not_wait_for_what_is_being_read_or_written_anew(empty: Client, before: Path) -> None:
    """Rows of before the change count from the change, once and for all."""
    told = busy_lab(9, segments=400)
    migrate(empty, folder=before)
    writer = Writer(empty)
    for batch in batches(told.recorded, size=100):
        writer.write(batch)
    slow = "SELECT position, sleepEachRow(0.01) FROM events SETTINGS max_block_size = 50"
    with empty.query_row_block_stream(slow) as blocks:
        next(iter(blocks))
        assert migrate(empty)[0] == RETENTION
        assert sum(len(list(block)) for block in blocks) > 0, "it was being read all the while"
    while count(empty, "system.mutations WHERE database = currentDatabase() AND NOT is_done"):
        pass
    first = empty.query("SELECT min(written), max(written) FROM events").result_rows
    empty.command("OPTIMIZE TABLE events FINAL")
    assert empty.query("SELECT min(written), max(written) FROM events").result_rows == first
    assert count(empty, "events") == len(told.recorded)
