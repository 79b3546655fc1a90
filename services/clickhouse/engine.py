"""The engine: the one place that touches chdb. It opens the data path, and lends a fresh handle to each request.

A handle is the engine's session: settings, parameters and database of one request live and die with it.
"""

import contextlib
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chdb import _chdb as _untyped

from services.clickhouse.engine_config import PROFILE
from services.clickhouse.options import DATABASE
from services.clickhouse.trouble import DatabaseError, from_engine
from tenure.domain.refusal import Refusal

_chdb: Any = _untyped


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Some of a statement's output, whole in its format, and what producing it took."""

    data: bytes = b""
    read_rows: int = 0
    read_bytes: int = 0
    result_rows: int = 0
    written_rows: int = 0
    written_bytes: int = 0
    elapsed_ns: int = 0


class Handle:
    """One engine session. Not shared between threads; a failed call leaves it usable."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def run(self, text: bytes, *, output_format: str, parameters: Mapping[str, str]) -> Piece:
        """Run any one statement to its end. A FORMAT in the text wins over `output_format`. Raises `DatabaseError`."""
        with _engine_errors():
            return _piece(self._connection.query(text, output_format, params=dict(parameters)))

    def stream(self, text: bytes, *, output_format: str, parameters: Mapping[str, str]) -> Generator[Piece]:
        """Run a SELECT block by block; closing the iterator early cancels it. Raises `DatabaseError`, also midway."""
        with _engine_errors():
            result = self._connection.send_query(text, output_format, params=dict(parameters))
        ended = False
        try:
            while not ended:
                try:
                    with _engine_errors():
                        piece = _piece(self._connection.streaming_fetch_result(result))
                except DatabaseError:
                    ended = True
                    raise
                ended = not piece.data
                if not ended:
                    yield piece
        finally:
            if not ended:
                self._connection.streaming_cancel_query(result)

    def insert(self, head: bytes, *, input_format: str, pieces: Iterator[bytes]) -> Piece:
        """Insert `pieces`, the rows in `input_format`, through `INSERT INTO ...` without its FORMAT.

        Nothing is written before the last piece was read (up to the engine's block size), so an error of the iterator
        leaves the table as it was. Raises `DatabaseError`.
        """
        with _engine_errors():
            inserting = self._connection.send_insert(head.decode(errors="surrogateescape"), input_format)
        done = False
        try:
            for piece in pieces:
                with _engine_errors():
                    self._connection.insert_append(inserting, piece)
            with _engine_errors():
                done = True
                return _piece(self._connection.insert_done(inserting))
        finally:
            if not done:
                with contextlib.suppress(RuntimeError):  # the append that failed has ended the insert already
                    self._connection.insert_cancel(inserting)


class Engine:
    """An open data path. It stays open until `close`, whatever happens to single handles. Any thread may use it."""

    def __init__(self, *, root: Any, connection_string: str) -> None:
        self._root = root
        self._connection_string = connection_string
        self.version, self.timezone, self.display_name = (
            root.query("SELECT version(), timezone(), displayName()", "TabSeparated").bytes().decode().split()
        )

    @classmethod
    def open(cls, folder: Path, *, config: Path) -> "Engine":
        """Open the data path `folder`, making it and the database if need be. Raises `Refusal`."""
        connection_string = f"{folder}?config-file={config}"
        try:
            root = _chdb.connect(connection_string)
            root.query(f"CREATE DATABASE IF NOT EXISTS {DATABASE}", "Null")
        except RuntimeError as error:
            raise Refusal(
                field=str(folder), problem=f"the engine cannot open it: {error}", fix="free disk space, or see --data"
            ) from error
        _chdb.reset_signal_handlers()
        return cls(root=root, connection_string=f"{connection_string}&database={DATABASE}")

    @contextlib.contextmanager
    def handle(
        self,
        *,
        query_id: str,
        database: str = DATABASE,
        settings: Mapping[str, str] | None = None,
        parameters: Mapping[str, str] | None = None,
    ) -> Iterator[Handle]:
        """A fresh handle on `database` with `settings` over the profile. Raises `DatabaseError` for a wrong one.

        The engine numbers its queries itself: `query_id`, of URL characters only, becomes their log_comment, where
        `kill` finds it. `parameters` are needed here only for inserts, which cannot be given them otherwise.
        """
        with _engine_errors():
            connection = _chdb.connect(f"{self._connection_string}&log_comment={query_id}")
        try:
            with _engine_errors():
                if database != DATABASE:
                    connection.query(f"USE {_identifier(database)}", "Null")
                changes = {name: value for name, value in (settings or {}).items() if PROFILE.get(name) != value}
                changes |= {f"param_{name}": value for name, value in (parameters or {}).items()}
                if changes:
                    pairs = ", ".join(f"{name} = {_literal(value)}" for name, value in changes.items())
                    connection.query(f"SET {pairs}".encode(errors="surrogateescape"), "Null")
            yield Handle(connection)
        finally:
            connection.close()

    def kill(self, query_id: str) -> None:
        """Ask the statements of a request to end; they may have ended already."""
        self._kill(f"Settings['log_comment'] = {_literal(query_id)}")

    def kill_all(self) -> None:
        """Ask every running statement to end."""
        self._kill("1")

    def _kill(self, condition: str) -> None:
        with self.handle(query_id="kill") as handle:
            handle.run(f"KILL QUERY WHERE {condition} ASYNC".encode(), output_format="Null", parameters={})

    def close(self) -> None:
        """Write out what is in memory and give the data path up. No handle may be in use."""
        self._root.close()


def _piece(result: Any) -> Piece:
    return Piece(
        data=result.bytes(),
        read_rows=result.storage_rows_read(),
        read_bytes=result.storage_bytes_read(),
        result_rows=result.rows_read(),
        written_rows=result.rows_written(),
        written_bytes=result.bytes_written(),
        elapsed_ns=int(result.elapsed() * 1e9),
    )


@contextlib.contextmanager
def _engine_errors() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise from_engine(str(error)) from error


def _identifier(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def _literal(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
