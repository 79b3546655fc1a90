"""A road to a server that breaks: passes bytes on until it is told to drop every connection, with what is under way.

Or it swallows everything without a word, as a network does whose cable is cut.
"""

import asyncio
from urllib.parse import urlsplit


class BreakingProxy:
    """Listens on a free port of the loopback address and passes on to `url`."""

    def __init__(self, url: str) -> None:
        target = urlsplit(url)
        self._host, self._port = target.hostname, target.port
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._whole = asyncio.Event()
        self._whole.set()
        self.broken = 0

    async def start(self, *, address: str = "127.0.0.1", port: int = 0) -> str:
        """Listen, at any free port unless it is to be that of an earlier start. Returns what clients use instead."""
        self._server = await asyncio.start_server(self._pass_both_ways, address, port)
        return f"nats://{address}:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Pass nothing on any more, and end nothing: connections stay open, also new ones, and are silent."""
        self._whole.clear()

    def mend(self) -> None:
        """Pass on again, also what was sent meanwhile."""
        self._whole.set()

    def break_all(self) -> None:
        """Reset all connections."""
        for writer in list(self._open):
            writer.transport.abort()
            self.broken += 1

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.break_all()

    async def _pass_both_ways(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        self._open |= {writer, far_writer}
        try:
            await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))
        finally:
            self._open -= {writer, far_writer}
            writer.transport.abort()
            far_writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                await self._whole.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.transport.abort()
