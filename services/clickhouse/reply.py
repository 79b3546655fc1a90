"""A response on the wire: whole when it is short, chunked when it is not, an error where the client looks for it."""

import json
import secrets
from collections.abc import Callable, Mapping

from services.clickhouse.encoding import Encoder, choose, encoder
from services.clickhouse.engine import Piece
from services.clickhouse.trouble import DatabaseError

_REASONS = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 408: "Request Timeout"}
_REASONS |= {413: "Content Too Large", 500: "Internal Server Error", 501: "Not Implemented", 503: "Service Unavailable"}

_CONTENT_TYPES = (
    ("JSONEachRow", "application/x-ndjson; charset=UTF-8"),
    ("JSON", "application/json; charset=UTF-8"),
    ("CSV", "text/csv; charset=UTF-8"),
    ("TabSeparated", "text/tab-separated-values; charset=UTF-8"),
    ("TSV", "text/tab-separated-values; charset=UTF-8"),
)
_COMPRESS_FROM_BYTES = 1024


class Reply:
    """One response. Either `send`, or `begin`, `write` ... and then `end` or `fail`."""

    def __init__(self, write: Callable[[bytes], object], *, headers: Mapping[str, str], accept_encoding: str) -> None:
        self._write = write
        self._headers = dict(headers)
        self._encoding = choose(accept_encoding)
        self._encoder: Encoder | None = None
        self._tag = secrets.token_hex(8)
        self.has_begun = False

    def send(self, body: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """The whole response in one write."""
        assert not self.has_begun, "a response is sent once"
        self.has_begun = True
        extra = dict(headers or {})
        if self._encoding is not None and len(body) >= _COMPRESS_FROM_BYTES:
            packer = encoder(self._encoding)
            body = packer.compress(body) + packer.flush()
            extra["Content-Encoding"] = self._encoding
        extra["Content-Length"] = str(len(body))
        self._write(self._head(status, extra) + body)

    def send_error(self, error: DatabaseError) -> None:
        """An error before anything else was sent."""
        headers = {
            "Content-Type": "text/plain; charset=UTF-8",
            "X-ClickHouse-Exception-Code": str(error.code),
        }
        self.send(f"{error}\n".encode(errors="surrogateescape"), status=error.status, headers=headers)

    def begin(self, headers: Mapping[str, str]) -> None:
        """The head of a response whose length is not known."""
        self.has_begun = True
        extra = {**headers, "Transfer-Encoding": "chunked", "X-ClickHouse-Exception-Tag": self._tag}
        if self._encoding is not None:
            self._encoder = encoder(self._encoding)
            extra["Content-Encoding"] = self._encoding
        self._write(self._head(200, extra))

    def write(self, data: bytes) -> None:
        """More of the body."""
        self._chunk(data if self._encoder is None else self._encoder.compress(data))

    def end(self) -> None:
        """The end of the body."""
        if self._encoder is not None:
            self._chunk(self._encoder.flush())
        self._write(b"0\r\n\r\n")

    def fail(self, error: DatabaseError) -> None:
        """The end of a body that is not complete: the error, marked with the tag that the head announced."""
        message = str(error).encode(errors="surrogateescape")
        tag = self._tag.encode()
        marker = b"\r\n__exception__\r\n"
        self.write(b"%b%b\r\n%b\n%d %b%b" % (marker, tag, message, len(message) + 1, tag, marker))
        self.end()

    def _chunk(self, data: bytes) -> None:
        if data:
            self._write(b"%x\r\n%b\r\n" % (len(data), data))

    def _head(self, status: int, extra: Mapping[str, str]) -> bytes:
        lines = [f"HTTP/1.1 {status} {_REASONS[status]}"]
        lines += [f"{name}: {value}" for name, value in {**self._headers, **extra}.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", errors="replace")


def content_type(output_format: str) -> str:
    """The media type of a ClickHouse format."""
    known = (kind for prefix, kind in _CONTENT_TYPES if output_format.startswith(prefix))
    return next(known, "application/octet-stream")


def summary(total: Piece) -> str:
    """The X-ClickHouse-Summary of a statement."""
    return json.dumps(
        {
            "read_rows": str(total.read_rows),
            "read_bytes": str(total.read_bytes),
            "written_rows": str(total.written_rows),
            "written_bytes": str(total.written_bytes),
            "total_rows_to_read": "0",
            "result_rows": str(total.result_rows),
            "result_bytes": str(len(total.data)),
            "elapsed_ns": str(total.elapsed_ns),
        },
        separators=(",", ":"),
    )
