"""A request as the protocol has it: who asks, for what statement, with which settings and parameters, and the body."""

import base64
import binascii
import hmac
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.message import Message
from io import BufferedIOBase
from urllib.parse import parse_qsl

from services.clickhouse.encoding import decode
from services.clickhouse.options import DATABASE
from services.clickhouse.trouble import (
    AUTHENTICATION_FAILED,
    BAD_ARGUMENTS,
    NOT_IMPLEMENTED,
    TOO_MANY_BYTES,
    DatabaseError,
)

_READ_BYTES = 256 * 1024
_FORM_BYTES_MAX = 64 << 20
_QUERY_ID = re.compile(r"[A-Za-z0-9_.:/@-]{1,200}")
_FORMAT_NAME = re.compile(r"[A-Za-z0-9_]{1,60}")
_SETTING_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")

_NOT_SETTINGS = frozenset(
    {
        "query",
        "database",
        "user",
        "password",
        "default_format",
        "query_id",
        "session_id",
        "session_timeout",
        "session_check",
        "role",
        "stacktrace",
        "client_protocol_version",
        "compress",
        "decompress",
        "wait_end_of_query",
        "buffer_size",
        "enable_http_compression",
        "send_progress_in_http_headers",
        "http_headers_progress_interval_ms",
        "cancel_http_readonly_queries_on_client_close",
    }
)
"""Query parameters that are for the HTTP layer. Sessions are not kept: each request has a fresh one."""


class Body:
    """The body of a request, read from the connection once and never past its end."""

    def __init__(self, headers: Message, stream: BufferedIOBase, *, bytes_max: int) -> None:
        self._stream = stream
        self._bytes_max = bytes_max
        self._chunked = "chunked" in headers.get("Transfer-Encoding", "").lower()
        self._left = 0 if self._chunked else _length(headers)
        self.is_read = not self._chunked and self._left == 0
        self.pieces = self._counted(decode(self._raw(), headers.get("Content-Encoding", "").strip().lower()))
        """The plain bytes. Raises `DatabaseError` when they are too many or damaged, ConnectionError when cut off."""

    def read(self, bytes_max: int, *, already: bytes = b"") -> bytes:
        """`already` and what follows, to the end. Raises `DatabaseError` when that is more than `bytes_max`."""
        parts, size = [already], len(already)
        for piece in self.pieces:
            parts.append(piece)
            size += len(piece)
            if size > bytes_max:
                raise DatabaseError(TOO_MANY_BYTES, f"The statement is longer than {bytes_max} bytes")
        return b"".join(parts)

    def drain(self, bytes_max: int) -> bool:
        """Read what nobody wanted so that the connection can be used again; False if that is too much."""
        for piece in self._raw():
            bytes_max -= len(piece)
            if bytes_max < 0:
                break
        return self.is_read

    def _counted(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        size = 0
        for piece in pieces:
            size += len(piece)
            if size > self._bytes_max:
                raise DatabaseError(
                    TOO_MANY_BYTES, f"The body is larger than {self._bytes_max} bytes: send smaller batches"
                )
            yield piece

    def _raw(self) -> Iterator[bytes]:
        while not self.is_read:
            if self._chunked and self._left == 0:
                self._left = self._chunk_size()
                if self._left == 0:
                    while self._line():  # trailers
                        pass
                    self.is_read = True
                    return
            piece = self._stream.read(min(self._left, _READ_BYTES))
            if not piece:
                raise ConnectionError("the client went away in the middle of its request")
            self._left -= len(piece)
            if self._left == 0:
                if self._chunked:
                    self._line()
                else:
                    self.is_read = True
            yield piece

    def _chunk_size(self) -> int:
        text = self._line().partition(b";")[0].strip()
        if not re.fullmatch(rb"[0-9A-Fa-f]{1,16}", text):
            raise ConnectionError(f"{text[:20]!r} is no chunk size")
        return int(text, 16)

    def _line(self) -> bytes:
        line = self._stream.readline(4096)
        if not line.endswith(b"\n"):
            raise ConnectionError("a line of the chunked body has no end")
        return line.rstrip(b"\r\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked. `query` is the statement, or its beginning, from outside the body."""

    query: bytes
    body: Body
    query_id: str
    database: str
    settings: Mapping[str, str]
    parameters: Mapping[str, str]
    default_format: str
    accept_encoding: str
    collect: bool
    protocol_version: int


def read_request(*, method: str, query_string: str, headers: Message, body: Body, token: str) -> Request:
    """The request of one HTTP message. Raises `DatabaseError`; the body is then unread, but for a form."""
    values = dict(parse_qsl(query_string, keep_blank_values=True, errors="surrogateescape"))
    _authenticate(headers, values, token)
    if headers.get_content_type() == "multipart/form-data":
        values |= _form(body.read(_FORM_BYTES_MAX), boundary=headers.get_boundary() or "")
    if "1" in (values.get("compress"), values.get("decompress")):
        raise DatabaseError(
            NOT_IMPLEMENTED, "compress=1 and decompress=1 are not served: use Accept-Encoding and Content-Encoding"
        )
    parameters = {name.removeprefix("param_"): value for name, value in values.items() if name.startswith("param_")}
    query_id = values.get("query_id") or str(uuid.uuid4())
    default_format = values.get("default_format") or headers.get("X-ClickHouse-Format") or "TabSeparated"
    if not (_QUERY_ID.fullmatch(query_id) and _FORMAT_NAME.fullmatch(default_format)):
        raise DatabaseError(BAD_ARGUMENTS, "query_id or default_format: use letters, digits and _ . : / @ - only")
    return Request(
        query=values.get("query", "").encode(errors="surrogateescape").rstrip(),
        body=body,
        query_id=query_id,
        database=values.get("database") or headers.get("X-ClickHouse-Database") or DATABASE,
        settings=_settings(values, method=method),
        parameters=parameters,
        default_format=default_format,
        accept_encoding=headers.get("Accept-Encoding", "") if values.get("enable_http_compression") == "1" else "",
        collect=values.get("wait_end_of_query") == "1",
        protocol_version=_number(values.get("client_protocol_version")),
    )


def _settings(values: Mapping[str, str], *, method: str) -> dict[str, str]:
    settings = {
        name: value for name, value in values.items() if name not in _NOT_SETTINGS and not name.startswith("param_")
    }
    for name in (*settings, *(name for name in values if name.startswith("param_"))):
        if not _SETTING_NAME.fullmatch(name):
            raise DatabaseError(BAD_ARGUMENTS, f"{name[:60]!r} is neither a setting nor a parameter's name")
    if method == "GET":
        settings.setdefault("readonly", "2")  # as a real server does: a link that is followed changes nothing
    return settings


def _authenticate(headers: Message, values: Mapping[str, str], token: str) -> None:
    given = headers.get("X-ClickHouse-Key") or values.get("password") or _from_authorization(headers)
    if given is None or not hmac.compare_digest(given.encode(errors="replace"), token.encode()):
        user = headers.get("X-ClickHouse-User") or values.get("user") or "default"
        raise DatabaseError(
            AUTHENTICATION_FAILED,
            f"{user[:60]}: Authentication failed: password is incorrect; it is the content of the token file",
        )


def _from_authorization(headers: Message) -> str | None:
    scheme, _, value = headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() != "basic":
        return None
    try:
        return base64.b64decode(value, validate=True).decode(errors="replace").partition(":")[2]
    except binascii.Error:
        return None


def _form(body: bytes, *, boundary: str) -> dict[str, str]:
    """The fields of a form: how clients send parameters that are too long for an address."""
    fields: dict[str, str] = {}
    for part in body.split(b"--" + boundary.encode())[1:-1]:
        head, _, content = part.partition(b"\r\n\r\n")
        if b"filename=" in head:
            raise DatabaseError(NOT_IMPLEMENTED, "The embedded database takes no external data: insert it first")
        name = re.search(rb'name="([^"]*)"', head)
        if name is None:
            raise DatabaseError(BAD_ARGUMENTS, "A field of the form has no name")
        value = content.removesuffix(b"\r\n")
        fields[name[1].decode(errors="surrogateescape")] = value.decode(errors="surrogateescape")
    return fields


def _length(headers: Message) -> int:
    return _number(headers.get("Content-Length"))


def _number(text: str | None) -> int:
    if text is None:
        return 0
    if not re.fullmatch(r"[0-9]{1,18}", text.strip()):
        raise DatabaseError(BAD_ARGUMENTS, f"{text[:40]!r} is not a number")
    return int(text)
