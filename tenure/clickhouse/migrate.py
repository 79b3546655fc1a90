"""Brings a database to the present schema: the files of `deploy/clickhouse`, in order, each once.

They are part of the package: `migrations` beside this file leads to them in a checkout and is a copy when installed.

Every statement in them may be run again (`IF NOT EXISTS`), so two processes that start at once, or a crash half-way,
do no harm. None takes away what a journal of an earlier version writes, so that one may go on meanwhile.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clickhouse_connect.driver import Client

from tenure.clickhouse.replicated import check_cluster, on_cluster
from tenure.domain.refusal import Refusal

MIGRATIONS = Path(__file__).parent / "migrations"
_NAME = re.compile(r"(\d{3})_[a-z0-9_]+\.sql")
_END_OF_STATEMENT = re.compile(r";[ \t]*$", re.MULTILINE)
_RECORD = """CREATE TABLE IF NOT EXISTS migrations
(number UInt32, name String, sha256 String, at DateTime DEFAULT now())
ENGINE = ReplacingMergeTree ORDER BY number"""
_DATABASE = "CREATE DATABASE IF NOT EXISTS {name:Identifier}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One file: its number, its statements without comments, and their hash."""

    number: int
    name: str
    statements: tuple[str, ...]

    @property
    def sha256(self) -> str:
        """Changes when a statement does, not when a comment does."""
        return hashlib.sha256("\n;\n".join(self.statements).encode()).hexdigest()


def migrate(client: Client, *, folder: Path = MIGRATIONS, cluster: str | None = None) -> list[str]:
    """Apply what is missing, on all servers of a `cluster` if it is one. Returns the files applied.

    Raises `Refusal` if an applied file was changed, or if the database or the cluster is none for this.
    """
    check_cluster(client, cluster)
    applied, migrations = _applied(client), list(read_migrations(folder))
    if any(migration.number not in applied for migration in migrations):  # else nothing waits for a server that is away
        _create_database(client, cluster)
        client.command(_said(_RECORD, cluster))
        applied = _applied(client)
    fresh = []
    for migration in migrations:
        if migration.number not in applied:
            for statement in migration.statements:
                client.command(_said(statement, cluster))
            row = [migration.number, migration.name, migration.sha256]
            client.insert("migrations", [row], column_names=["number", "name", "sha256"])
            fresh.append(migration.name)
        elif applied[migration.number] != migration.sha256:
            raise Refusal(
                field=f"database {client.database}",
                problem=f"{migration.name} was applied in another form than it has now",
                fix="undo the change and add a new file, or use an empty database",
            )
    return fresh


def read_migrations(folder: Path) -> Iterator[Migration]:
    """The migrations in a folder, by number. Raises `Refusal` if there is none or two have one number."""
    found = {}
    for path in sorted(folder.glob("*.sql")):
        match = _NAME.fullmatch(path.name)
        if match is None or int(match[1]) in found:
            raise Refusal(field=str(path), problem="not a migration", fix="name it 004_words.sql with a free number")
        found[int(match[1])] = Migration(number=int(match[1]), name=path.name, statements=statements(path.read_text()))
    if not found:
        raise Refusal(field=str(folder), problem="no migrations there", fix="install tenure again: they are part of it")
    yield from found.values()


def statements(text: str) -> tuple[str, ...]:
    """The statements of a file without its comment lines. A statement ends with `;` at the end of a line."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("--")]
    parts = (part.strip() for part in _END_OF_STATEMENT.split("\n".join(lines)))
    return tuple(part for part in parts if part)


def _applied(client: Client) -> dict[int, str]:
    """Number and hash of what was applied; of one that was applied twice, the later."""
    query = "SELECT 1 FROM system.tables WHERE database = {database:String} AND name = 'migrations'"
    if not client.query(query, {"database": client.database}).result_rows:
        return {}
    rows = client.query("SELECT number, sha256 FROM migrations ORDER BY number, at").result_rows
    return {int(number): str(sha256) for number, sha256 in rows}


def _said(statement: str, cluster: str | None) -> str:
    return statement if cluster is None else on_cluster(statement, cluster)


def _create_database(client: Client, cluster: str | None) -> None:
    """Make the database where it is missing. The embedded server has it and refuses the attempt."""
    name, client.database = client.database, None
    try:
        parameters = {"name": name}
        there = client.query("SELECT 1 FROM system.databases WHERE name = {name:String}", parameters).result_rows
        if not there or cluster is not None:
            client.command(_said(_DATABASE, cluster), parameters)
    finally:
        client.database = name
