"""The placer as a process."""

from collections.abc import Sequence
from pathlib import Path

from services.placer.decider import role
from tenure.domain.refusal import Refusal
from tenure.runtime.run_signing import load_signer
from tenure.runtime.service import Service, argument_parser, run_decider, run_service


def main(argv: Sequence[str] | None = None) -> int:
    """Run the placer until it is told to stop. Exit status 0, or 1 with one line on stderr."""
    parser = argument_parser("placer", "Places jobs in fair-share order: starts, preemptions, escrow.")
    return run_service(parser, "placer", argv or [], serve)


async def serve(service: Service) -> None:
    """Run the placer's loop. Raises `Refusal` for a log that others can reach and no key."""
    path: Path | None = service.arguments.run_key_file
    log = service.connection.log
    if path is None and not (log.local or log.insecure):
        raise Refusal(
            field="--run-key-file",
            problem="not given, and the log is on other machines: agents there start signed runs only",
            fix="give the file of a key: openssl genpkey -algorithm ed25519 -out runs.key",
        )
    decider = role(service.policy)
    if path is None:
        await run_decider(service, decider)
    else:
        await run_decider(service, decider, seal=load_signer(path).seal)
