"""The health role as a process."""

from collections.abc import Sequence

from services.health.decider import role
from services.health.hands import Hands
from services.health.policy.mending import Plug
from tenure.runtime.clock import WallClock
from tenure.runtime.repair_options import REPAIR, build_repair_options
from tenure.runtime.service import (
    Service,
    argument_parser,
    connect_log,
    make_loop,
    run_service,
    stop_on_signals,
    taking_part,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the health role until it is told to stop. Exit status 0, or 1 with one line on stderr."""
    description = "Judges hosts by heartbeats, signals and runs; drains them, has them repaired and tested."
    parser = argument_parser("health", description)
    return run_service(parser, "health", argv or [], serve)


async def serve(service: Service) -> None:
    """Run the loop. Silence counts from now on: what passed while no health role ran is no host's fault."""
    options = build_repair_options(service.settings.section(REPAIR))
    stop, clock = stop_on_signals(), WallClock()
    log = await connect_log(service)
    try:
        hands = Hands(log, clock, options, cluster=service.connection.cluster)
        plug = Plug(repairs=options.there, tests=options.there and options.test)
        decider = role(service.policy, started_at=clock.now(), plug=plug)
        loop = await make_loop(service, decider, log, perform=hands.perform)
        hands.epoch, loop.on_stand_down = loop.confirmed_epoch, hands.rest
        async with taking_part(service, log, loop.caught_up) as loop.leadership:
            loop.leadership.on_change.append(loop.poke)
            await loop.run(stop)
        await hands.rest()
    finally:
        await log.close()
