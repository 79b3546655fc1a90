"""A whole agent of one virtual host on a log in memory, with real processes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from services.agent.decider import role
from services.agent.gpu.provider import GpuProvider
from services.agent.gpu.virtual import CpuUsage, VirtualProvider
from services.agent.hands import Hands
from services.agent.log_clock import LogClock
from services.agent.shell import look_after, stop_watching, take_over
from services.agent.starting import NO_RULES, Rules
from services.agent.state import State
from tenure.domain.host import HostSpec, HostState
from tenure.domain.ids import FactId, HostId, JobId, RunId
from tenure.domain.policy import Policy
from tenure.domain.reasons import EndCause
from tenure.domain.units import Millis
from tenure.events.hosts import HostStateChanged
from tenure.events.placing import RunEnded
from tenure.events.reports import Heartbeat, ReplicasExited
from tenure.log.memory import MemoryLog
from tenure.runtime.loop import Loop
from tenure.runtime.signal_options import SignalOptions
from tests.integration.agent.conftest import wall_clock
from tests.unit.agent.runs import WHY

HOST = HostId("h0")
SPEC = HostSpec(host=HOST, gpus=8, gpu_type="t", block="b", cluster="c")


def eight_gpus() -> VirtualProvider:
    """Made-up GPUs."""
    return VirtualProvider(host=HOST, count=8, gpu_type="t", memory_mib=1, usage=CpuUsage(now=wall_clock))


def hands_in(folder: Path, *, policy: Policy, rules: Rules = NO_RULES, provider: GpuProvider | None = None) -> Hands:
    """An agent's hands, with made-up GPUs, unless others are given, and a folder of their own."""
    return Hands(
        agent=HOST,
        data=folder,
        checkpoints=folder / "checkpoints",
        providers={HOST: provider or eight_gpus()},
        clock=LogClock(),
        policy=policy,
        rules=rules,
    )


@asynccontextmanager
async def living(
    log: MemoryLog,
    folder: Path,
    *,
    heartbeat_ms: int,
    signals: SignalOptions | None = None,
    rules: Rules = NO_RULES,
    provider: GpuProvider | None = None,
) -> AsyncIterator[Loop[State]]:
    """An agent that lives for the length of a block; its replicas and its folder outlive it."""
    policy = Policy(heartbeat_ms=heartbeat_ms)
    hands = hands_in(folder, policy=policy, rules=rules, provider=provider)
    loop = Loop(role(policy, agent=HOST, hosts=(SPEC,)), log, LogClock(), cluster="t", perform=hands.perform)
    hands.poke, stop = loop.poke, asyncio.Event()

    async def restored(state: State) -> None:
        await take_over(hands, log, state, now=wall_clock())

    loop.on_restored = restored
    running = asyncio.create_task(loop.run(stop))
    options = signals or SignalOptions()
    health = asyncio.create_task(look_after(options, hands, loop, clock=LogClock(), data=folder))
    yield loop
    stop.set()
    await running
    await stop_watching(health)
    await hands.close()


def end(job: str, cause: EndCause = EndCause.COMPLETED) -> RunEnded:
    """The first run of the job is over."""
    run, at = RunId(f"{job}.1"), wall_clock()
    return RunEnded(at=at, id=FactId(f"{run}-end"), run=run, job=JobId(job), cause_of_end=cause, why=WHY)


def lost(*, last_seen: Millis) -> HostStateChanged:
    """The host was silent for too long."""
    state, at = HostState.LOST, wall_clock()
    return HostStateChanged(
        at=at, id=FactId("lost"), host=HOST, state=state, previous=HostState.SUSPECT, last_seen=last_seen, why=WHY
    )


def beats(log: MemoryLog) -> list[Heartbeat]:
    """The heartbeats in the log."""
    return [entry.fact for entry in log.recorded if isinstance(entry.fact, Heartbeat)]


def exits(log: MemoryLog) -> int:
    """How many exits the log has heard of."""
    return sum(isinstance(entry.fact, ReplicasExited) for entry in log.recorded)


def held(log: MemoryLog) -> dict[RunId, int]:
    """GPU-milliseconds of each run that has ended, by its exit."""
    ends = [entry.fact for entry in log.recorded if isinstance(entry.fact, ReplicasExited)]
    spans = {fact.run: (gone.started_at, gone.at) for fact in ends for gone in fact.replicas}
    return {run: 2 * (until - since) for run, (since, until) in spans.items() if since is not None}


def told(log: MemoryLog) -> dict[RunId, int]:
    """GPU-milliseconds of each run, by the heartbeats."""
    total: dict[RunId, int] = {}
    for beat in beats(log):
        for each in beat.hosts[0].segments:
            total[each.run] = total.get(each.run, 0) + each.gpus * (each.until - each.since)
    return total
