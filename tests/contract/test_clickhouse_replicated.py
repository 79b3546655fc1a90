"""The schema on a cluster, as far as one embedded engine can say: it reads every statement, and makes every table.

What a cluster does with them is in `tests/integration/deploy/test_clickhouse_cluster.py`, on real servers.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from clickhouse_connect.driver import Client

from tenure.clickhouse.migrate import MIGRATIONS, migrate, read_migrations
from tenure.clickhouse.replicated import on_cluster
from tenure.domain.refusal import Refusal
from tests.contract.own_clickhouse import clickhouse, client
from tests.e2e.roles import Roles

__all__ = ["clickhouse", "client"]

STATEMENTS = [said for migration in read_migrations(MIGRATIONS) for said in migration.statements]
ENGINE_S = 60


def test_the_engine_reads_every_statement_as_it_is_meant(client: Client) -> None:
    for statement in STATEMENTS:
        said = on_cluster(statement, "lab")
        plain, replicated = (
            client.query("SELECT formatQuery({text:String})", {"text": text}).result_rows[0][0]
            for text in (statement, said)
        )
        first = replicated.split("\n", 1)[0]
        assert ("ON CLUSTER lab" in first) == ("ON CLUSTER" in said), first
        engine = re.search(r"^ENGINE = (\w+)", plain, re.MULTILINE)
        if engine is not None:
            assert f"ENGINE = Replicated{engine[1]}('/clickhouse/tables/" in replicated


def test_the_engine_makes_every_table_replicated_and_otherwise_as_on_one_server(client: Client, tmp_path: Path) -> None:
    made = [
        on_cluster(statement, "lab").replace(" ON CLUSTER `lab`", "", 1)
        for statement in STATEMENTS
        if statement.startswith("CREATE")
    ]
    command = [sys.executable, "-m", "tests.contract.one_replica", str(tmp_path)]
    done = subprocess.run(
        command, input=json.dumps(made), capture_output=True, text=True, timeout=ENGINE_S, check=False
    )
    assert done.stdout, done.stderr[-2000:]
    query = """
        SELECT name, engine, sorting_key, partition_key FROM system.tables
        WHERE database = {name:String} AND name != 'migrations' ORDER BY name"""
    alone = client.query(query, {"name": client.database}).result_rows
    together = [row[:4] for row in json.loads(done.stdout)["tables"]]
    assert [_unreplicated(row) for row in together] == [tuple(row) for row in alone]
    tables = [row for row in together if row[1].endswith("MergeTree")]
    assert len(tables) >= 12 and all(row[1].startswith("Replicated") for row in tables)


def test_the_shipped_cluster_is_one_that_can_hold_the_schema(tmp_path: Path) -> None:
    """The engine reads `deploy/clickhouse-cluster/cluster.xml`; what it then knows of it is what is asked."""
    shipped = Path(__file__).parents[2] / "deploy" / "clickhouse-cluster" / "cluster.xml"
    environment = {"CLICKHOUSE_NUMBER": "2", "CLICKHOUSE_HOST": "clickhouse-2", "CLICKHOUSE_SECRET": "of-this-test"}
    command = [sys.executable, "-m", "tests.contract.one_replica", str(tmp_path), str(shipped)]
    done = subprocess.run(
        command,
        input="[]",
        capture_output=True,
        text=True,
        timeout=ENGINE_S,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.stdout, done.stderr[-2000:]
    knows = json.loads(done.stdout)
    assert knows["macros"] == [["replica", "clickhouse-2"], ["shard", "01"]]
    assert knows["servers"] == [["tenure", 1, f"clickhouse-{number}"] for number in (1, 2, 3)]


def _unreplicated(row: list[Any]) -> tuple[Any, ...]:
    return (row[0], row[1].removeprefix("Replicated"), *row[2:])


def test_one_server_is_no_cluster(client: Client) -> None:
    """Nothing is changed on the way to saying so."""
    with pytest.raises(Refusal, match="database tenure: its tables are not replicated"):
        migrate(client, cluster="lab")
    assert migrate(client) == []


def test_a_journal_that_is_told_of_a_cluster_which_is_none_says_so_and_ends(tmp_path: Path) -> None:
    with Roles(tmp_path, knobs=()) as roles:
        roles.start("journal", "--clickhouse-cluster", "lab", status=1)
        assert roles.until(lambda: roles.processes["journal"].poll(), what="the journal to end", timeout_s=60) == 1
        assert "--clickhouse-cluster: the server knows no cluster 'lab'" in roles.said("journal")


def test_what_one_server_has_can_be_made_on_another_in_the_order_of_the_handbook(client: Client) -> None:
    """The statement of docs/operations.md for a server that joins: tables, then views, those first that others need."""
    handbook = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    (query,) = re.findall(r"(SELECT create_table_query.*?ORDER BY [^\n;]*);", handbook, re.DOTALL)
    made = [row[0] for row in client.query(query).result_rows]
    for name in reversed([row[0] for row in client.query(query.replace("create_table_query", "name", 1)).result_rows]):
        kind = "TABLE" if any(re.match(rf"CREATE TABLE tenure\.`?{name}\b", each) for each in made) else "VIEW"
        client.command(f"DROP {kind} `{name}` SYNC")
    for statement in made:
        client.command(statement)
    assert sorted(row[0] for row in client.query(query).result_rows) == sorted(made)
