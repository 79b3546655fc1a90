"""What-ifs on the log: how near a replay comes to a live system, and what a month of 1,024 GPUs takes. JSON on stdout.

    live     `tenure up` with 8 hosts of 8 virtual GPUs, on which 800 jobs of 3 to 20 s come in within two and a half
             minutes, twice what it has, five in six with contracts. Then `tenure simulate --from-log`: mean wait and
             delivered GPU-time of the replay against what really happened
    months   of the contended month (in the folder `shared` beside the project) the log that its simulation writes,
             then `tenure simulate --from-log FILE --since 30d --budgets NEW`, from the call to the report: reading, the
             replay under the new shares, beside it the unchanged one, the comparison

`python -m tests.bench.what_if --only live` measures one part.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tenure.runtime.yaml_file import load_yaml
from tenure.v1.jobs_pb2 import JobSpec
from tests.e2e.system import TENURE, System, running

ROOT = Path(__file__).parents[2]
MONTHS = ("contended-month",)
HOSTS, GPUS = 8, 8
KNOBS = ("heartbeat=2s", "suspect_after=30s", "lost_after=90s", "lookback=10m", "min_runtime_cap=60s")
JOBS, OVER_S, SEED = 800, 150.0, 1
BUDGETS = ("a", "b", "c/x", "c/y")
LIMIT_S = 600
OUTPUT = "json"
"""Put together below: a module that names the whole option is given it by `make bench`."""
Figures = dict[str, Any]


def live() -> Figures:
    """A live system against its replay."""
    with (
        tempfile.TemporaryDirectory(prefix="tenure-bench-") as folder,
        running(Path(folder), hosts=f"{HOSTS}x{GPUS}", knobs=KNOBS) as system,
    ):
        submit_all(system)
        alive = ("submitted", "queued", "starting", "running", "stopping")
        system.until(
            lambda: not system.client.jobs(states=alive, limit=1).jobs or None, timeout_s=LIMIT_S, what="the last job"
        )
        environment = {**os.environ, "TENURE_SERVER": system.address}
        report = simulated("--set", "restart_overhead=0", environment=environment)
    (user,) = report["what_if"]["users"]
    real, again = user["really"], user["after"]
    budgets = report["what_if"]["budgets"]
    return {
        "jobs": real["jobs"],
        "mean_wait_live_s": real["wait_mean_s"],
        "mean_wait_replayed_s": again["wait_mean_s"],
        "mean_wait_off_percent": off(real["wait_mean_s"], again["wait_mean_s"]),
        "delivered_live_gpu_hours": real["delivered_gpu_hours"],
        "delivered_replayed_gpu_hours": again["delivered_gpu_hours"],
        "delivered_off_percent": off(real["delivered_gpu_hours"], again["delivered_gpu_hours"]),
        "worst_budget_delivered_off_percent": max(
            off(one["really"]["delivered_gpu_hours"], one["after"]["delivered_gpu_hours"])
            for one in budgets
            if one["really"]["delivered_gpu_hours"]
        ),
        "preemptions_live": real["preemptions"],
        "preemptions_replayed": again["preemptions"],
    }


def submit_all(system: System) -> None:
    """Every job at its time."""
    chance = random.Random(SEED)
    began = time.monotonic()
    for number in range(JOBS):
        seconds = round(chance.choice([5, 10, 20]) * chance.uniform(0.6, 1.0), 2)
        spec = JobSpec(
            budget=chance.choice(BUDGETS),
            user="bench",
            gpus_per_replica=chance.choice([1, 1, 2, 4]),
            replicas=chance.choice([1, 1, 1, 2]),
            min_runtime_ms=chance.choice([0, 35_000, 35_000, 35_000, 35_000, 35_000]),
            resumable=True,
            command=["sleep", str(seconds)],
        )
        due = began + number * OVER_S / JOBS
        while (left := due - time.monotonic()) > 0:
            time.sleep(left)
        system.client.submit(spec)


def months(shared: Path) -> Figures:
    """What a month takes, by month; none without the folder."""
    found: Figures = {}
    for month in MONTHS:
        folder = shared / "scenarios" / month
        if folder.is_dir():
            found[month] = of_month(folder)
        else:
            print(f"{month} is not there: {folder}", file=sys.stderr)
    return found


def of_month(folder: Path) -> Figures:
    """One month, whose log is made first."""
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as made:
        log, tree = Path(made) / "events.jsonl.gz", Path(made) / "new.yaml"
        files = ("--cluster", "cluster.yaml", "--budgets", "budgets.yaml", "--trace", "trace.csv.gz")
        timed([*files, "--log", str(log)], folder=folder)
        tree.write_text(json.dumps(turned(load_yaml(folder / "budgets.yaml"))))
        before = processor_s()
        took, report = timed(["--from-log", str(log), "--since", "30d", "--budgets", str(tree)], folder=folder)
        what_if = report["what_if"]
        return {
            "days": 30,
            "gpus": report["gpus"],
            "jobs": report["jobs"],
            "what_if_s": took,
            "what_if_processor_s": round(processor_s() - before, 1),
            "gpu_hours_moved": sum(abs(gain["delivered_change_gpu_hours"]) for gain in what_if["budgets"]) / 2,
        }


def processor_s() -> float:
    """What the children that have ended took of processors, their own children's included."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def turned(document: Any) -> dict[str, Any]:
    """The tree with the shares at its top in the opposite order."""
    budgets = document["budgets"]
    shares = [budget["share"] for budget in budgets.values()]
    for budget, share in zip(budgets.values(), reversed(shares), strict=True):
        budget["share"] = share
    return document


def timed(options: Sequence[str], *, folder: Path) -> tuple[float, dict[str, Any]]:
    """Seconds from the call of `tenure simulate` to its end, and the report."""
    began = time.monotonic()
    report = simulated(*options, folder=folder)
    return round(time.monotonic() - began, 1), report


def simulated(*options: str, folder: Path | None = None, environment: dict[str, str] | None = None) -> dict[str, Any]:
    """The report of `tenure simulate` with these options; of the running system unless files are named."""
    command = [str(TENURE), "simulate", f"--{OUTPUT}", *(("--from-log",) if folder is None else ()), *options]
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=LIMIT_S
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def off(real: float, again: float) -> float:
    """By how many percent the second differs from the first."""
    return abs(again - real) / real * 100


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.what_if")
    parts: dict[str, Callable[[Path], Figures]] = {"live": lambda _: {"live": live()}, "months": months}
    parser.add_argument("--only", choices=parts)
    parser.add_argument("--shared", type=Path, default=ROOT / "shared")
    given = parser.parse_args()
    figures: Figures = {"conditions": {"load_average_before": round(os.getloadavg()[0], 2)}}
    for name, part in parts.items():
        if given.only in (None, name):
            figures |= part(given.shared)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
