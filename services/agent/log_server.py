"""Lets the gateway read what replicas wrote: answers `log_stream` requests for the hosts of this agent.

The log's server lets an agent answer wherever a question says. So only what wants its answer on a name of the gateway's
is answered: an agent writes for nobody who may not write there himself.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from nats.aio.client import Client
from nats.aio.msg import Msg

from services.agent.process.logs import LogChunk
from tenure.domain.ids import HostId, RunId
from tenure.runtime.log_stream import LogPiece, LogRequest, decode_request, encode_piece, encode_trouble, subject

logger = logging.getLogger(__name__)


class LogReader(Protocol):
    """The part of `Replicas` that is needed here."""

    def read_log(self, *, run: RunId, replica: int, stream: str, offset: int, limit: int) -> LogChunk:
        """See `Replicas.read_log`."""


class LogServer:
    """Answers for a set of hosts. `is_over` says whether a replica is gone, so that nothing more will come.

    `asker` is the first word of the names on which whoever may ask hears answers: `tenure.log.access.inbox_of`.
    """

    def __init__(
        self, connection: Client, reader: LogReader, *, is_over: Callable[[RunId, int], bool], asker: str
    ) -> None:
        self._connection, self._reader, self._is_over, self._asker = connection, reader, is_over, asker

    async def listen(self, hosts: Sequence[HostId], *, cluster: str) -> None:
        """Listen for each host from now on."""
        for host in hosts:
            await self._connection.subscribe(subject(cluster=cluster, host=host), cb=self._answer)

    async def _answer(self, message: Msg) -> None:
        if not message.reply.startswith(f"{self._asker}."):
            logger.warning(
                "somebody asked for output to be sent to %.80r, which is no name of a gateway", message.reply
            )
            return
        try:
            request = decode_request(message.data)
            piece = await asyncio.to_thread(self._read, request)
            data, headers = encode_piece(piece)
        except FileNotFoundError:
            data, headers = encode_trouble("its output is not on this host (any more)")
        except (OSError, ValueError) as error:
            data, headers = encode_trouble(str(error))
        await self._connection.publish(message.reply, data, headers=headers)

    def _read(self, request: LogRequest) -> LogPiece:
        over = self._is_over(request.run, request.replica)  # asked first: what it wrote before is all there then
        chunk = self._chunk(request, request.offset, request.limit)
        if request.offset == 0 and request.tail_bytes:
            start = max(chunk.oldest_offset, chunk.end_offset - request.tail_bytes)
            chunk = self._chunk(request, start, request.limit)
        return LogPiece(
            data=chunk.data,
            offset=chunk.start_offset,
            next_offset=chunk.next_offset,
            oldest_offset=chunk.oldest_offset,
            eof=over and chunk.next_offset >= chunk.end_offset,
        )

    def _chunk(self, request: LogRequest, offset: int, limit: int) -> LogChunk:
        return self._reader.read_log(
            run=request.run, replica=request.replica, stream=request.stream, offset=offset, limit=limit
        )
