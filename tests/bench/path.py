"""Figures of the whole path on one machine: `python -m tests.bench.path [NAME ...] --json`.

Each figure starts its own `tenure up` on a temporary directory (128 virtual hosts of 8 GPUs, embedded ClickHouse, the
log synced at every append) and drives it through gRPC as users do.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tenure.sdk.client import Client
from tenure.v1.jobs_pb2 import JobSpec
from tests.e2e.system import System, running

HOSTS = "128x8"
KNOBS = ("heartbeat=5s",)
FULL = 128


def percentiles(samples: Sequence[float]) -> dict[str, float]:
    """p50, p99 and the largest, in the unit of the samples."""
    ordered = sorted(samples)
    at = lambda share: ordered[min(len(ordered) - 1, int(share * len(ordered)))]  # noqa: E731
    return {"p50": round(at(0.5), 1), "p99": round(at(0.99), 1), "max": round(ordered[-1], 1), "n": len(ordered)}


def spec(budget: str, command: Sequence[str], *, gpus: int = 1, seconds: float = 900, replicas: int = 1) -> JobSpec:
    """A job as the benches submit it."""
    return JobSpec(
        budget=budget,
        user="bench",
        gpus_per_replica=gpus,
        replicas=replicas,
        min_runtime_ms=int(seconds * 1000),
        command=list(command),
    )


@contextmanager
def fresh_system() -> Iterator[System]:
    """A system of 1,024 virtual GPUs."""
    with (
        tempfile.TemporaryDirectory(prefix="tenure-bench-") as folder,
        running(Path(folder), hosts=HOSTS, knobs=KNOBS) as system,
    ):
        yield system


def first_instruction_ms(system: System, budget: str, folder: Path, number: int) -> float:
    """From the call of Submit to the first instruction of the process, by the one clock of this machine."""
    stamp = folder / f"stamp{number}"
    began = time.time_ns()
    system.client.submit(spec(budget, ["/bin/sh", "-c", f"date +%s%N > {stamp}.new; mv {stamp}.new {stamp}"], gpus=1))
    system.until(lambda: True if stamp.exists() else None, what="the job")
    return (int(stamp.read_text()) - began) / 1e6


def latency_idle() -> dict[str, object]:
    """Submit to first instruction on the idle cluster, 200 jobs one after another, in ms."""
    with fresh_system() as system:
        samples = [first_instruction_ms(system, "a", system.data, number) for number in range(200)]
    return {"submit_to_first_instruction_ms": percentiles(samples)}


def occupy(system: System) -> None:
    """Hold every GPU with protected work, so that nothing that is submitted starts."""
    system.client.submit_batch([spec("b", ["sleep", "3000"], gpus=8, seconds=3600)] * FULL)
    wait_for(system, "running", FULL)


def fill(system: System, count: int) -> None:
    """Fill every GPU, four hosts with unallocated work, the rest protected; queue `count` gangs too large for now."""
    system.client.submit_batch([spec("b", ["sleep", "3000"], gpus=8, seconds=3600) for _ in range(FULL - 4)])
    free = spec("c/x", ["sleep", "3000"], gpus=8, seconds=0)
    free.resumable = True
    system.client.submit_batch([free] * 4)
    wait_for(system, "running", FULL)
    for start in range(0, count, 5_000):
        numbers = range(start, min(count, start + 5_000))
        system.client.submit_batch([gang(number) for number in numbers])
    wait_for(system, "queued", count)


def gang(number: int) -> JobSpec:
    """One of twenty shapes of 5 to 14 hosts."""
    budget = "b" if number % 2 else "c/y"
    return spec(budget, ["true"], gpus=8, replicas=5 + number % 10, seconds=900 * (1 + number % 2))


def wait_for(system: System, state: str, count: int) -> None:
    """Until at least `count` jobs are in `state`."""
    system.until(
        lambda: True if system.client.jobs(limit=1).counts.get(state, 0) >= count else None,
        timeout_s=120,
        what=f"{count} {state}",
    )


def latency_queued() -> dict[str, object]:
    """The same for a debug job of the most under-served budget with 10,000 jobs pending; and GPUs left idle."""
    with fresh_system() as system:
        fill(system, 10_000)
        samples = []
        for number in range(60):
            samples.append(first_instruction_ms(system, "a", system.data, number))
        idle = idle_gpus(system.client)
        patience = time.monotonic() + 2
        while idle and time.monotonic() < patience:
            idle = idle_gpus(system.client)
    return {"submit_to_first_instruction_ms": percentiles(samples), "idle_gpus_that_a_queued_job_fits": idle}


def idle_gpus(client: Client) -> int:
    """GPUs that nothing holds although unallocated jobs that fit them are queued; 2 s after the last change."""
    return sum(host.gpus - host.gpus_held for host in client.hosts().hosts)


def true_jobs() -> dict[str, object]:
    """1,000 `true` jobs end to end, submitted in one batch: from the call to the last JobFinished."""
    with fresh_system() as system:
        began = time.monotonic()
        system.client.submit_batch([spec("a" if n % 2 else "b", ["true"], seconds=60) for n in range(1_000)])
        wait_for(system, "completed", 1_000)
        took = time.monotonic() - began
    return {"jobs_per_s": round(1_000 / took, 1), "seconds": round(took, 2)}


CALLER = """
import sys, time, threading
from tenure.sdk.client import Client
from tenure.v1.jobs_pb2 import JobSpec
address, threads, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
done = [0] * threads
def call(index):
    spec = JobSpec(budget="b", user=f"u{index}", gpus_per_replica=8, replicas=128, command=["true"])
    spec.min_runtime_ms = 900000
    with Client(address) as client:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            client.submit(spec)
            done[index] += 1
callers = [threading.Thread(target=call, args=(index,)) for index in range(threads)]
[caller.start() for caller in callers]; [caller.join() for caller in callers]
print(sum(done))
"""


def submit_rate(address: str, *, callers: int = 16, seconds: float = 8) -> float:
    """Accepted submissions a second of `callers` callers, from another process."""
    answer = subprocess.run(
        [sys.executable, "-c", CALLER, address, str(callers), str(seconds)],
        check=True,
        capture_output=True,
        text=True,
    )
    return round(int(answer.stdout) / seconds, 1)


def submissions() -> dict[str, object]:
    """Accepted (durable) submissions/s of 16 callers with none and 50,000 queued; batches of 10,000."""
    with fresh_system() as system:
        occupy(system)
        empty = submit_rate(system.address)
        batches = []
        for _ in range(5):
            jobs = [spec("b", ["true"], gpus=8, replicas=128) for _ in range(10_000)]
            began = time.monotonic()
            system.client.submit_batch(jobs)
            batches.append(round(time.monotonic() - began, 2))
            time.sleep(3)
        queued = system.client.jobs(limit=1).counts.get("queued", 0)
        full = submit_rate(system.address)
    return {"accepted_per_s": empty, "accepted_per_s_with_queued": full, "queued": queued, "batch_of_10000_s": batches}


def restart() -> dict[str, object]:
    """kill -9 of everything with 10,000 pending; from the start of `up` to the first answer and the first decision."""
    with fresh_system() as system:
        fill(system, 10_000)
        before = {job.job_id for job in system.client.jobs(limit=100_000).jobs}
        last = [system.client.submit(spec("b", ["true"], gpus=8, replicas=128)) for _ in range(300)]
        system.kill_everything()
        began = time.monotonic()
        answered: list[float] = []

        def watch() -> None:
            while not answered:
                try:
                    with Client(system.address, deadline_s=1) as client:
                        client.jobs(limit=1)
                        answered.append(time.monotonic() - began)
                except Exception:  # noqa: BLE001 (the server is not there yet)
                    time.sleep(0.01)

        watcher = threading.Thread(target=watch)
        (system.data / "endpoint.json").unlink()
        watcher.start()
        system.start()
        decided = first_instruction_ms(system, "a", system.data, 1)
        took = time.monotonic() - began
        watcher.join()
        after = {job.job_id for job in system.client.jobs(limit=100_000).jobs}
        recorded = system.check()
    return {
        "first_answer_s": round(answered[0], 2),
        "first_start_s": round(took, 2),
        "that_job_ms": round(decided, 1),
        "acknowledged_lost": len((before | set(last)) - after),
        "facts": len(recorded),
    }


FIGURES: dict[str, Callable[[], dict[str, object]]] = {
    "latency_idle": latency_idle,
    "latency_queued": latency_queued,
    "true_jobs": true_jobs,
    "submissions": submissions,
    "restart": restart,
}


def main() -> int:
    """Run the named figures (default: all) and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*FIGURES, []], help="default: all")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    arguments = parser.parse_args()
    results = {}
    for name in arguments.names or FIGURES:
        results[name] = FIGURES[name]()
        if not arguments.json:
            print(name, json.dumps(results[name]), flush=True)
    if arguments.json:
        print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
