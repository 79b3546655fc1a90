"""A gang over everything, live: `python -m tests.bench.gang` prints JSON.

`tenure up` with 64 virtual hosts of 8 GPUs, each full with a run that exits when told to; then a gang of 64 x 8 is
submitted. Every replica is a real process, every fact is on the disk. By the one clock of this machine:

- `preemptible`: the runs are unallocated. From the call of Submit to the first instruction of the last rank.
- `protected`: they have contracts that end at different times. From the end of the last one to that instruction.

Beside them where the time went, from the log: until the victims are told, until the last of them is gone, until the
gang has its GPUs, until its last process is there.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tenure.domain.units import Millis
from tenure.events.fact import Fact
from tenure.events.placing import RunAssigned, RunPreemptionRequested, RunStarted
from tenure.events.reports import ReplicasExited
from tenure.v1.jobs_pb2 import JobSpec
from tests.bench.path import wait_for
from tests.e2e.system import System, running

HOSTS, GPUS = 64, 8
KNOBS = ("heartbeat=5s", "lookback=1h", "min_runtime_cap=1h")
ROUNDS = 5
WAVES = 4
CONTRACT_S = 6.0
RANK = ': > "$0.$RANK"; exec sleep 1000'
"""Leaves a file as its first instruction, without another process."""


@contextmanager
def fresh_system() -> Iterator[System]:
    """A system of 512 virtual GPUs."""
    with (
        tempfile.TemporaryDirectory(prefix="tenure-bench-") as folder,
        running(Path(folder), hosts=f"{HOSTS}x{GPUS}", knobs=KNOBS) as system,
    ):
        yield system


def submit_victims(system: System, count: int, *, seconds: float) -> None:
    """So many runs of a whole host each."""
    spec = JobSpec(
        budget="b",
        user="bench",
        replicas=1,
        gpus_per_replica=GPUS,
        min_runtime_ms=int(seconds * 1000),
        command=["sleep", "1000"],
    )
    system.client.submit_batch([spec] * count)


def submit_gang(system: System, number: int) -> tuple[str, Path, float]:
    """The gang; its stamps are beside this path. With the instant of the call in ms."""
    stamp = system.data / f"gang{number}"
    spec = JobSpec(
        budget="a",
        user="bench",
        replicas=HOSTS,
        gpus_per_replica=GPUS,
        min_runtime_ms=60_000,
        command=["/bin/sh", "-c", RANK, str(stamp)],
    )
    began = time.time() * 1000
    return system.client.submit(spec), stamp, began


def last_instruction(system: System, stamp: Path) -> float:
    """When the last rank began, in ms."""
    ranks = [stamp.with_name(f"{stamp.name}.{rank}") for rank in range(HOSTS)]
    system.until(lambda: all(rank.exists() for rank in ranks) or None, timeout_s=120, what="every rank")
    return max(rank.stat().st_mtime_ns for rank in ranks) / 1e6


def clear(system: System) -> None:
    """Cancel whatever is there and wait until it is gone."""
    alive = ("submitted", "queued", "starting", "running", "stopping")
    for job in system.client.jobs(states=alive, limit=1_000).jobs:
        system.client.cancel(job.job_id, user="bench")
    system.until(lambda: not system.client.jobs(states=alive, limit=1).jobs or None, timeout_s=120, what="an end")


def where(facts: Sequence[Fact], job: str, since: Millis) -> dict[str, float]:
    """By the log, in ms since an instant: victims told, the last one gone, GPUs assigned, all processes there."""
    told = [fact for fact in facts if isinstance(fact, RunPreemptionRequested) and fact.by == job]
    victims = {fact.run for fact in told}
    gone = [fact for fact in facts if isinstance(fact, ReplicasExited) and fact.run in victims]
    (assigned,) = [fact.at for fact in facts if isinstance(fact, RunAssigned) and fact.job == job]
    (started,) = [fact.at for fact in facts if isinstance(fact, RunStarted) and fact.job == job]
    assert len(victims) == HOSTS, f"{len(victims)} victims"
    instants = {
        "told_ms": max(fact.at for fact in told),
        "gone_ms": max(gone.at for fact in gone for gone in fact.replicas),
        "assigned_ms": assigned,
        "started_ms": started,
    }
    return {name: instant - since for name, instant in instants.items()}


def preemptible(system: System, number: int) -> dict[str, float]:
    """One gang over unallocated runs."""
    submit_victims(system, HOSTS, seconds=0)
    wait_for(system, "running", HOSTS)
    job, stamp, began = submit_gang(system, number)
    took = last_instruction(system, stamp) - began
    system.wait(job, "running")
    return {"all_ranks_ms": took, **where([entry.fact for entry in system.recorded()], job, int(began))}


def protected(system: System, number: int) -> dict[str, float]:
    """One gang over runs with contracts, of which the last ends some seconds after it was submitted."""
    for _ in range(WAVES):
        submit_victims(system, HOSTS // WAVES, seconds=CONTRACT_S)
    wait_for(system, "running", HOSTS)
    job, stamp, _ = submit_gang(system, number)
    last = last_instruction(system, stamp)
    system.wait(job, "running")
    facts = [entry.fact for entry in system.recorded()]
    victims = {fact.run for fact in facts if isinstance(fact, RunPreemptionRequested) and fact.by == job}
    expiry = max(fact.protected_until for fact in facts if isinstance(fact, RunStarted) and fact.run in victims)
    return {"all_ranks_ms": last - expiry, **where(facts, job, expiry)}


def summary(rounds: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Of each figure the median, and the slowest of what counts."""
    medians = {name: round(statistics.median(one[name] for one in rounds)) for name in rounds[0]}
    return {"slowest_ms": round(max(one["all_ranks_ms"] for one in rounds)), **medians}


def main() -> int:
    """Print the figures."""
    figures: dict[str, Any] = {"conditions": {"hosts": HOSTS, "gpus_per_host": GPUS, "rounds": ROUNDS}}
    with fresh_system() as system:
        for kind in (preemptible, protected):
            rounds = []
            for number in range(ROUNDS):
                rounds.append(kind(system, number if kind is preemptible else ROUNDS + number))
                clear(system)
            figures[kind.__name__] = summary(rounds)
    print(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
