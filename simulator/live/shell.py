"""The forecast as a process: it reads the log as every role does, says nothing, and answers the gateway's questions."""

import asyncio
from collections.abc import Sequence

from simulator.live.answers import Answers
from simulator.live.state import Folding, role
from tenure.log.access import open_client
from tenure.log.permissions import GATEWAY
from tenure.runtime.clock import WallClock
from tenure.runtime.service import (
    Service,
    announce_ready,
    argument_parser,
    connect_log,
    make_loop,
    run_service,
    stop_on_signals,
)

NAME = "forecast"
SOURCES = ("services/placer", "services/ranker", "simulator/live")
"""Folders with the code whose state a snapshot of it holds."""


async def serve(service: Service) -> None:
    """Run until told to stop."""
    stop, clock, access = stop_on_signals(), WallClock(), service.connection.log
    log = await connect_log(service)
    try:
        loop = await make_loop(service, role(service.policy), log, sources=SOURCES)
        asker = access.inbox_prefix_of(GATEWAY)
        answers = Answers(loop, Folding(service.policy), clock, policy=service.policy, asker=asker)
        connection = await open_client(access, max_reconnect_attempts=-1, connect_timeout=2)
        try:
            await answers.listen(connection, cluster=service.connection.cluster)
            ready = asyncio.create_task(announce_ready(service, loop.caught_up, {}))
            await loop.run(stop)
            ready.cancel()
        finally:
            await connection.close()
    finally:
        await log.close()


def main(argv: Sequence[str]) -> int:
    """Exit status 0 after SIGTERM or SIGINT, 1 with one line on stderr when it cannot run."""
    parser = argument_parser(NAME, "Say when queued jobs will start: simulates forward when somebody asks.")
    return run_service(parser, NAME, argv, serve)
