"""Writes batches to ClickHouse so that every fact counts once, whatever dies in between.

`events` first: it settles what the batch is, because its token is made of the first position alone. Whoever writes a
batch with that first position later (a second journal, this one after a restart while its last request is still under
way) is dropped, sees it in the check that follows, and goes on from what is there. Then everything derived from the
batch, each block with a token of the same kind. A batch is begun only when the one before it is everywhere, so after a
crash only the last batch in `events` can be incomplete: it is derived again from `events` and written again; blocks
that are there already are dropped, in the table and, apart from it, in the view behind it.

Tokens are remembered for a number of blocks only. So a journal that was suspended must not write what it had in hand:
`until` is an instant by `time.monotonic` after which nothing is sent.
"""

import math
import time

from clickhouse_connect.driver import Client

from services.journal.batch import DERIVES, Batch, Insert, rebuilt
from tenure.clickhouse.migrate import migrate
from tenure.domain.ids import LOG_START, Position
from tenure.domain.refusal import Refusal
from tenure.events.fact import Recorded
from tenure.log.codec import decode
from tenure.log.restore import family

SETTINGS = {
    "async_insert": 0,
    "insert_deduplicate": 1,
    "deduplicate_blocks_in_dependent_materialized_views": 1,
    "parallel_view_processing": 1,
}
"""Of inserts. The tables behind views are written at the same time: each waits for the disk."""


class Overtaken(Exception):
    """The batch in the table is another one than was meant, or that cannot be ruled out."""


class Writer:
    """The journal's hands. Not for several threads at once."""

    def __init__(self, client: Client, *, cluster: str | None = None) -> None:
        """`cluster`: the ClickHouse cluster whose servers all have the tables; None: one server."""
        self._client, self._cluster = client, cluster
        self._until = math.inf

    def resume(self, log_identity: str, *, until: float = math.inf) -> Position:
        """Bring schema and last batch in order. Returns the position after which to go on.

        Raises `Refusal` if the database belongs to another log or has facts twice, `DatabaseError` if the server cannot
        do it now.
        """
        self._until = until
        migrate(self._client, cluster=self._cluster)
        self._claim(log_identity)
        last = self._client.query("SELECT batch FROM events ORDER BY position DESC LIMIT 1").result_rows
        if not last:
            return LOG_START
        first = last[0][0]
        query = "SELECT position, kind, payload FROM events WHERE position >= {first:UInt64} ORDER BY position"
        rows = self._client.query(query, {"first": first}).result_rows
        if len({row[0] for row in rows}) < len(rows):
            fix = "make the database anew from the log (docs/operations.md, When everything is lost), and report it"
            raise Refusal(
                field=f"database {self._client.database}", problem=f"facts from position {first} on are twice", fix=fix
            )
        derives = {kind.__name__ for kind in DERIVES}
        facts = [Recorded(Position(at), decode(payload.encode())) for at, kind, payload in rows if kind in derives]
        for insert in rebuilt(facts, first=Position(first)).derived_inserts():
            self._insert(insert)
        return Position(rows[-1][0])

    def write(self, batch: Batch, *, until: float = math.inf) -> None:
        """Write a batch that begins where `resume` or the batch before ended.

        When it returns, all of it is acknowledged. Raises `Overtaken`, or `DatabaseError` if it is unknown what was
        written; both mean `resume`.
        """
        self._until = until
        self._insert(batch.event_insert())
        self._check(batch)
        for insert in batch.derived_inserts():
            self._insert(insert)

    def _insert(self, insert: Insert) -> None:
        if time.monotonic() > self._until:
            raise Overtaken("this took so long that another one may have written it")
        self._client.insert(
            insert.table.name,
            insert.rows,
            column_names=insert.table.columns,
            column_type_names=insert.table.types,
            settings={**SETTINGS, "insert_deduplication_token": insert.token},
        )

    def _check(self, batch: Batch) -> None:
        query = "SELECT count(), max(position), max(batch) FROM events WHERE position >= {first:UInt64}"
        found = self._client.query(query, {"first": batch.first}).result_rows[0]
        meant = (len(batch.events), batch.last, batch.first)
        if tuple(found) != meant:
            raise Overtaken(f"batch {batch.first}: wrote (rows, last, batch) {meant}, found {tuple(found)}")

    def _claim(self, log_identity: str) -> None:
        """Tie the database to one log: positions of another one would be taken for its own."""
        owners = [row[0] for row in self._client.query("SELECT identity FROM journal_log ORDER BY at").result_rows]
        if not owners:
            self._client.insert("journal_log", [[log_identity]], column_names=["identity"])
        elif family(owners[0]) != family(log_identity):
            raise Refusal(
                field=f"database {self._client.database}",
                problem="it holds the facts of another log",
                fix="name another database (--clickhouse http://host:port/NAME), or drop this one",
            )
