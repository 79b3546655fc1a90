"""An agent's lower half in a process of its own, to be killed: launches what stdin says, prints `ready`, waits.

One JSON list of [run, replica, command ...] a line; an empty line ends the list.
"""

import asyncio
import json
import sys
from pathlib import Path

from services.agent.process.spec import Launched
from tests.integration.agent.conftest import RealHost


async def main() -> None:
    host = RealHost(Path(sys.argv[1]))
    wanted = [json.loads(line) for line in iter(sys.stdin.readline, "\n")]
    print("asking", flush=True)
    launches = (host.launch(*command, run=run, replica=replica) for run, replica, *command in wanted)
    launched = await asyncio.gather(*launches)
    assert all(isinstance(one, Launched) for one in launched), launched
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        run, grace_ms = json.loads(line)
        await host.stop(run, grace_ms=grace_ms)
        print("told", flush=True)


asyncio.run(main())
