"""The ranker as a process."""

from collections.abc import Sequence

from services.ranker.decider import role
from tenure.runtime.service import Service, argument_parser, run_decider, run_service


def main(argv: Sequence[str] | None = None) -> int:
    """Run the ranker until it is told to stop. Exit status 0, or 1 with one line on stderr."""
    parser = argument_parser("ranker", "Computes the fair-share order.")
    return run_service(parser, "ranker", argv or [], serve)


async def serve(service: Service) -> None:
    """Run the ranker's loop."""
    await run_decider(service, role(service.policy))
