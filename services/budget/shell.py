"""The budget role as a process: `tenure serve budget`. It has no hands: facts in, facts out."""

import sys
from collections.abc import Sequence

from services.budget.decider import role
from tenure.runtime.service import Service, argument_parser, run_decider, run_service


async def serve(service: Service) -> None:
    """Run until told to stop."""
    await run_decider(service, role(service.policy))


def main(argv: Sequence[str]) -> int:
    """Exit status 0 after SIGTERM or SIGINT, 1 with one line on stderr when it cannot run."""
    parser = argument_parser("budget", "Admit or reject submissions, charge ended runs.")
    return run_service(parser, "budget", argv, serve)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
