"""Facts read back from `events`: the story of a job, how far the database has come, the whole log."""

from collections.abc import Iterator, Sequence

from clickhouse_connect.driver import Client

from tenure.domain.ids import LOG_START, JobId, Position
from tenure.domain.units import Millis
from tenure.events.catalogue import Kind
from tenure.events.fact import Recorded
from tenure.log.codec import Undecodable, decode


def story(client: Client, job: JobId) -> list[tuple[Position, Millis, bytes]]:
    """Position, instant and JSON of every fact about a job, and of what others suffered for it, in order."""
    query = (
        "SELECT position, at_ms, payload FROM events WHERE job = {job:String} OR by = {job:String} ORDER BY position"
    )
    rows = client.query(query, {"job": job}).result_rows
    return [(Position(position), at_ms, payload.encode()) for position, at_ms, payload in rows]


def log_identity(client: Client) -> str:
    """Which log the facts are from; empty if there are none yet."""
    rows = client.query("SELECT identity FROM journal_log ORDER BY at LIMIT 1").result_rows
    return str(rows[0][0]) if rows else ""


def visible_position(client: Client) -> Position:
    """The position of the last fact in `events`; 0 if there is none."""
    return _last(client)[0]


def complete_position(client: Client) -> Position:
    """Up to here every table and view has all that follows from the facts; 0 at the start.

    The journal begins a batch in `events` only when the batch before it is everywhere.
    """
    return Position(max(LOG_START, _last(client)[1] - 1))


def _last(client: Client) -> tuple[Position, Position]:
    """The last position and the first position of its batch."""
    rows = client.query("SELECT position, batch FROM events ORDER BY position DESC LIMIT 1").result_rows
    return (Position(rows[0][0]), Position(rows[0][1])) if rows else (LOG_START, LOG_START)


def export(client: Client, kinds: Sequence[Kind] | None = None, *, after: Position = LOG_START) -> Iterator[Recorded]:
    """The facts (of these kinds) after a position, in order, block by block. Facts of unknown kinds are left out."""
    query = "SELECT position, payload FROM events WHERE position > {after:UInt64} AND {kinds} ORDER BY position"
    names = [kind.__name__ for kind in kinds or ()]
    text = query.replace("{kinds}", "kind IN {names:Array(String)}" if names else "1")
    with client.query_row_block_stream(text, {"after": after, "names": names}) as blocks:
        for block in blocks:
            for position, payload in block:
                try:
                    fact = decode(payload.encode())
                except Undecodable:
                    continue
                yield Recorded(Position(position), fact)
