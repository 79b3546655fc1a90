"""`python -m tests.integration.ha.older_role ROLE ...`: budget, ranker or placer as before there were leases.

It knows none of the facts of who leads, asks nobody whether it leads, writes facts without the fields that came later,
and signs with `older-ROLE` so that a test can tell what it wrote.
"""

import asyncio
import importlib
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tenure.events.fact import Fact
from tenure.events.leading import LeadTaken
from tenure.log import codec
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

LATER = ("cluster", "cause")
"""Fields that this older version does not write."""


def older(role: Role[Any]) -> Role[Any]:
    """The role without what came with leases."""
    reads = tuple(kind for kind in role.reads if not issubclass(kind, LeadTaken))
    return replace(role, name=f"older-{role.name}", reads=reads, lead=None)


def encode(fact: Fact) -> bytes:
    """The bytes of that version."""
    written = json.loads(_encode(fact))
    return json.dumps({key: value for key, value in written.items() if key not in LATER}).encode()


async def serve(service: Service) -> None:
    """Run until told to stop."""
    decider = importlib.import_module(f"services.{service.role}.decider")
    stop = stop_on_signals()
    log = await connect_log(service)
    try:
        loop = await make_loop(service, older(decider.role(service.policy)), log)
        announcing = asyncio.create_task(announce_ready(service, loop.caught_up, {}))
        await loop.run(stop)
        announcing.cancel()
    finally:
        await log.close()


def main(arguments: Sequence[str]) -> int:
    """As `python -m services`."""
    role = arguments[0]
    codec.encode = encode  # type: ignore[assignment]
    return run_service(argument_parser(role, "An older version."), role, arguments[1:], serve)


_encode = codec.encode

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
