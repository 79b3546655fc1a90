"""What is said to one server of a ClickHouse cluster so that all of them have the schema."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from clickhouse_connect.driver import Client

from tenure.clickhouse.migrate import MIGRATIONS, migrate, read_migrations
from tenure.clickhouse.replicated import check_cluster, on_cluster
from tenure.domain.refusal import Refusal

COUNT = len(list(read_migrations(MIGRATIONS)))


class OneOfThem:
    """A server of a cluster, as far as the schema asks it: it notes what it is told."""

    def __init__(self, *, shards: int = 1, macros: tuple[str, ...] = ("replica", "shard"), events: str = "") -> None:
        self.database: str | None = "tenure"
        self.told: list[str] = []
        self.recorded: list[tuple[int, str]] = []
        self.has_records = False
        self._shards, self._macros, self._events = shards, macros, events

    def query(self, text: str, parameters: dict[str, str] | None = None) -> Any:
        """As `Client.query`."""
        rows: list[Any] = []
        if "name = 'events'" in text:
            rows = [(self._events,)] if self._events else []
        elif "uniqExact(shard_num)" in text:
            rows = [(self._shards if (parameters or {})["cluster"] == "lab" else 0,)]
        elif "DISTINCT cluster" in text:
            rows = [("lab",)]
        elif "system.macros" in text:
            rows = [(name,) for name in self._macros]
        elif "name = 'migrations'" in text:
            rows = [(1,)] if self.has_records else []
        elif "FROM migrations" in text:
            rows = list(self.recorded)
        return SimpleNamespace(result_rows=rows)

    def command(self, text: str, parameters: dict[str, str] | None = None) -> None:
        """As `Client.command`."""
        self.has_records = self.has_records or "migrations" in text
        self.told.append(text)

    def insert(self, table: str, rows: list[list[Any]], column_names: list[str]) -> None:
        """As `Client.insert`."""
        assert table == "migrations"
        self.recorded += [(row[0], row[2]) for row in rows]


def test_every_server_makes_its_own_tables_and_views() -> None:
    server = OneOfThem()
    assert len(migrate(cast(Client, server), cluster="lab")) == COUNT
    for said in server.told:
        itself = said.startswith("INSERT") or (said.startswith("ALTER") and "MODIFY SETTING" not in said)
        assert ("ON CLUSTER `lab`" in said) != itself, said
        assert said.count("ON CLUSTER") <= 1
        if said.startswith("CREATE TABLE"):
            assert "Replicated" in said and "'/clickhouse/tables/{shard}/{database}/{table}', '{replica}'" in said
        assert "non_replicated" not in said
    assert server.told[0].startswith("CREATE DATABASE IF NOT EXISTS {name:Identifier} ON CLUSTER `lab`")


def test_nothing_waits_for_a_server_that_is_away_when_all_is_there() -> None:
    """What is said on a cluster waits for every server of it."""
    server = OneOfThem()
    migrate(cast(Client, server), cluster="lab")
    server.told.clear()
    assert migrate(cast(Client, server), cluster="lab") == []
    assert server.told == []


def test_the_arguments_of_an_engine_come_after_its_place() -> None:
    said = on_cluster(
        "CREATE TABLE IF NOT EXISTS t (a Int64, b Int64) ENGINE = SummingMergeTree((a, b)) ORDER BY a", "lab"
    )
    assert (
        "ENGINE = ReplicatedSummingMergeTree('/clickhouse/tables/{shard}/{database}/{table}', '{replica}', (a, b))"
        in said
    )


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE events",
        "OPTIMIZE TABLE events",
        "CREATE TABLE IF NOT EXISTS t (a Int64) ENGINE = Log",
        "RENAME TABLE events TO old",
    ],
)
def test_a_statement_of_another_kind_is_thought_about_first(statement: str) -> None:
    with pytest.raises(ValueError, match=r"on a cluster|MergeTree family"):
        on_cluster(statement, "lab")


@pytest.mark.parametrize(
    ("server", "cluster", "says"),
    [
        (OneOfThem(), "other", r"knows no cluster 'other'.*name one of: lab"),
        (OneOfThem(), "a`b", r"'a`b' is no name"),
        (OneOfThem(shards=2), "lab", r"'lab' has 2 shards.*name one of a single shard"),
        (OneOfThem(macros=("shard",)), "lab", r"no macro 'replica'.*set it in the section <macros>"),
        (OneOfThem(events="MergeTree"), "lab", r"its tables are not replicated.*name another database"),
        (OneOfThem(events="ReplicatedMergeTree"), None, r"its tables are replicated.*--clickhouse-cluster"),
    ],
)
def test_what_cannot_hold_the_schema_is_refused(server: OneOfThem, cluster: str | None, says: str) -> None:
    with pytest.raises(Refusal, match=says):
        check_cluster(cast(Client, server), cluster)
    assert server.told == []


def test_one_server_and_a_cluster_that_was_made_as_one_are_welcome() -> None:
    check_cluster(cast(Client, OneOfThem(events="MergeTree")), None)
    check_cluster(cast(Client, OneOfThem(events="ReplicatedMergeTree")), "lab")
