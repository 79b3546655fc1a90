"""The schema on a ClickHouse cluster: the same files, with replicated tables on every server of it (decision 0024).

Tables replicate themselves, so their rows and most of what ALTER changes are said to one server. What each server
makes for itself (tables, views, settings of tables) is said `ON CLUSTER`.
"""

import re
from typing import NoReturn

from clickhouse_connect.driver import Client

from tenure.domain.refusal import Refusal

KEEPER_PATH = "/clickhouse/tables/{shard}/{database}/{table}"
"""Where a table's replicas meet. `{shard}` and `{replica}` are macros of each server, the others are its own."""
REPLICA = "{replica}"
MACROS = ("shard", "replica")
_FIELD = "--clickhouse-cluster"

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_MADE = re.compile(
    r"(CREATE (?:OR REPLACE )?(?:TABLE|VIEW|MATERIALIZED VIEW)(?: IF NOT EXISTS)? \w+"
    r"|CREATE DATABASE IF NOT EXISTS \{name:Identifier\}"
    r"|ALTER TABLE \w+(?= MODIFY SETTING\b))"
)
_REPLICATED_ITSELF = re.compile(r"(INSERT INTO|ALTER TABLE) \w+")
_ENGINE = re.compile(r"ENGINE = (\w*)MergeTree\b(\(?)")
_WINDOW = re.compile(r"\bnon_replicated_deduplication_window = (\d+)")


def on_cluster(statement: str, cluster: str) -> str:
    """A statement of the schema as it is said to one server of `cluster`, for all of them.

    Raises `ValueError` for a statement of a kind that the schema did not have so far.
    """
    made, count = _MADE.subn(rf"\1 ON CLUSTER `{cluster}`", statement, count=1)
    if count == 0 or not _MADE.match(statement):
        if not _REPLICATED_ITSELF.match(statement):
            raise ValueError(f"nobody said how this is done on a cluster: {statement[:80]}")
        return statement
    if statement.startswith("CREATE TABLE"):
        made, count = _ENGINE.subn(_replicated_engine, made)
        if count != 1:
            raise ValueError(f"a table without one engine of the MergeTree family: {statement[:80]}")
        made = _WINDOW.sub(
            r"replicated_deduplication_window = \1, replicated_deduplication_window_seconds = 604800", made
        )
    return made


def check_cluster(client: Client, cluster: str | None) -> None:
    """Raises `Refusal` for a cluster that cannot hold the schema, and for a database that was made the other way."""
    rows = client.query(_ENGINE_OF_EVENTS, {"database": client.database}).result_rows
    if rows and rows[0][0].startswith("Replicated") != (cluster is not None):
        _refuse_other_way(client.database, replicated=cluster is None)
    if cluster is None:
        return
    if not _NAME.fullmatch(cluster):
        raise Refusal(field=_FIELD, problem=f"{cluster[:60]!r} is no name", fix="write a name of system.clusters")
    shards = client.query(_SHARDS, {"cluster": cluster}).result_rows[0][0]
    if shards == 0:
        known = ", ".join(row[0] for row in client.query("SELECT DISTINCT cluster FROM system.clusters").result_rows)
        raise Refusal(field=_FIELD, problem=f"the server knows no cluster {cluster!r}", fix=f"name one of: {known}")
    if shards > 1:
        fix = "name one of a single shard: each server has all rows (docs/sizing.md says how far that goes)"
        raise Refusal(field=_FIELD, problem=f"{cluster!r} has {shards} shards", fix=fix)
    macros = {row[0] for row in client.query("SELECT macro FROM system.macros").result_rows}
    missing = [name for name in MACROS if name not in macros]
    if missing:
        fix = "set it in the section <macros> of every server, {replica} to another value on each"
        raise Refusal(field=_FIELD, problem=f"the server has no macro {missing[0]!r}", fix=fix)


_ENGINE_OF_EVENTS = "SELECT engine FROM system.tables WHERE database = {database:String} AND name = 'events'"
_SHARDS = "SELECT uniqExact(shard_num) FROM system.clusters WHERE cluster = {cluster:String}"


def _replicated_engine(found: "re.Match[str]") -> str:
    kind, has_arguments = found[1], found[2]
    return f"ENGINE = Replicated{kind}MergeTree('{KEEPER_PATH}', '{REPLICA}'" + (", " if has_arguments else ")")


def _refuse_other_way(database: str | None, *, replicated: bool) -> NoReturn:
    if replicated:
        problem, fix = "its tables are replicated", "name the cluster they were made on: --clickhouse-cluster NAME"
    else:
        problem = "its tables are not replicated"
        fix = "name another database, and copy them there (docs/operations.md, ClickHouse on several servers)"
    raise Refusal(field=f"database {database}", problem=problem, fix=fix)
