"""What heartbeats cost the deciders, and when silence is seen: `python -m tests.bench.heartbeats` prints JSON.

1,000 agents of a host each beat at the default interval, spread over it, for five virtual minutes; one falls silent
after 200 s. Process time of folding and deciding in health, budget, ranker and placer.

Then the same, each host with a run on its GPUs, for a minute (`--live SECONDS`) on a real nats-server and ClickHouse,
each role a process of its own: what each process uses, the log's client, decoding and the journal's rows included, less
what it uses when nobody beats. The roles are the control plane; the servers are shown beside them.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil

from services.budget import decider as budget
from services.health import decider as health
from services.placer import decider as placer
from services.ranker import decider as ranker
from simulator.actor import Actor
from tenure.domain.host import HostSpec, HostState
from tenure.domain.ids import BudgetPath, FactId, JobId, RunId, UserName
from tenure.domain.policy import Policy
from tenure.domain.units import SECOND, Millis
from tenure.events.fact import Fact
from tenure.events.hosts import HostStateChanged
from tenure.events.reports import Heartbeat, HostBeat, HostRegistered, Segment
from tenure.log.jetstream import JetStreamLog
from tenure.log.memory import MemoryLog
from tenure.runtime.cluster_file import parse_hosts
from tests.e2e.roles import Roles

CLUSTER = "sim"
HOSTS = 1_000
BATCHES = 20
"""Instants in an interval, at which a part of the hosts beats."""
LASTS, SILENT_AT = 300 * SECOND, 200 * SECOND
LIVE_CLUSTER, MACHINE, SETTLE_S = "tenure", "9f3ac2d1.4be0", 5.0
JOB, LEAF, USER = JobId("01K0ABCDEFGHJKMNPQRSTVWXYZ"), BudgetPath("science/chem"), UserName("ana")


class _Roles:
    """The deciders on a memory log, and the process time each took."""

    def __init__(self, policy: Policy) -> None:
        self.log = MemoryLog()
        made = (health.role(policy), budget.role(policy), ranker.role(policy), placer.role(policy))
        self.actors: list[Actor[Any]] = [Actor(role, self.log, cluster=CLUSTER) for role in made]
        self.spent_s = dict.fromkeys((actor.role.name for actor in self.actors), 0.0)
        self.said = 0

    def say(self, fact: Fact) -> None:
        self.said += 1
        self.log.append_now([msgspec.structs.replace(fact, id=FactId(f"beat-{self.said}"), cluster=CLUSTER)])

    def settle(self, now: Millis) -> None:
        while True:
            said = 0
            for actor in self.actors:
                if actor.inbox or (actor.wake_at is not None and actor.wake_at <= now):
                    began = time.process_time()
                    said += actor.act(now)
                    self.spent_s[actor.role.name] += time.process_time() - began
            if not said:
                return


def measure() -> dict[str, Any]:
    """The figures of five virtual minutes."""
    policy, hosts = Policy(), parse_hosts(f"{HOSTS}x8")
    roles = _Roles(policy)
    for spec in hosts:
        roles.say(HostRegistered(at=0, agent=spec.host, hosts=(spec,)))
    roles.settle(0)
    roles.spent_s = dict.fromkeys(roles.spent_s, 0.0)
    step, last_beat, detected_at = policy.heartbeat_ms // BATCHES, 0, None
    for batch in range(1, LASTS // step + 1):
        now = batch * step
        for spec in hosts[batch % BATCHES :: BATCHES]:
            if spec is hosts[0] and now > SILENT_AT:
                continue
            last_beat = now if spec is hosts[0] else last_beat
            roles.say(Heartbeat(at=now, agent=spec.host, hosts=(HostBeat(host=spec.host, gpus=8),)))
        known = len(roles.log.recorded)
        roles.settle(now)
        changed = [
            entry.fact.at
            for entry in roles.log.recorded[known:]
            if isinstance(entry.fact, HostStateChanged) and entry.fact.state is HostState.SUSPECT
        ]
        detected_at = changed[0] if changed and detected_at is None else detected_at
    cores = {name: round(100 * 1_000 * spent / LASTS, 3) for name, spent in roles.spent_s.items()}
    return {
        "conditions": {"hosts": HOSTS, "heartbeat_ms": policy.heartbeat_ms},
        "percent_of_a_core": {**cores, "all": round(sum(cores.values()), 3)},
        "silence": {"seen_after_s": None if detected_at is None else (detected_at - last_beat) / SECOND},
    }


def measure_live(seconds: float) -> dict[str, Any]:
    """Percent of a core that each process uses more while 1,000 agents beat, over so long."""
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as folder, Roles(Path(folder), knobs=()) as roles:
        roles.start_deciders()
        roles.client()
        watched = {name: psutil.Process(process.pid) for name, process in roles.processes.items()}
        watched |= {"nats": psutil.Process(roles.nats_pid), "clickhouse": psutil.Process(roles.database_pid)}
        time.sleep(SETTLE_S)
        idle = used(watched, time.sleep, seconds / 2)
        beating = asyncio.run(beat_live(roles.nats_url, lambda: used(watched, time.sleep, seconds), seconds))
    more = {name: round(beating[name] - idle[name], 2) for name in watched}
    control = sum(more[name] for name in roles.processes)
    servers = {"with_nats_and_clickhouse": round(sum(more.values()), 2), "beats_per_s": round(beating["beats_per_s"])}
    return {**more, "control_plane": round(control, 2), **servers}


def used(watched: Mapping[str, psutil.Process], passes: Callable[[float], None], seconds: float) -> dict[str, float]:
    """Percent of a core that each process uses while so much time passes."""
    before, began = {name: cpu_s(process) for name, process in watched.items()}, time.monotonic()
    passes(seconds)
    took = time.monotonic() - began
    return {name: 100 * (cpu_s(process) - before[name]) / took for name, process in watched.items()}


def cpu_s(process: psutil.Process) -> float:
    """Processor time of a process so far, in seconds."""
    times = process.cpu_times()
    return float(times.user + times.system)


async def beat_live(url: str, measured: Callable[[], dict[str, float]], seconds: float) -> dict[str, float]:
    """Register the hosts, let all of them beat, and once that goes on evenly see what is `measured` in `seconds`."""
    hosts, interval_s = parse_hosts(f"{HOSTS}x8"), Policy().heartbeat_ms / SECOND
    log = await JetStreamLog.connect(url, cluster=LIVE_CLUSTER)
    stop, beats = asyncio.Event(), [0]

    async def agent(number: int, spec: HostSpec) -> None:
        count, told, run = 0, now(), RunId(f"{spec.host}.1")
        await say(
            HostRegistered(at=now(), id=FactId(f"{spec.host}-r"), agent=spec.host, hosts=(spec,), machine=MACHINE)
        )
        due = asyncio.get_running_loop().time() + interval_s * number / HOSTS
        while not stop.is_set():
            await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
            due, count = due + interval_s, count + 1
            fact_id = FactId(f"{spec.host}-{count}")
            since, told = told, now()
            held = Segment(run=run, job=JOB, budget=LEAF, user=USER, charged=True, gpus=8, since=since, until=told)
            beat = HostBeat(host=spec.host, gpus=8, runs=(run,), segments=(held,))
            await say(Heartbeat(at=told, id=fact_id, agent=spec.host, hosts=(beat,), machine=MACHINE))
            beats[0] += 1

    async def say(fact: Fact) -> None:
        await log.append([msgspec.structs.replace(fact, cluster=LIVE_CLUSTER)])

    agents = [asyncio.create_task(agent(number, spec)) for number, spec in enumerate(hosts)]
    try:
        await asyncio.sleep(3 * SETTLE_S)
        before = beats[0]
        spent = await asyncio.to_thread(measured)
        return spent | {"beats_per_s": (beats[0] - before) / seconds}
    finally:
        stop.set()
        await asyncio.gather(*agents)
        await log.close()


def now() -> Millis:
    """The machine's clock."""
    return time.time_ns() // 1_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.heartbeats", description="What heartbeats cost.")
    parser.add_argument("--live", type=float, default=60, metavar="SECONDS", help="on real servers; 0: not at all")
    asked = parser.parse_args(arguments)
    figures = measure()
    if asked.live:
        figures["live_percent_of_a_core"] = measure_live(asked.live)
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
