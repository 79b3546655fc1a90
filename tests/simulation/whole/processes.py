"""The processes of the system, each with its own road to the log, clock and folder: they run the live loop.

What a process writes is decided by its role's own decider and carried out by the agent's own hands. A process dies by
being cancelled wherever it is; its folder, and the machine of an agent, stay.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from services.agent.decider import role as agent_role
from services.agent.gpu.provider import Gpu, Utilisation
from services.agent.hands import Hands
from services.agent.shell import agent_name, compare, take_over
from services.budget.decider import role as budget_role
from services.gateway.gateway import Gateway
from services.gateway.intake import Intake
from services.gateway.progress import Progress
from services.gateway.shell import ROLE as GATEWAY
from services.health.decider import role as health_role
from services.placer.decider import role as placer_role
from services.ranker.decider import role as ranker_role
from simulator.world import CLUSTER
from tenure.domain.host import HostSpec
from tenure.domain.job_id import JobIdMaker
from tenure.domain.policy import Policy
from tenure.domain.units import Millis
from tenure.log.port import Unavailable
from tenure.runtime.loop import Loop
from tenure.runtime.role import Role
from tenure.runtime.snapshot import SnapshotStore
from tests.simulation.whole.faulty_log import Road, SimulatedPort
from tests.simulation.whole.machine import Machine, VirtualReplicas
from tests.simulation.whole.virtual_time import SkewedClock, instant, passed

DECIDERS: dict[str, Callable[[Policy], Role[Any]]] = {
    "budget": budget_role,
    "ranker": ranker_role,
    "placer": placer_role,
    "health": lambda policy: health_role(policy, started_at=instant()),
}


class Process:
    """One process: `serve` is what it does from its start to its end."""

    def __init__(self, name: str, *, road: Road, folder: Path, policy: Policy) -> None:
        self.name, self.road, self.folder, self.policy = name, road, folder, policy
        self.skew_ms: Millis = 0
        self.loop: Loop[Any] | None = None
        """Of the present incarnation."""
        self.broken: BaseException | None = None
        """What ended it that should not have: a broken assertion."""
        self.task: asyncio.Task[None] | None = None
        self.work: set[asyncio.Task[Any]] = set()
        """What goes on beside the loop and dies with the process."""
        folder.mkdir(parents=True, exist_ok=True)
        road.die = self.die

    @property
    def snapshot(self) -> Path:
        """Where its snapshot lies."""
        return self.folder / "role.snapshot"

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.task is not None

    def start(self) -> None:
        """It begins (again), with what is in its folder."""
        if self.task is None:
            self.task = asyncio.create_task(self._run())
            self.task.add_done_callback(self._ended)

    def die(self) -> None:
        """`kill -9`."""
        for task in [self.task, *self.work, *self.hands()]:
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        current = asyncio.current_task()
        if current is not None and (current is self.task or current in self.work):
            current.cancel()
        self.task, self.loop = None, None
        self.work.clear()

    def hands(self) -> Sequence[asyncio.Task[Any]]:
        """Tasks of its shell that die with it."""
        return ()

    async def _run(self) -> None:
        mine = asyncio.current_task()
        while self.task is mine:
            try:
                await self.serve()
            except Unavailable as trouble:
                self.road.tell(f"ends, for {trouble}")
                await passed(1.0)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and task.exception() is not None:
            self.broken = task.exception()

    async def serve(self) -> None:
        """Run the role's loop."""
        await self._loop(DECIDERS[self.name](self.policy), package=self.name).run(asyncio.Event())

    def _loop(self, role: Role[Any], *, package: str, clock: SkewedClock | None = None, **more: Any) -> Loop[Any]:
        snapshots = SnapshotStore(self.snapshot, packages=(f"services/{package}",), log_identity="memory")
        clock = clock or self._clock()
        self.loop = Loop(role, SimulatedPort(self.road), clock, cluster=CLUSTER, snapshots=snapshots, **more)
        return self.loop

    def _clock(self) -> SkewedClock:
        return SkewedClock(lambda: self.skew_ms)


class GatewayProcess(Process):
    """The gateway without its gRPC server: a client calls `Intake` and `Gateway` as the servicers do."""

    gateway: Gateway
    intake: Intake

    async def serve(self) -> None:
        """Run the fold."""
        progress, clock = Progress(), self._clock()
        loop = self._loop(GATEWAY, package="gateway", clock=clock, perform=progress.perform)
        port = SimulatedPort(self.road)
        self.gateway = Gateway(loop, port, clock, progress, cluster=CLUSTER, policy=self.policy)
        self.gateway.job_ids = JobIdMaker(maker=self.road.chance.randrange(1 << 15))
        self.intake = Intake(self.gateway)
        await loop.run(asyncio.Event())

    @property
    def answers(self) -> bool:
        """Whether a client gets through to it."""
        return self.loop is not None and self.loop.caught_up.is_set()


class AgentProcess(Process):
    """An agent with its own decider, hands, heartbeat spool and run files, over virtual processes."""

    def __init__(self, *, specs: tuple[HostSpec, ...], machine: Machine, checkpoints: Path, **more: Any) -> None:
        super().__init__(agent_name(specs), **more)
        self.specs, self.machine, self.checkpoints = specs, machine, checkpoints
        self._hands: Hands | None = None

    async def serve(self) -> None:
        """As `services.agent.shell.serve` does, without signals and output."""
        clock: Any = self._clock()
        hands = self._hands = Hands(
            agent=self.name,
            data=self.folder,
            checkpoints=self.checkpoints,
            providers={spec.host: Gpus(spec) for spec in self.specs},
            clock=clock,
            policy=self.policy,
        )
        replicas: Any = VirtualReplicas(self.machine, on_exit=hands._on_exit, checkpoints=self.checkpoints)
        hands.replicas = replicas
        own = agent_role(self.policy, agent=self.name, hosts=self.specs)
        loop = self._loop(own, package="agent", clock=clock, perform=hands.perform)
        log = SimulatedPort(self.road)
        hands.poke = loop.poke

        async def restored(state: Any) -> None:
            await take_over(hands, log, state, now=clock.now())

        async def returned(state: Any) -> None:
            await compare(hands, log, state, now=clock.now())

        loop.on_restored, loop.on_return = restored, returned
        await loop.run(asyncio.Event())

    def hands(self) -> Sequence[asyncio.Task[Any]]:
        """Launches, stops and heartbeats that are under way."""
        self.machine.agent = None
        return [] if self._hands is None else list(self._hands._tasks)


class Gpus:
    """GPUs that all work, and of which nobody knows how busy they are."""

    def __init__(self, spec: HostSpec) -> None:
        self._gpus = [
            Gpu(index=index, uuid=f"{spec.host}-{index}", type=spec.gpu_type, memory_mib=1, device=str(index))
            for index in range(spec.gpus)
        ]

    def gpus(self) -> Sequence[Gpu]:
        """See `GpuProvider.gpus`."""
        return self._gpus

    def utilisation(self, held: Any) -> Utilisation:
        """See `GpuProvider.utilisation`."""
        return dict.fromkeys(held, None)
