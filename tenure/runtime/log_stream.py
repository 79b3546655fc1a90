"""How the gateway reads what a replica wrote: one request, one piece, over NATS beside the log. Data, never decisions.

gateway --request(`subject`, `encode_request`)--> the agent that speaks for the host --reply(`encode_piece`)--> gateway

An offset counts bytes since the stream began and keeps its meaning when old bytes are dropped. The reader asks for the
piece at `next_offset` again and again until `eof`; an empty piece without `eof` means nothing more for now.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError

from tenure.domain.ids import HostId, RunId
from tenure.log.access import Access, open_client
from tenure.log.subjects import host_token

PIECE_BYTES_MAX = 512 * 1024
"""The longest body of a reply."""
OFFSET_MAX = 1 << 62
"""No file is so long; larger numbers do not fit into the calls that look there."""
STREAMS = ("stdout", "stderr")


class LogRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which bytes are wanted: at most `limit` from `offset` on.

    With `tail_bytes` the piece begins that many bytes before the present end, `offset` is not looked at. Bytes that
    are no longer kept are skipped: the piece then begins at the oldest one.
    """

    run: RunId
    replica: int
    stream: str
    offset: int = 0
    limit: int = PIECE_BYTES_MAX
    tail_bytes: int = 0


class LogPiece(msgspec.Struct, frozen=True, kw_only=True):
    """`data` is [offset, next_offset) of the stream; bytes before `oldest_offset` are gone.

    `eof`: the replica is gone and nothing comes after `next_offset`.
    """

    data: bytes
    offset: int
    next_offset: int
    oldest_offset: int
    eof: bool


class LogsAway(Exception):
    """The output cannot be read now or any more: one line that says why."""


class _Reply(Protocol):
    @property
    def data(self) -> bytes: ...
    @property
    def headers(self) -> Mapping[str, str] | None: ...


class Requester(Protocol):
    """The part of a NATS connection that is needed here."""

    async def request(self, subject: str, payload: bytes = ..., timeout: float = ...) -> _Reply:
        """Send, and wait for the one reply."""


_request_decoder = msgspec.json.Decoder(LogRequest)


def subject(*, cluster: str, host: HostId) -> str:
    """Where the agent that speaks for `host` listens."""
    return f"tenure-data.{cluster}.logs.{host_token(host)}"


def encode_request(request: LogRequest) -> bytes:
    """The request as JSON."""
    return msgspec.json.encode(request)


def decode_request(data: bytes) -> LogRequest:
    """The inverse of `encode_request`. Raises ValueError on damage; `limit` is cut to what a reply may hold."""
    try:
        request = _request_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not a log request: {error}") from error
    numbers = (request.offset, request.limit, request.tail_bytes, request.replica)
    if request.stream not in STREAMS or min(numbers) < 0 or max(numbers) > OFFSET_MAX:
        raise ValueError("not a log request: a number is negative or too large, or the stream unknown")
    return msgspec.structs.replace(request, limit=min(request.limit, PIECE_BYTES_MAX))


def encode_piece(piece: LogPiece) -> tuple[bytes, dict[str, str]]:
    """Body and headers of a reply."""
    assert len(piece.data) <= PIECE_BYTES_MAX, "a reply must fit into one message"
    assert piece.next_offset == piece.offset + len(piece.data), "a piece has no holes"
    headers = {
        "offset": str(piece.offset),
        "oldest": str(piece.oldest_offset),
        "next": str(piece.next_offset),
        "eof": "1" if piece.eof else "0",
    }
    return piece.data, headers


def encode_trouble(line: str) -> tuple[bytes, dict[str, str]]:
    """Body and headers of the reply when there is nothing to read, with one line that says why."""
    return b"", {"error": " ".join(line.split())[:400]}


def decode_piece(data: bytes, headers: Mapping[str, str] | None) -> LogPiece:
    """The inverse of `encode_piece`. Raises `LogsAway` with the agent's line, or for a reply that makes no sense."""
    fields = headers or {}
    if "error" in fields:
        raise LogsAway(fields["error"])
    try:
        return LogPiece(
            data=data,
            offset=int(fields["offset"]),
            next_offset=int(fields["next"]),
            oldest_offset=int(fields["oldest"]),
            eof=fields["eof"] == "1",
        )
    except (KeyError, ValueError) as error:
        raise LogsAway(f"the agent's answer makes no sense: {error!r}") from error


async def connect_agents(access: Access) -> Requester:
    """A connection to ask agents on, that comes back by itself after an outage. Raises `LogsAway`."""
    try:
        return await open_client(access, max_reconnect_attempts=-1, connect_timeout=2)
    except (NatsError, OSError) as error:
        raise LogsAway(f"the agents cannot be reached: {error}; try again in a moment") from error


async def read_piece(
    connection: Requester, *, cluster: str, host: HostId, request: LogRequest, timeout_s: float = 2.0
) -> LogPiece:
    """Ask the agent of `host` for one piece. Raises `LogsAway` when nobody answers or there is nothing to read."""
    try:
        reply = await connection.request(subject(cluster=cluster, host=host), encode_request(request), timeout_s)
    except NoRespondersError as error:
        raise LogsAway(f"no agent answers for host {host}; its output can be read when the agent is back") from error
    except NatsTimeoutError as error:
        raise LogsAway(f"the agent of host {host} did not answer in {timeout_s:g} s; try again") from error
    return decode_piece(reply.data, reply.headers)
