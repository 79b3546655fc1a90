"""The health role as a process."""

from collections.abc import Sequence

from services.health.decider import role
from tenure.runtime.clock import WallClock
from tenure.runtime.service import Service, argument_parser, run_decider, run_service


def main(argv: Sequence[str] | None = None) -> int:
    """Run the health role until it is told to stop. Exit status 0, or 1 with one line on stderr."""
    parser = argument_parser("health", "Judges hosts by their heartbeats: suspect, lost, back; drains them.")
    return run_service(parser, "health", argv or [], serve)


async def serve(service: Service) -> None:
    """Run the loop. Silence counts from now on: what passed while no health role ran is no host's fault."""
    await run_decider(service, role(service.policy, started_at=WallClock().now()))
