"""Many agents of one host each, in one process: `python -m tests.bench.fleet URL FOLDER FIRST COUNT GPUS`.

Each is the agent's own loop, decider, hands, heartbeats and files, with two connections of its own to a real server
and a reader of its own district; only its machine is pretended: jobs are `Work`, which ends by a timer. Prints `ready`
when all have read the log, and ends by SIGTERM.
"""

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

from services.agent.decider import role
from services.agent.hands import Hands
from services.agent.log_clock import LogClock
from services.agent.shell import compare, take_over
from tenure.domain.host import HostSpec
from tenure.domain.policy import Policy
from tenure.log.jetstream import JetStreamLog
from tenure.runtime.cluster_file import parse_hosts
from tenure.runtime.loop import Loop
from tests.simulation.whole.machine import Machine, VirtualReplicas
from tests.simulation.whole.processes import Gpus

CLUSTER = "tenure"
AT_ONCE = 25
"""So many connect at a time."""
LOOK_EVERY_S = 3600.0


class Agent:
    """One host with its agent."""

    def __init__(self, spec: HostSpec, *, folder: Path, policy: Policy) -> None:
        self.spec, self._folder, self._policy = spec, folder / spec.host, policy
        self._folder.mkdir(parents=True)
        self._clock = LogClock()
        self._machine = Machine(now=self._clock.now, done_ms={})
        self.loop: Loop[Any] | None = None

    async def connect(self, url: str) -> None:
        """Connect, and make everything that `serve` runs."""
        self.log = log = await JetStreamLog.connect(url, cluster=CLUSTER, speaker=self.spec.host)
        hands = Hands(
            agent=self.spec.host,
            data=self._folder,
            checkpoints=self._folder / "checkpoints",
            providers={self.spec.host: Gpus(self.spec)},
            clock=self._clock,
            policy=self._policy,
        )
        replicas: Any = VirtualReplicas(self._machine, on_exit=hands._on_exit, checkpoints=self._folder / "checkpoints")
        hands.replicas = replicas
        own = role(self._policy, agent=self.spec.host, hosts=(self.spec,), machine=f"machine-{self.spec.host}")
        self.loop = loop = Loop(
            own, log, self._clock, cluster=CLUSTER, perform=hands.perform, look_every_s=LOOK_EVERY_S
        )
        hands.poke = loop.poke

        async def restored(state: Any) -> None:
            await take_over(hands, log, state, now=self._clock.now())

        async def returned(state: Any) -> None:
            await compare(hands, log, state, now=self._clock.now())

        loop.on_restored, loop.on_return = restored, returned

    async def serve(self, stop: asyncio.Event) -> None:
        """Until told to stop."""
        assert self.loop is not None, "it is connected"
        await self.loop.run(stop)
        await self.log.close()


async def run(url: str, folder: Path, first: int, count: int, gpus: int, policy: Policy) -> None:
    """All agents, until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    specs = parse_hosts(f"{first + count}x{gpus}")[first:]
    agents = [Agent(spec, folder=folder, policy=policy) for spec in specs]
    tasks: list[asyncio.Task[None]] = []
    for start in range(0, count, AT_ONCE):
        some = agents[start : start + AT_ONCE]
        await asyncio.gather(*(agent.connect(url) for agent in some))
        tasks += [asyncio.create_task(agent.serve(stop)) for agent in some]
    for agent in agents:
        assert agent.loop is not None, "all are connected"
        await agent.loop.caught_up.wait()
    print(json.dumps({"ready": count}), flush=True)
    await asyncio.gather(*tasks)


if __name__ == "__main__":
    url, folder, first, count, gpus = sys.argv[1:]
    asyncio.run(run(url, Path(folder), int(first), int(count), int(gpus), Policy()))
