"""The process: take the port, answer pages, say where, and stop when told to. Asks the gateway and ClickHouse."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator

import msgspec
import uvicorn
import uvloop

from services.console.application import Application
from services.console.asked import Console
from services.console.callers import Callers
from services.console.gateway import Gateway
from services.console.guard import Guard
from services.console.history import History
from services.console.options import Options, parse_options
from services.console.sharing import Shared
from tenure.domain.loopback import is_loopback
from tenure.domain.refusal import Refusal
from tenure.runtime.data_dir import ConsoleAddress, read_console_address, write_json
from tenure.runtime.log_lines import set_up_logging
from tenure.runtime.telemetry import tell_of
from tenure.runtime.telemetry_options import Address

logger = logging.getLogger(__name__)

BACKLOG = 512
STOP_S = 1


def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT. 0: stopped in order; 1: could not serve, with one line that says what to do."""
    try:
        options = parse_options(argv)
        set_up_logging("console", options.telemetry)
        tell_of("console", log=options.cluster, listen=options.telemetry.metrics_listen)
        if options.ready_file is not None:
            options.ready_file.unlink(missing_ok=True)  # of a process before this one
        listening = bind(options)
        uvloop.run(_serve(options, listening))
    except (Refusal, OSError) as trouble:
        print(f"tenure serve console: {trouble}", file=sys.stderr)
        return 1
    return 0


def bind(options: Options) -> socket.socket:
    """A socket at the wanted address; where that is taken, at the one before or a free one if that is allowed.

    Raises `Refusal`.
    """
    wanted = options.listen
    tried = [*_address_before(options), wanted, *([Address(host=wanted.host, port=0)] if options.fall_back else [])]
    for address in tried:
        try:
            return _bound(address)
        except OSError as error:
            trouble = error
    raise Refusal(
        field=f"--console-listen {wanted.shown}",
        problem=trouble.strerror or str(trouble),
        fix="stop what listens there, or choose another address (port 0: any free one)",
    ) from trouble


def _bound(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address.host, address.port))
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    listening.setblocking(False)
    return listening


def _address_before(options: Options) -> list[Address]:
    """Where it listened last time, if it had to fall back then: bookmarks go on working."""
    kept = None if options.address_file is None else read_console_address(options.address_file)
    if not options.fall_back or kept is None or kept.wanted != options.listen.shown:
        return []
    return [Address(host=options.listen.host, port=kept.port)]


class _Server(uvicorn.Server):
    """Ends in order, with status 0, when it is told to: uvicorn itself would send itself the signal once more."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """See `uvicorn.Server`; the loop has handlers of its own."""
        yield

    def end(self) -> None:
        """Take no more requests; those under way have a moment."""
        self.force_exit = self.should_exit
        self.should_exit = True


async def _serve(options: Options, listening: socket.socket) -> None:
    https = options.certificate is not None
    gateway, shared = Gateway(options), Shared(time.monotonic)
    local_key = options.local_key if options.os_users else None
    console = Console(
        gateway=gateway,
        history=History(options.clickhouse_url, options.clickhouse_token_file, shared),
        callers=Callers(gateway, shared, local_key=local_key, everybody=options.gateway_is_here),
        shared=shared,
    )
    pages = Application(console, https=https).routes()
    config = uvicorn.Config(
        Guard(pages, loopback_only=is_loopback(options.listen.host), https=https),
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        lifespan="off",
        timeout_graceful_shutdown=STOP_S,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
        h11_max_incomplete_event_size=65_536,
    )
    server = _Server(config)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, server.end)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        if server.started:
            _announce(options, listening, https=https)
        await serving
    finally:
        await gateway.close()


def _announce(options: Options, listening: socket.socket, *, https: bool) -> None:
    """Write where pages are answered."""
    host, port = listening.getsockname()[:2]
    address = Address(host=host, port=port)
    url = f"{'https' if https else 'http'}://{address.shown}"
    logger.info("ready at %s", url)
    if options.address_file is not None:
        found = ConsoleAddress(url=url, host=host, port=port, wanted=options.listen.shown)
        write_json(options.address_file, msgspec.to_builtins(found))
    if options.ready_file is not None:
        write_json(options.ready_file, {"pid": os.getpid(), "url": url})
