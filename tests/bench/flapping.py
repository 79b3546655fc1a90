"""S64 as a figure: 30 % of 1,000 hosts are silent for 45 s every 5 min, for hours: `python -m tests.bench.flapping`.

Every host has a protected run; beside them wait jobs of another budget, which would start wherever a run were ended.
All deciders run in a simulated world, at the default knobs. `together`: all of the 30 % at once, as a bad switch does
it; `apart`: each in its own time, as bad links do. Wanted are zeros.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from simulator.agents import Behaviour
from simulator.world import World
from tenure.domain.host import HostState
from tenure.domain.ids import BudgetPath, HostId, JobId, UserName
from tenure.domain.job import JobSpec, Launch
from tenure.domain.policy import Policy
from tenure.domain.reasons import EndCause
from tenure.domain.tree_check import check_tree
from tenure.domain.units import HOUR, MINUTE, SECOND, Millis
from tenure.events.fact import Recorded
from tenure.events.hosts import CapacityChanged, HostStateChanged
from tenure.events.placing import RunEnded, RunPreemptionRequested, RunStopRequested
from tenure.runtime.cluster_file import parse_hosts

SHARE, SILENT, EVERY = 0.3, 45 * SECOND, 5 * MINUTE
FIRST = 10 * MINUTE


def measure(
    *, hosts: int, hours: float, together: bool, silent_ms: Millis = SILENT, every_ms: Millis = EVERY
) -> dict[str, Any]:
    """What became of hosts and runs in so many hours."""
    specs, end = parse_hosts(f"{hosts}x8"), FIRST + int(hours * HOUR)
    tree = check_tree({"budgets": {"held": {"share": 50}, "waiting": {"share": 50}}})
    world = World(hosts=specs, tree=tree, policy=Policy())
    for number in range(hosts):
        world.at(0, lambda number=number: _submit(world, f"held-{number:04}", runs_for_ms=end))  # type: ignore[misc]
    for number in range(hosts // 10):
        name = f"waiting-{number:04}"
        world.at(MINUTE, lambda name=name: _submit(world, name, runs_for_ms=HOUR))  # type: ignore[misc]
    flapping = [spec.host for spec in specs[: int(hosts * SHARE)]]
    for number, host in enumerate(flapping):
        first = FIRST + (0 if together else every_ms * number // len(flapping))
        for at in range(first, end - every_ms, every_ms):
            world.at(at, lambda host=host: _fall_silent(world, host))  # type: ignore[misc]
            world.at(at + silent_ms, lambda host=host: world.agents.speak_again(host))  # type: ignore[misc]
    began = time.process_time()
    world.run(end + MINUTE)
    return _told(world.recorded) | {"hours": hours, "seconds": round(time.process_time() - began, 1)}


def _submit(world: World, name: str, *, runs_for_ms: Millis) -> None:
    spec = JobSpec(
        budget=BudgetPath(name.partition("-")[0]),
        user=UserName("ana"),
        replicas=1,
        gpus_per_replica=8,
        min_runtime_ms=8 * HOUR,
        resumable=True,
        launch=Launch(command=("true",)),
    )
    world.submit(JobId(name), spec, Behaviour(runs_for_ms=runs_for_ms))


def _fall_silent(world: World, host: HostId) -> None:
    world.agents.silent[host] = None


def _told(recorded: Sequence[Recorded]) -> dict[str, Any]:
    facts = [entry.fact for entry in recorded]
    states = [fact.state for fact in facts if isinstance(fact, HostStateChanged)]
    ends = [fact.cause_of_end for fact in facts if isinstance(fact, RunEnded)]
    return {
        "suspicions": states.count(HostState.SUSPECT),
        "lost": states.count(HostState.LOST),
        "drained": states.count(HostState.DRAINING),
        "told_to_stop": sum(isinstance(fact, RunPreemptionRequested | RunStopRequested) for fact in facts),
        "ended_early": sum(cause is not EndCause.COMPLETED for cause in ends),
        "completed": ends.count(EndCause.COMPLETED),
        "capacity_changes": sum(isinstance(fact, CapacityChanged) and fact.at > MINUTE for fact in facts),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.flapping", description="Hosts that come and go.")
    parser.add_argument("--hosts", type=int, default=1_000)
    parser.add_argument("--hours", type=float, default=4, help="how long they flap")
    asked = parser.parse_args(arguments)
    found: dict[str, Any] = {"conditions": {"hosts": asked.hosts, "flapping": SHARE, "silent_s": SILENT // SECOND}}
    for name in ("together", "apart"):
        found[name] = measure(hosts=asked.hosts, hours=asked.hours, together=name == "together")
    print(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
