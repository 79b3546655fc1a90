"""Submissions for ten minutes, and ten times too many: `python -m tests.bench.load [--seconds N] [--rate N]`.

One `tenure up` with 16 virtual hosts of 8 GPUs; half of them are held by real jobs that are protected all the time. A
process of its own submits at a steady rate, whether answers come or not, and cancels what has waited longest so that
`BACKLOG` jobs wait; one in ten of the jobs runs, as a real process. Then one user submits at ten times the rate.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psutil

from tenure.domain.ids import LOG_START
from tenure.events.budgets import JobRejected
from tenure.events.intake import JobSubmitted
from tenure.events.placing import JobFinished, RunAssigned
from tenure.log.access import Access
from tenure.log.jetstream import JetStreamLog
from tenure.runtime.data_dir import DataDir
from tenure.runtime.reader import reader_access
from tenure.sdk.client import Client
from tenure.sdk.errors import ServerError
from tenure.v1.jobs_pb2 import JobSpec
from tests.e2e.system import System, is_running, running

RATE, SECONDS = 200, 600
OVER, OVER_SECONDS = 10, 30
BACKLOG = 500
HOSTS, HELD = "16x8", 64
GONE, THREADS = 20_000, 8
KNOBS = ("heartbeat=5s", "submissions_per_user=3000")
"""One user may submit 300 a second for long."""
MANY, ONE = ",".join(f"u{number}" for number in range(20)), "flood"
FIRST_S = 60.0
"""Memory is compared with what it was after so long."""
SAMPLE_S = 2.0
CALLERS = 4
Caller = subprocess.Popen[str]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("steady", "overload"), help="default: both, each with a system of its own")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="of the steady rate")
    parser.add_argument("--rate", type=int, default=RATE, help="submissions a second")
    arguments = parser.parse_args()
    figures: dict[str, object] = {}
    if arguments.only != "overload":
        figures["steady"] = measured(partial(steady, rate=arguments.rate, seconds=arguments.seconds))
    if arguments.only != "steady":
        figures["overload"] = measured(partial(overloaded, rate=arguments.rate * OVER))
    figures["conditions"] = {"hosts": HOSTS, "rate": arguments.rate, "seconds": arguments.seconds}
    print(json.dumps(figures))
    return 0


Load = Callable[[ExitStack, System, Sequence[Path]], dict[str, object]]
"""What one load measures: given what ends with it, a system, and files for what callers were told."""


def measured(load: Load) -> dict[str, object]:
    """A load on a system that is half full, and what was left of it."""
    with (
        tempfile.TemporaryDirectory(prefix="tenure-load-") as folder,
        running(Path(folder), hosts=HOSTS, knobs=KNOBS) as system,
        ExitStack() as stack,
    ):
        held, before = hold(system, Path(folder)), system.children()
        told = [Path(folder) / f"acknowledged{number}" for number in range(CALLERS)]
        figures = load(stack, system, told)
        print(json.dumps(figures), file=sys.stderr, flush=True)
        left = asyncio.run(counted(*log_of(system), [file for file in told if file.exists()]))
        died = sum(system.children().get(name) != pid for name, pid in before.items())
        return {**figures, **left, **untouched(system, held), "processes_that_died": died}


def steady(stack: ExitStack, system: System, told: Sequence[Path], *, rate: int, seconds: int) -> dict[str, object]:
    """Many users at a steady rate, and the memory of every process meanwhile."""
    fill_memories(system)
    memory: dict[str, list[float]] = {}
    caller = calling(stack, system, told[0], rate=rate, seconds=seconds, users=MANY)
    sample(system, memory, caller)
    answers = json.loads(caller.communicate()[0])
    return {**answers, "memory_growth_percent": growth(memory), "memory_mib_after_a_minute": first(memory)}


def hold(system: System, folder: Path) -> dict[str, int]:
    """Start the protected jobs. Returns the pid of each one's process."""
    pids = folder / "pids"
    pids.mkdir()
    command = ["/bin/sh", "-c", 'echo $$ > "$0/$TENURE_JOB_ID"; exec sleep 100000', str(pids)]
    spec = JobSpec(
        budget="b", user="held", gpus_per_replica=1, replicas=1, min_runtime_ms=8 * 3_600_000, command=command
    )
    jobs = system.client.submit_batch([spec] * HELD)

    def all_there() -> dict[str, int] | None:
        found = {path.name: path.read_text().strip() for path in pids.iterdir()}
        return {job: int(found[job]) for job in jobs} if all(found.get(job) for job in jobs) else None

    return system.until(all_there, what="held jobs", timeout_s=120)


def fill_memories(system: System) -> None:
    """Let `GONE` jobs come and go: the system is as one that has worked for a while, not as one just started.

    So many jobs that are over the gateway keeps, and the log's server knows the ids of the last minutes.
    """
    spec = JobSpec(budget="a", user="before", gpus_per_replica=8, replicas=16, command=["true"], min_runtime_ms=900_000)
    jobs = [job for _ in range(GONE // 10_000) for job in system.client.submit_batch([spec] * 10_000)]

    def cancel(some: Sequence[str]) -> None:
        with Client(system.address, deadline_s=120) as client:
            for job in some:
                client.cancel(job, user="before")

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(cancel, [jobs[number::THREADS] for number in range(THREADS)]))


def calling(stack: ExitStack, system: System, told: Path, *, rate: int, seconds: int, users: str) -> Caller:
    """A process that submits; ended with the block of `stack` if it is still there."""
    arguments = [system.address, str(rate), str(seconds), str(BACKLOG), users, str(told), "16", ""]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.caller", *arguments], stdout=subprocess.PIPE, text=True
    )
    stack.callback(process.kill)
    return process


def sample(system: System, memory: dict[str, list[float]], process: Caller) -> None:
    """Note the memory of every process of the system, until the caller has ended."""
    while process.poll() is None:
        time.sleep(SAMPLE_S)
        for name, pid in system.children().items():
            try:
                memory.setdefault(name, []).append(psutil.Process(pid).memory_info().rss / 2**20)
            except psutil.NoSuchProcess:
                continue


def first(memory: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """What each process had after the first minute, in MiB, and all together."""
    at = max(0, min(int(FIRST_S / SAMPLE_S), *(len(samples) for samples in memory.values())) - 1)
    found = {name: round(samples[at], 1) for name, samples in sorted(memory.items())}
    return {**found, "all": round(sum(found.values()), 1)}


def growth(memory: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """By how much each one's memory grew from then to the end, in percent; and that of all together."""
    then = first(memory)
    now = {name: samples[-1] for name, samples in memory.items()}
    now["all"] = sum(now.values())
    return {name: round(100 * (now[name] / then[name] - 1), 1) for name in then}


def overloaded(stack: ExitStack, system: System, told: Sequence[Path], *, rate: int) -> dict[str, object]:
    """One user submits at this rate by several callers; meanwhile somebody else does, one job after another."""
    share = rate // len(told)
    callers = [calling(stack, system, file, rate=share, seconds=OVER_SECONDS, users=ONE) for file in told]
    waits: list[float] = []
    turned_away = 0
    while any(caller.poll() is None for caller in callers):
        began = time.monotonic()
        try:
            system.client.submit(JobSpec(budget="c/x", user="else", gpus_per_replica=1, replicas=1, command=["true"]))
        except ServerError as error:
            turned_away += 1
            print(f"somebody else: {error}", file=sys.stderr, flush=True)
        waits.append(1000 * (time.monotonic() - began))
        time.sleep(0.5)
    answers = [json.loads(caller.communicate()[0]) for caller in callers]
    refused: Counter[str] = Counter()
    for answer in answers:
        refused.update(answer["refused"])
    began = time.monotonic()
    system.client.jobs(limit=1)
    return {
        "offered": sum(answer["offered"] for answer in answers),
        "acknowledged": sum(answer["acknowledged"] for answer in answers),
        "refused": dict(refused),
        "somebody_else": len(waits),
        "somebody_else_turned_away": turned_away,
        "somebody_else_waits_ms": {"p50": round(sorted(waits)[len(waits) // 2], 1), "max": round(max(waits), 1)},
        "an_answer_afterwards_ms": round(1000 * (time.monotonic() - began), 1),
    }


def log_of(system: System) -> tuple[Access, str]:
    """How its log is read, and its name."""
    endpoint = DataDir(system.data).endpoint()
    assert endpoint is not None, "it is running"
    return reader_access(endpoint), endpoint.cluster


async def counted(access: str | Access, cluster: str, told: Sequence[Path]) -> dict[str, int]:
    """What the log has of what was acknowledged, when all of it is over."""
    log = await JetStreamLog.connect(access, cluster=cluster)
    acknowledged = {job for path in told for job in path.read_text().split()}
    submitted: Counter[str] = Counter()
    keys: Counter[str] = Counter()
    over: Counter[str] = Counter()
    runs: Counter[str] = Counter()
    feed = await log.follow((JobSubmitted, JobRejected, JobFinished, RunAssigned), after=LOG_START)
    try:
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and (len(submitted) < len(acknowledged) or acknowledged - over.keys()):
            for recorded in await feed.next(5.0):
                fact = recorded.fact
                if isinstance(fact, JobSubmitted):
                    submitted[fact.job] += 1
                    keys[f"{fact.spec.user}/{fact.idempotency_key or fact.job}/{fact.job if fact.batch else ''}"] += 1
                elif isinstance(fact, JobRejected | JobFinished):
                    over[fact.job] += 1
                elif isinstance(fact, RunAssigned):
                    runs[fact.run] += 1
    finally:
        await feed.close()
        await log.close()
    return {
        "acknowledged": len(acknowledged),
        "acknowledged_lost": len(acknowledged - submitted.keys()),
        "never_ended": len(acknowledged - over.keys()),
        "doubled": sum(times > 1 for counts in (submitted, keys, over, runs) for times in counts.values()),
        "runs": len(runs),
    }


def untouched(system: System, held: Mapping[str, int]) -> dict[str, int]:
    """How many of the jobs that ran all the while are still there, in their first run, as the same process."""
    jobs = [system.client.job(job) for job in held]
    same = [job for job in jobs if job.state == "running" and len(job.runs) == 1 and is_running(held[job.job_id])]
    return {"held_jobs": len(held), "held_jobs_untouched": len(same)}


if __name__ == "__main__":
    sys.exit(main())
