"""Occupancy in the log is what the exits say, to the millisecond, however heartbeats and exits fall together."""

import asyncio
from collections import Counter
from pathlib import Path

from services.agent.decider import role
from services.agent.gpu.virtual import CpuUsage, VirtualProvider
from services.agent.hands import Hands
from tenure.domain.host import HostSpec
from tenure.domain.ids import FactId, HostId, JobId, RunId
from tenure.domain.job import Launch
from tenure.domain.policy import Policy
from tenure.domain.reasons import EndCause
from tenure.events.placing import RunEnded
from tenure.events.reports import Heartbeat, ReplicasExited
from tenure.log.memory import MemoryLog
from tenure.runtime.clock import WallClock
from tenure.runtime.loop import Loop
from tests.integration.agent.conftest import until, wall_clock
from tests.unit.agent.runs import WHY, assigned

RUNS = 40
HOST = HostId("h0")


def test_heartbeats_at_every_moment_never_count_more_or_less_than_was_held(tmp_path: Path) -> None:
    log = MemoryLog()
    asyncio.run(_live(log, tmp_path))
    facts = [entry.fact for entry in log.since(0)]  # type: ignore[arg-type]
    held = {
        fact.run: 2 * (gone.at - gone.started_at)
        for fact in facts
        if isinstance(fact, ReplicasExited)
        for gone in fact.replicas
        if gone.started_at is not None
    }
    told: Counter[RunId] = Counter()
    for fact in facts:
        if isinstance(fact, Heartbeat):
            for segment in fact.hosts[0].segments:
                told[segment.run] += segment.gpus * (segment.until - segment.since)
    assert len(held) == RUNS and told == held


async def _live(log: MemoryLog, folder: Path) -> None:
    """An agent that beats every other millisecond, and runs that end all the time."""
    policy, usage = Policy(heartbeat_ms=2), CpuUsage(now=wall_clock)
    spec = HostSpec(host=HOST, gpus=8, gpu_type="t", block="b", cluster="c")
    provider = VirtualProvider(host=HOST, count=8, gpu_type="t", memory_mib=1, usage=usage)
    hands = Hands(
        agent=HOST,
        data=folder,
        checkpoints=folder / "checkpoints",
        providers={HOST: provider},
        clock=WallClock(),
        policy=policy,
    )
    loop = Loop(role(policy, agent=HOST, hosts=(spec,)), log, WallClock(), cluster="t", perform=hands.perform)
    hands.poke, stop = loop.poke, asyncio.Event()

    async def restored(state: object) -> None:
        await hands.take_over(loop.state)

    loop.on_restored = restored
    running = asyncio.create_task(loop.run(stop))
    launch = Launch(command=("/bin/sleep", "0.05"), environment={"PATH": "/usr/bin:/bin"})
    for number in range(RUNS):
        run = RunId(f"j{number}.1")
        log.append_now([assigned(HOST, id=f"{run}", run=run, job=JobId(f"j{number}"), launch=launch)])
        await until(lambda: len(loop.state.replicas) > number)  # noqa: B023
    await until(lambda: _exits(log) == RUNS)
    log.append_now([_end(number) for number in range(RUNS)])
    await until(lambda: not loop.state.replicas)
    stop.set()
    await running
    await hands.close()


def _end(number: int) -> RunEnded:
    run, job, at = RunId(f"j{number}.1"), JobId(f"j{number}"), wall_clock()
    return RunEnded(at=at, id=FactId(f"{run}-end"), run=run, job=job, cause_of_end=EndCause.COMPLETED, why=WHY)


def _exits(log: MemoryLog) -> int:
    return sum(isinstance(entry.fact, ReplicasExited) for entry in log.since(0))  # type: ignore[arg-type]
