"""The tables that dashboards ask: empty, filled while facts come, filled from the past, and filled twice."""

from typing import Any

from clickhouse_connect.driver import Client

from tenure.clickhouse.migrate import MIGRATIONS, migrate, read_migrations, statements
from tenure.domain.units import DAY
from tests.contract.dashboards.expand import dashboards, panels
from tests.contract.dashboards.month import DAYS, T0, load, month
from tests.contract.own_clickhouse import clickhouse, client

__all__ = ["clickhouse", "client"]

FILLED = {
    "facts": ("events_to_facts", "kind, position, reason, payload"),
    "jobs": ("events_to_jobs", "position, job, submitted_ms, budget, user, gpus, min_runtime_ms"),
    "run_hosts": ("events_to_run_hosts", "host, position, run, gpus"),
    "standings": (
        "events_to_standings",
        "period, path, position, charged_gpu_ms, commitment_gpu_ms, entitlement_gpu_ms",
    ),
    "held_samples": ("occupancy_to_held_samples", "at, host, position, run, gpus"),
}
"""Table: the view that fills it, and what its rows say."""
MIGRATION = MIGRATIONS / "007_dashboards.sql"
SHORT = 2


def contents(client: Client) -> dict[str, Any]:
    """How many rows each table has, and a sum over what they say."""
    return {
        table: client.query(
            f"SELECT count(), groupBitXor(cityHash64({columns})), sum(position) FROM {table} FINAL"
        ).result_rows
        for table, (_, columns) in FILLED.items()
    }


def test_every_panel_answers_of_nothing(client: Client) -> None:
    for name, board in dashboards().items():
        for shown in panels(name, board):
            answer = client.query(shown.asks(T0, T0 + DAYS * DAY))
            assert answer.result_rows == [], shown.title


def test_the_past_is_filled_as_the_present_is(client: Client) -> None:
    """A database of before these tables comes to the same rows; a second time changes nothing."""
    load(client, month(SHORT).recorded)
    live = contents(client)
    assert all(rows[0][0] > 100 for rows in live.values()), live
    for table, (view, _) in FILLED.items():
        client.command(f"DROP VIEW {view} SYNC")
        client.command(f"DROP TABLE {table} SYNC")
    (number,) = [each.number for each in read_migrations(MIGRATIONS) if each.name == MIGRATION.name]
    client.command(f"ALTER TABLE migrations DELETE WHERE number = {number} SETTINGS mutations_sync = 2")
    assert migrate(client) == [MIGRATION.name]
    assert contents(client) == live
    for statement in statements(MIGRATION.read_text()):
        client.command(statement)
    assert contents(client) == live


def test_the_past_is_asked_as_the_present_is() -> None:
    """What a view takes from a fact, the statement below it takes, too."""
    found = statements(MIGRATION.read_text())
    for table, (view, _) in FILLED.items():
        (live,) = [
            each for each in found if each.startswith(f"CREATE MATERIALIZED VIEW IF NOT EXISTS {view} TO {table} AS")
        ]
        (past,) = [each for each in found if each.startswith(f"INSERT INTO {table}")]
        assert live.split(" AS\n", 1)[1] == past.split("\n", 1)[1]
