"""The demo's plot: which job comes when, and what must be true of it in the end."""

import sys
from dataclasses import dataclass
from pathlib import Path

from tenure.v1.jobs_pb2 import JobSpec

SCRIPTS = Path(__file__).parent / "scripts"
SECOND = 1_000
KNOBS = (
    "lookback=10m",
    "min_runtime_cap=60s",
    "heartbeat=1s",
    "suspect_after=10s",
    "lost_after=60s",
    "escrow_slack=5s",
)
"""Contracts of seconds instead of hours: the same code under another configuration."""
SWEEP_POINTS = 72


@dataclass(frozen=True, kw_only=True)
class Cue:
    """A submission of the plot: `count` jobs like `spec` at `at_s` seconds."""

    at_s: float
    says: str
    specs: tuple[JobSpec, ...]


def python(script: str, *words: str) -> list[str]:
    """A command that runs one of the example scripts."""
    return [sys.executable, str(SCRIPTS / script), *words]


def plot() -> tuple[Cue, ...]:
    """The submissions in order of time."""
    sweep = tuple(
        JobSpec(
            budget="robotics",
            user="cy",
            name=f"sweep-{point:02}",
            replicas=1,
            gpus_per_replica=1,
            resumable=True,
            command=["/bin/sh", str(SCRIPTS / "sweep.sh"), str(point), "14"],
        )
        for point in range(SWEEP_POINTS)
    )
    counter = JobSpec(
        budget="vision",
        user="bo",
        name="counter",
        replicas=4,
        gpus_per_replica=8,
        min_runtime_ms=15 * SECOND,
        resumable=True,
        command=python("counter.py", "300"),
    )
    gang = JobSpec(
        budget="language/pretraining",
        user="ana",
        name="gang",
        replicas=6,
        gpus_per_replica=8,
        min_runtime_ms=12 * SECOND,
        command=python("rendezvous.py", "15"),
    )
    debug = JobSpec(
        budget="language/alignment",
        user="dee",
        name="debug",
        replicas=1,
        gpus_per_replica=2,
        min_runtime_ms=5 * SECOND,
        command=["/bin/sh", str(SCRIPTS / "debug.sh")],
    )
    crash = JobSpec(
        budget="robotics",
        user="cy",
        name="crash",
        replicas=1,
        gpus_per_replica=1,
        min_runtime_ms=5 * SECOND,
        command=["/bin/sh", str(SCRIPTS / "crash.sh")],
    )
    return (
        Cue(at_s=0, says=f"robotics sweeps {SWEEP_POINTS} points, unallocated: free while GPUs are idle", specs=sweep),
        Cue(at_s=4, says="vision starts a resumable gang of 4 x 8 under a contract of 15 s", specs=(counter,)),
        Cue(at_s=8, says="alignment debugs on 2 GPUs", specs=(debug,)),
        Cue(at_s=10, says="robotics submits a job that crashes", specs=(crash,)),
        Cue(at_s=12, says="pretraining wants 6 x 8: more than is free before vision's contract ends", specs=(gang,)),
    )
