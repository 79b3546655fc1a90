"""The gateway as a process: the fold and the server side by side, until a signal."""

import asyncio
import gc
import logging
from collections.abc import Sequence

from services.gateway.clickhouse_history import ClickHouseHistory
from services.gateway.decider import decide
from services.gateway.evolve import READS, evolve
from services.gateway.gateway import Gateway
from services.gateway.metrics import Measuring
from services.gateway.output import Output
from services.gateway.progress import Progress
from services.gateway.server import Server
from services.gateway.state import State, dump, initial, load
from tenure.runtime.clock import WallClock
from tenure.runtime.identity_options import IDENTITY, build_identity_options
from tenure.runtime.local_tokens import key_file
from tenure.runtime.log_stream import Requester, connect_agents
from tenure.runtime.role import Role
from tenure.runtime.service import (
    Service,
    announce_ready,
    argument_parser,
    connect_log,
    make_loop,
    run_service,
    stop_on_signals,
)

logger = logging.getLogger(__name__)

ROLE: Role[State] = Role(
    name="gateway", reads=READS, guard=None, initial=initial, evolve=evolve, decide=decide, dump=dump, load=load
)


async def serve(service: Service) -> None:
    """Run until a signal. Raises what broke the fold: the process is to end then and to be started again."""
    gc.disable()  # what is read at the start stays, so looking for garbage in it would only cost time
    stop = stop_on_signals()
    arguments = service.arguments
    identity = build_identity_options(service.settings.section(IDENTITY))
    server = Server(arguments.listen, identity, local_key=key_file(service.connection.data))
    log = await connect_log(service)
    try:
        progress, connection = Progress(), service.connection
        loop = await make_loop(service, ROLE, log, perform=progress.perform)
        gateway = Gateway(loop, log, WallClock(), progress, cluster=connection.cluster, policy=service.policy)
        sightings = asyncio.create_task(gateway.sightings.run())

        async def connect() -> Requester:
            return await connect_agents(connection.log)

        history = ClickHouseHistory(connection.clickhouse_url, connection.clickhouse_token_file)
        await server.start(gateway, history, Output(progress, cluster=connection.cluster, connect=connect))
        announcing = asyncio.create_task(_announce(service, loop.caught_up, server.address))
        checking = asyncio.create_task(server.watch_health(gateway))
        measuring = asyncio.create_task(Measuring(gateway, history, log.dead).run())
        measuring.add_done_callback(_say_failed)
        try:
            await loop.run(stop)
        finally:
            progress.stop()
            announcing.cancel()
            sightings.cancel()
            measuring.cancel()
            await server.stop()
            await asyncio.gather(checking, measuring, return_exceptions=True)
    finally:
        await log.close()


def _say_failed(measuring: "asyncio.Task[None]") -> None:
    """The gateway goes on without its metrics."""
    if not measuring.cancelled() and (error := measuring.exception()) is not None:
        logger.error("no metrics of the cluster any more", exc_info=error)


async def _announce(service: Service, caught_up: asyncio.Event, address: str) -> None:
    await caught_up.wait()
    gc.freeze()
    gc.enable()
    await announce_ready(service, caught_up, {"address": address})


def main(argv: Sequence[str]) -> int:
    """`tenure serve gateway`."""
    parser = argument_parser("gateway", "Serve the gRPC services Jobs, Budgets and Hosts.")
    return run_service(parser, "gateway", argv, serve)
