"""The run of one seed: all processes, their clients, and the faults of the plan; everything mended at the end."""

import asyncio
import random
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from services.gateway.identity.asking import Asking, Identity, asking
from services.gateway.refusals import Away, Full
from simulator.world import CLUSTER
from tenure.domain.host import HostState
from tenure.domain.ids import FactId, HostId, JobId, UserName
from tenure.domain.refusal import Refusal
from tenure.domain.rights import Caller
from tenure.domain.tree import BudgetTree
from tenure.domain.tree_check import check_tree
from tenure.events.budgets import BudgetTreeChanged, JobRejected
from tenure.events.fact import Fact, Lane
from tenure.events.hosts import HostStateChanged
from tenure.events.intake import DrainRequested, JobCancelRequested, JobSubmitted, RepairCompleted
from tenure.events.placing import JobFinished
from tenure.log.port import Conflict, Expect
from tenure.runtime.cluster_file import parse_hosts
from tenure.runtime.options import build_policy
from tests.simulation.whole import plan as planning
from tests.simulation.whole.faulty_log import Road, SharedLog
from tests.simulation.whole.machine import Machine
from tests.simulation.whole.plan import AGENTS, BUDGETS, DECIDERS, HOSTS, OTHER_BUDGETS, POLICY, TROUBLE_S, Fault, Plan
from tests.simulation.whole.processes import AgentProcess, GatewayProcess, Process
from tests.simulation.whole.virtual_time import instant, passed

OPERATOR = UserName("operator")


class System:
    """All processes on one log. `story`: what went wrong when, in lines."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.folder = plan, folder
        self.log = SharedLog()
        self.policy = build_policy(POLICY)
        self.specs = parse_hosts(HOSTS)
        self.story: list[str] = []
        self.acknowledged: dict[str, JobId] = {}
        """What the clients were told: the job of each submission."""
        self.refused: dict[str, str] = {}
        self.fold_problem: str | None = None
        self.superseded: list[Process] = []
        """Old leaders that do not know yet."""
        self._roads = 0
        self._done_ms: dict[JobId, int] = {}
        self.processes: dict[str, Process] = {}
        for name in DECIDERS:
            self.processes[name] = Process(name, **self._place(name))
        self.gateway = GatewayProcess("gateway", **self._place("gateway"))
        self.processes["gateway"] = self.gateway
        for number, hosts in enumerate(AGENTS):
            self.processes[f"agent-{number}"] = self._agent(number, hosts)

    def _agent(self, number: int, hosts: tuple[int, ...]) -> AgentProcess:
        machine = Machine(now=lambda: instant() + agent.skew_ms, done_ms=self._done_ms)
        agent = AgentProcess(
            specs=tuple(self.specs[host] for host in hosts),
            machine=machine,
            checkpoints=self.folder / "checkpoints",
            **self._place(f"agent-{number}"),
        )
        return agent

    def _place(self, name: str) -> dict[str, Any]:
        self._roads += 1
        chance = random.Random(f"{self.plan.seed}-{name}-{self._roads}")
        road = Road(self.log, name=name, chance=chance)
        road.tell = lambda line: self.tell(f"{name} {line}")
        return {"road": road, "folder": self.folder / f"{name}-{self._roads}", "policy": self.policy}

    def tell(self, line: str) -> None:
        """Add a line to the story."""
        self.story.append(f"{asyncio.get_running_loop().time():9.2f} s  {line}")

    async def run(self) -> None:
        """Everything of the plan, then peace until all is over or should long be."""
        tree = BudgetTreeChanged(at=instant(), id=FactId("tree-0"), cluster=CLUSTER, tree=_tree(BUDGETS), by=OPERATOR)
        self.log.write([tree], expect=None, writer="world")
        for process in self.processes.values():
            process.start()
        clients = [asyncio.create_task(self._client(job)) for job in self.plan.jobs]
        faults = [asyncio.create_task(self._happen(fault)) for fault in self.plan.faults]
        await self._until(TROUBLE_S)
        await self._wait(faults)
        self._mend()
        ends = asyncio.get_running_loop().time() + planning.longest_s(self.plan)
        while asyncio.get_running_loop().time() < ends and not self._is_over(clients) and not self.broken:
            await passed(20.0)
            await self._return_hosts()
        await passed(90.0)

    async def _return_hosts(self) -> None:
        """Somebody has looked at the hosts that were drained by evidence, and they are fine."""
        changes = [entry.fact for entry in self.log.recorded if isinstance(entry.fact, HostStateChanged)]
        for host, last in sorted({change.host: change for change in changes}.items()):
            if last.state is HostState.DRAINED and last.automatic:
                name = FactId(f"return-{last.id}")
                await self.say(RepairCompleted(at=0, id=name, host=host, by=OPERATOR))

    @property
    def broken(self) -> dict[str, BaseException]:
        """Processes that ended by a broken assertion."""
        everybody = [*self.processes.values(), *self.superseded]
        return {process.name: process.broken for process in everybody if process.broken is not None}

    async def _wait(self, tasks: list[asyncio.Task[None]]) -> None:
        if tasks:
            await asyncio.wait(tasks)
        for task in tasks:
            task.result()

    def _is_over(self, clients: list[asyncio.Task[None]]) -> bool:
        placer = self.processes["placer"].loop
        if not all(client.done() for client in clients) or placer is None:
            return False
        facts = [entry.fact for entry in self.log.recorded]
        submitted = {fact.job for fact in facts if isinstance(fact, JobSubmitted)}
        ended = {fact.job for fact in facts if isinstance(fact, JobFinished | JobRejected)}
        return submitted <= ended

    async def _until(self, at_s: float) -> None:
        await passed(max(0.0, at_s - asyncio.get_running_loop().time()))

    def _mend(self) -> None:
        self.tell("everything is mended")
        self.log.full = False
        for process in self.superseded:
            process.die()
        for process in self.processes.values():
            process.road.set(
                cut=False, frozen=False, acks_lost=0, crash_at=None, hears_after_s=0.05, writes_after_s=0.02
            )
            process.start()

    # Clients: they ask again until they are answered.

    async def _client(self, job: planning.Job) -> None:
        await self._until(job.at_s)

        async def submit() -> None:
            asking.set(Asking(identity=Identity(caller=Caller(user=job.spec.user), how="simulated", address="client")))
            (given,) = await self.gateway.intake.submit([job.spec], key=job.key)
            self.acknowledged[job.key] = given

        try:
            await self._ask(submit)
        except Refusal as refusal:
            self.refused[job.key] = str(refusal)
            return
        if job.cancelled_at_s is not None:
            await self._until(job.cancelled_at_s)
            name = self.acknowledged[job.key]
            await self.say(JobCancelRequested(at=0, id=FactId(f"cancel-{name}"), job=name, by=job.spec.user))

    async def say(self, fact: Fact, *, lane: Lane | None = None) -> None:
        """Have the gateway write a fact, now by its clock."""

        async def write() -> None:
            gateway = self.gateway.gateway
            said = msgspec.structs.replace(fact, at=gateway.now(), cluster=CLUSTER)
            expect = None if lane is None else Expect(lane=lane, last=gateway.state.budget_lane)
            await gateway.append([said], expect=expect)

        await self._ask(write)

    async def _ask(self, request: Callable[[], Awaitable[None]]) -> None:
        while True:
            if self.gateway.answers:
                request_under_way: asyncio.Task[None] = asyncio.ensure_future(request())  # type: ignore[assignment]
                self.gateway.work.add(request_under_way)
                await asyncio.wait({request_under_way})
                self.gateway.work.discard(request_under_way)
                if not request_under_way.cancelled():
                    error = request_under_way.exception()
                    if error is None:
                        return
                    if not isinstance(error, Away | Full | Conflict):
                        raise error
            await passed(3.0)

    # Faults.

    async def _happen(self, fault: Fault) -> None:
        await self._until(fault.at_s)
        self.tell(f"fault: {fault}")
        await _FAULTS[fault.kind](self, fault)
        if fault.for_s:
            self.tell(f"over: {fault.kind} {fault.target}")

    async def _crash(self, fault: Fault) -> None:
        process = self.processes[fault.target]
        if fault.detail["at"] == "now":
            process.die()
        else:
            process.road.set(crash_at=fault.detail["at"])
            for _ in range(120):
                if not process.alive or process.road.crash_at is None:
                    break
                await passed(1.0)
            process.die()
            process.road.set(crash_at=None)
        _damage(process.snapshot, fault.detail["snapshot"])
        await passed(fault.for_s)
        process.start()

    async def _lost_ack(self, fault: Fault) -> None:
        self.processes[fault.target].road.set(acks_lost=fault.detail["acks"])

    async def _stale(self, fault: Fault) -> None:
        """The leader stands still, another takes over; then the old one wakes and goes on where it was."""
        old = self.processes[fault.target]
        if old in self.superseded or not old.alive:
            return
        old.road.set(frozen=True)
        self.superseded.append(old)
        new = Process(fault.target, **self._place(fault.target))
        if old.snapshot.exists():
            shutil.copy(old.snapshot, new.snapshot)
        self.processes[fault.target] = new
        new.start()
        await passed(fault.for_s)
        old.road.set(frozen=False)
        await passed(20.0)
        old.die()

    async def _slow(self, fault: Fault) -> None:
        road = self.processes[fault.target].road
        road.set(**fault.detail)
        await passed(fault.for_s)
        road.set(hears_after_s=0.05, writes_after_s=0.02)

    async def _cut(self, fault: Fault) -> None:
        road = self.processes[fault.target].road
        road.set(cut=True)
        await passed(fault.for_s)
        road.set(cut=False)

    async def _log_full(self, fault: Fault) -> None:
        self.log.full = True
        await passed(fault.for_s)
        self.log.full = False

    async def _spool_full(self, fault: Fault) -> None:
        blocked = self.processes[fault.target].folder / "beat.new"
        if blocked.exists():
            return
        blocked.mkdir()
        await passed(fault.for_s)
        blocked.rmdir()

    async def _clock(self, fault: Fault) -> None:
        process = self.processes[fault.target]
        process.skew_ms += 1000 * int(fault.detail["jump_s"])
        if fault.for_s:
            await passed(fault.for_s)
            process.skew_ms -= 1000 * int(fault.detail["jump_s"])

    async def _power_loss(self, fault: Fault) -> None:
        agent = self.processes[fault.target]
        assert isinstance(agent, AgentProcess)
        agent.die()
        agent.machine.power_off()
        await passed(fault.for_s)
        agent.start()

    async def _drain(self, fault: Fault) -> None:
        host, fatal = HostId(fault.target), bool(fault.detail["fatal"])
        name = f"{fault.target}-{round(fault.at_s)}"
        asked = DrainRequested(at=0, id=FactId(f"drain-{name}"), host=host, by=OPERATOR, comment="soak", fatal=fatal)
        await self.say(asked)
        await passed(fault.for_s)
        await self.say(RepairCompleted(at=0, id=FactId(f"repair-{name}"), host=host, by=OPERATOR))

    async def _tree_edit(self, fault: Fault) -> None:
        for number, tree in enumerate((OTHER_BUDGETS, BUDGETS)):
            name = FactId(f"tree-{round(fault.at_s)}-{number}")
            await self.say(BudgetTreeChanged(at=0, id=name, tree=_tree(tree), by=OPERATOR), lane=Lane.BUDGET)
            await passed(fault.for_s)


_FAULTS: dict[str, Callable[[System, Fault], Awaitable[None]]] = {
    "crash": System._crash,
    "lost-ack": System._lost_ack,
    "stale": System._stale,
    "slow": System._slow,
    "cut": System._cut,
    "log-full": System._log_full,
    "spool-full": System._spool_full,
    "clock": System._clock,
    "power-loss": System._power_loss,
    "drain": System._drain,
    "tree-edit": System._tree_edit,
}


def _tree(budgets: object) -> BudgetTree:
    return check_tree({"budgets": budgets})


def _damage(snapshot: Path, how: str) -> None:
    """What a crash may leave of a local file, and what it may not."""
    if how == "kept" or not snapshot.exists():
        return
    content = snapshot.read_bytes()
    if how == "gone":
        snapshot.unlink()
    elif how == "torn":
        snapshot.write_bytes(content[: len(content) // 2])
    else:
        middle = len(content) * 2 // 3
        snapshot.write_bytes(content[:middle] + bytes([content[middle] ^ 0x55]) + content[middle + 1 :])
