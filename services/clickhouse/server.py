"""The HTTP side: one thread a connection, one engine handle a request, and the path from request to reply."""

import contextlib
import itertools
import logging
import socket
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from services.clickhouse.engine import Engine, Handle, Piece
from services.clickhouse.native import HELLO, hello_block
from services.clickhouse.options import HOST
from services.clickhouse.reply import Reply, content_type, summary
from services.clickhouse.request import Body, Request, read_request
from services.clickhouse.statement import HEAD_BYTES_MAX, Statement, kill_by_client_id, read_statement
from services.clickhouse.trouble import TOO_MANY_SIMULTANEOUS_QUERIES, DatabaseError
from services.clickhouse.watch import Watch

logger = logging.getLogger(__name__)

STATEMENT_BYTES_MAX = 64 << 20
"""The longest text of a statement, VALUES included. Rows in any other format are not held in memory and not counted."""
_IDLE_S = 300.0
_TURNED_AWAY_S = 0.1
_TURNED_AWAY_BYTES = 1 << 20
_POLL_S = 0.1
_HOLD_BYTES = 1 << 20
_COLLECT_BYTES = 64 << 20
_DRAIN_BYTES = 16 << 20
_BLOCKWISE = frozenset(
    {"Native", "TabSeparated", "TabSeparatedRaw", "TSV", "TSVRaw", "CSV", "RowBinary", "JSONEachRow", "JSONLines"}
)
"""Formats whose blocks, one after the other, are the format again. Others are made in one piece."""


class Gate:
    """Counts the requests under way, so that a stop can wait for them."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._inside = 0
        self._closed = False

    def enter(self) -> bool:
        """Whether one more may run."""
        with self._condition:
            if not self._closed:
                self._inside += 1
            return not self._closed

    def leave(self) -> None:
        """One has ended."""
        with self._condition:
            self._inside -= 1
            self._condition.notify_all()

    def close(self, timeout_s: float) -> bool:
        """Let nobody in any more; True if everybody has left within the time."""
        with self._condition:
            self._closed = True
            return self._condition.wait_for(lambda: self._inside == 0, timeout_s)


class Server(ThreadingHTTPServer):
    """Listens from the moment it is made, so that a taken port is known early; answers once it is started."""

    daemon_threads = True
    request_queue_size = 128
    engine: Engine
    watch: Watch

    def __init__(self, *, port: int, token: str, connections_max: int, body_bytes_max: int) -> None:
        """Raises OSError when the port is taken."""
        self.token = token
        self.body_bytes_max = body_bytes_max
        self.gate = Gate()
        self._connections = threading.BoundedSemaphore(connections_max)
        super().__init__((HOST, port), Handler)

    def start(self, engine: Engine) -> None:
        """Answer with `engine`, in threads of its own."""
        self.engine = engine
        self.watch = Watch(engine.kill)
        threading.Thread(target=self.serve_forever, args=(_POLL_S,), name="accept", daemon=True).start()

    def stop_accepting(self) -> None:
        """Take no new connections; requests under way go on (see `gate`)."""
        self.shutdown()
        self.server_close()
        self.watch.close()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.server_address[1])

    def server_bind(self) -> None:
        """Bind without asking the resolver for this machine's name, which can take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.port

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start the connection's thread, or turn the connection away when there are too many."""
        if self._connections.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        error = DatabaseError(TOO_MANY_SIMULTANEOUS_QUERIES, "Too many connections: try again, or raise --connections")
        with contextlib.suppress(OSError):  # it may go away by itself
            request.settimeout(_TURNED_AWAY_S)
            Reply(request.sendall, headers={"Connection": "close"}, accept_encoding="").send_error(error)
            request.shutdown(socket.SHUT_WR)
            # Closed with something unread, the connection would be reset and the answer lost.
            while request.recv(_TURNED_AWAY_BYTES):
                pass
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, *_connection: Any) -> None:
        """A connection's thread ended by an error that is not the client's."""
        logger.exception("a connection failed")


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = _IDLE_S

    def do_GET(self) -> None:
        """Answer."""
        path, _, query_string = self.path.partition("?")
        if path == "/ping" or (path == "/" and not query_string and self.command == "GET"):
            self._reply().send(b"Ok.\n", headers={"Content-Type": "text/html; charset=UTF-8"})
        elif path != "/":
            self._reply().send(b"There is nothing here: send statements to /\n", status=404)
            self.close_connection = True
        elif self.server.gate.enter():
            try:
                self._answer(query_string)
            finally:
                self.server.gate.leave()
        else:
            self.close_connection = True
            stopping = DatabaseError(TOO_MANY_SIMULTANEOUS_QUERIES, "The database is stopping: try again")
            self._reply().send_error(stopping)

    def do_POST(self) -> None:
        """Answer."""
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""

    def handle(self) -> None:
        """Serve requests until the client leaves."""
        with contextlib.suppress(ConnectionError, TimeoutError):  # it may leave in the middle of a response
            super().handle()

    def _reply(self, *, query_id: str = "", accept_encoding: str = "") -> Reply:
        engine = self.server.engine
        headers = {"X-ClickHouse-Server-Display-Name": engine.display_name, "X-ClickHouse-Timezone": engine.timezone}
        if query_id:
            headers["X-ClickHouse-Query-Id"] = query_id
        if self.close_connection:
            headers["Connection"] = "close"
        return Reply(self.wfile.write, headers=headers, accept_encoding=accept_encoding)

    def _answer(self, query_string: str) -> None:
        body: Body | None = None
        reply = self._reply()
        try:
            body = Body(self.headers, self.rfile, bytes_max=self.server.body_bytes_max)
            request = read_request(
                method=self.command,
                query_string=query_string,
                headers=self.headers,
                body=body,
                token=self.server.token,
            )
            reply = self._reply(query_id=request.query_id, accept_encoding=request.accept_encoding)
            self._run(request, reply)
        except DatabaseError as error:
            if reply.has_begun:
                reply.fail(error)
                self.close_connection = True
                return
            # The client may still be sending. It reads the answer only when it is done, or when it is cut off.
            if body is None or not body.drain(_DRAIN_BYTES):
                self.close_connection = True
                reply = self._reply()
            reply.send_error(error)

    def _run(self, request: Request, reply: Reply) -> None:
        """From the statement to its result."""
        text, statement = _read(request)
        if text.strip() == HELLO:
            _send_hello(self.server.engine, request, reply)
            return
        with self.server.engine.handle(
            query_id=request.query_id,
            database=request.database,
            settings=request.settings,
            parameters=None if statement.rows_at is None else request.parameters,
        ) as handle:
            if statement.rows_at is not None:
                rows = itertools.chain([text[statement.rows_at :]], request.body.pieces)
                written = handle.insert(statement.text, input_format=statement.format or "", pieces=filter(None, rows))
                reply.send(b"", headers={"X-ClickHouse-Summary": summary(written)})
            elif statement.can_stream:
                with self.server.watch.over(request.query_id, self.connection):
                    _send_select(handle, statement, request, reply)
            else:
                _send_whole(handle, statement, request, reply)


def _read(request: Request) -> tuple[bytes, Statement]:
    """The statement, and the text it was read from: all of it, or as much of an insert's rows as came with its head."""
    parts = [request.query, b"\n"] if request.query else []
    size = sum(map(len, parts))
    complete = True
    for piece in request.body.pieces:
        parts.append(piece)
        size += len(piece)
        if size >= HEAD_BYTES_MAX:
            complete = request.body.is_read
            break
    text = b"".join(parts)
    statement = read_statement(text, complete=complete)
    if statement is None:
        text = request.body.read(STATEMENT_BYTES_MAX, already=text)
        statement = read_statement(text)
        assert statement is not None, "a complete text is a statement or an error"
    return text, statement


def _send_whole(handle: Handle, statement: Statement, request: Request, reply: Reply) -> None:
    """The result of any statement, if it has one, made before it is sent."""
    output_format = statement.format or request.default_format
    command = kill_by_client_id(statement.text) if statement.verb == "KILL" else statement.text
    result = handle.run(command, output_format=output_format, parameters=request.parameters)
    headers = _result_headers(output_format) if statement.returns_rows else {}
    reply.send(result.data, headers={**headers, "X-ClickHouse-Summary": summary(result)})


def _send_select(handle: Handle, statement: Statement, request: Request, reply: Reply) -> None:
    """The result of a SELECT: in one piece with its totals if it is short, else block by block as it comes."""
    output_format = statement.format or request.default_format
    if output_format not in _BLOCKWISE:
        _send_whole(handle, statement, request, reply)
        return
    blocks = handle.stream(statement.text, output_format=output_format, parameters=request.parameters)
    with contextlib.closing(blocks):  # before the handle is: an unfinished query is cancelled through it
        headers = _result_headers(output_format)
        total, ended = _gather(blocks, bytes_max=_COLLECT_BYTES if request.collect else _HOLD_BYTES)
        if ended:
            reply.send(total.data, headers={**headers, "X-ClickHouse-Summary": summary(total)})
            return
        reply.begin(headers)
        reply.write(total.data)
        for block in blocks:
            reply.write(block.data)
        reply.end()


def _gather(blocks: Iterator[Piece], *, bytes_max: int) -> tuple[Piece, bool]:
    """The first blocks as one piece, and whether they are all."""
    taken: list[Piece] = []
    size = 0
    ended = False
    while size <= bytes_max and not ended:
        block = next(blocks, None)
        if block is None:
            ended = True
        else:
            taken.append(block)
            size += len(block.data)
    total = Piece(
        data=b"".join(block.data for block in taken),
        read_rows=sum(block.read_rows for block in taken),
        read_bytes=sum(block.read_bytes for block in taken),
        result_rows=sum(block.result_rows for block in taken),
        elapsed_ns=sum(block.elapsed_ns for block in taken),
    )
    return total, ended


def _send_hello(engine: Engine, request: Request, reply: Reply) -> None:
    block = hello_block(
        display_name=engine.display_name,
        version=engine.version,
        timezone=engine.timezone,
        revision=request.protocol_version,
    )
    reply.send(block, headers=_result_headers("Native"))


def _result_headers(output_format: str) -> dict[str, str]:
    return {"Content-Type": content_type(output_format), "X-ClickHouse-Format": output_format}
