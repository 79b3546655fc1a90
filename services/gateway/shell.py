"""The gateway as a process: the fold and the server side by side, until a signal."""

import asyncio
import gc
import logging
import signal
from collections.abc import Sequence

from services.gateway.clickhouse_history import ClickHouseHistory
from services.gateway.decider import decide
from services.gateway.evolve import READS, evolve
from services.gateway.forecasts import Forecasts
from services.gateway.gateway import Gateway
from services.gateway.metrics import Measuring
from services.gateway.output import Output
from services.gateway.policies import reload_policy, write_first
from services.gateway.progress import Progress
from services.gateway.refusals import Away
from services.gateway.server import Server
from services.gateway.state import State, dump, initial, load
from tenure.domain.refusal import Refusal
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

AGAIN_S = 1.0
"""After so long the first policy of a log is tried again."""
ROLE: Role[State] = Role(
    name="gateway",
    reads=READS,
    guard=None,
    initial=initial,
    evolve=evolve,
    decide=decide,
    dump=dump,
    load=load,
    policy=lambda state: state.policy,
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
        sightings = asyncio.create_task(gateway.sightings.run(), name="heartbeats")
        sightings.add_done_callback(_say_failed)

        async def connect() -> Requester:
            return await connect_agents(connection.log)

        history = ClickHouseHistory(connection.clickhouse_url, connection.clickhouse_token_file)
        output = Output(progress, cluster=connection.cluster, connect=connect)
        await server.start(gateway, history, output, Forecasts(cluster=connection.cluster, connect=connect))
        announcing = asyncio.create_task(_announce(service, gateway, loop.caught_up, server.address))
        reloading = asyncio.create_task(_reload(service, gateway))
        checking = asyncio.create_task(server.watch_health(gateway))
        measuring = asyncio.create_task(Measuring(gateway, history, log.dead).run(), name="metrics")
        measuring.add_done_callback(_say_failed)
        try:
            await loop.run(stop)
        finally:
            progress.stop()
            announcing.cancel()
            sightings.cancel()
            measuring.cancel()
            reloading.cancel()
            await server.stop()
            await asyncio.gather(checking, measuring, return_exceptions=True)
    finally:
        await log.close()


def _say_failed(task: "asyncio.Task[None]") -> None:
    """The gateway goes on without it."""
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("no %s of the cluster any more", task.get_name(), exc_info=error)


async def _announce(service: Service, gateway: Gateway, caught_up: asyncio.Event, address: str) -> None:
    await caught_up.wait()
    gc.freeze()
    gc.enable()
    await announce_ready(service, caught_up, {"address": address})
    while True:
        try:
            await write_first(gateway, source=_source(service))
            return
        except Away as trouble:
            logger.warning("the log has no policy yet: %s", trouble)
            await asyncio.sleep(AGAIN_S)


async def _reload(service: Service, gateway: Gateway) -> None:
    """On SIGHUP, make the policy of the file the policy. Only with a file: without one there is nothing to read."""
    if service.arguments.config is None:
        return
    hung_up = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hung_up.set)
    while True:
        await hung_up.wait()
        hung_up.clear()
        try:
            await reload_policy(gateway, service.read_policy(), source=_source(service))
        except (Refusal, Away) as trouble:
            logger.error("SIGHUP: nothing is changed: %s", trouble)


def _source(service: Service) -> str:
    """What the policy of this process comes from."""
    return str(service.arguments.config or "its start")


def main(argv: Sequence[str]) -> int:
    """`tenure serve gateway`."""
    parser = argument_parser("gateway", "Serve the gRPC services Jobs, Budgets and Hosts.")
    return run_service(parser, "gateway", argv, serve)
