"""The ranker as a process: `tenure serve ranker`. It has no hands: facts in, facts out, and a look at ClickHouse."""

import asyncio
import sys
from collections.abc import Sequence

from services.ranker.decider import role
from services.ranker.drift import DriftCheck
from services.ranker.window import Database
from tenure.runtime.clock import WallClock
from tenure.runtime.service import (
    Service,
    argument_parser,
    connect_log,
    make_loop,
    run_service,
    stop_on_signals,
    taking_part,
)

REST_FACTOR = 1.0
"""With a long queue the placer gets as much of the processor as the order it is waiting for."""


async def serve(service: Service) -> None:
    """Run until told to stop."""
    stop = stop_on_signals()
    log = await connect_log(service)
    connection = service.connection
    try:
        loop = await make_loop(service, role(service.policy), log, rest_factor=REST_FACTOR)
        checking = None
        if connection.clickhouse_url is not None:
            database = Database(connection.clickhouse_url, connection.clickhouse_token_file)
            file = connection.data / "ranker" / "drift.json"
            check = DriftCheck(loop, log, database, clock=WallClock(), file=file)
            checking = asyncio.create_task(check.run())
        async with taking_part(service, log, loop.caught_up) as loop.leadership:
            loop.leadership.on_change.append(loop.poke)
            await loop.run(stop)
        if checking is not None:
            checking.cancel()
    finally:
        await log.close()


def main(argv: Sequence[str]) -> int:
    """Exit status 0 after SIGTERM or SIGINT, 1 with one line on stderr when it cannot run."""
    parser = argument_parser("ranker", "Publish the fair-share order of the queue.")
    return run_service(parser, "ranker", argv, serve)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
