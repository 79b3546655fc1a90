"""The placer as a process."""

from collections.abc import Sequence

from services.placer.decider import role
from tenure.runtime.service import Service, argument_parser, run_decider, run_service


def main(argv: Sequence[str] | None = None) -> int:
    """Run the placer until it is told to stop. Exit status 0, or 1 with one line on stderr."""
    parser = argument_parser("placer", "Places jobs in fair-share order: starts, preemptions, escrow.")
    return run_service(parser, "placer", argv or [], serve)


async def serve(service: Service) -> None:
    """Run the placer's loop."""
    await run_decider(service, role(service.policy))
