"""Figures of the log on a real nats-server: `python -m tests.bench.log [--json]`, for both sync settings in one run.

Writer and reader share one process and the machine with the server, so the figures are lower bounds. Quote ratios: the
clock of a shared machine is noisy. `disk_fsync_ms` is the yardstick of the disk in the same run.
"""

import argparse
import asyncio
import itertools
import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from tenure.domain.ids import LOG_START, BudgetPath, FactId, JobId, UserName
from tenure.domain.job import JobSpec, Launch
from tenure.domain.reasons import JobState, Reason, Why
from tenure.events.catalogue import KINDS
from tenure.events.fact import Fact, Lane
from tenure.events.intake import JobSubmitted
from tenure.events.placing import JobFinished
from tenure.log.jetstream import JetStreamLog
from tenure.log.port import Expect
from tenure.runtime.nats_server import NatsServer, Sync, find_nats_server

REPLAYED = 100_000
Figures = dict[str, float]


def percentile(values: Sequence[float], part: float) -> float:
    """The value below which `part` of the values lie."""
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


class Maker:
    """Facts of the size of a real submission, each with another id."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def submitted(self) -> Fact:
        number = next(self._numbers)
        return JobSubmitted(
            at=1_764_450_000_000 + number,
            id=FactId(f"bench-{number}"),
            cluster="bench",
            job=JobId(f"chem-{number}"),
            spec=JobSpec(
                budget=BudgetPath("science/chem"),
                user=UserName("ana"),
                launch=Launch(command=("python", "train.py", "--lr", "0.001", "--config", "configs/large.yaml")),
                replicas=4,
                gpus_per_replica=8,
                min_runtime_ms=900_000,
            ),
        )

    def finished(self) -> Fact:
        number = next(self._numbers)
        why = Why(rule="P10", reason=Reason.END_COMPLETED, numbers={"exit_code": 0})
        return JobFinished(
            at=number, id=FactId(f"bench-{number}"), job=JobId(f"chem-{number}"), state=JobState.COMPLETED, why=why
        )


async def appends_per_s(log: JetStreamLog, maker: Maker, *, callers: int, total: int) -> float:
    """Single facts from so many callers at once, each waiting for its acknowledgement before the next."""

    async def call() -> None:
        for _ in range(total // callers):
            await log.append([maker.submitted()])

    began = time.perf_counter()
    await asyncio.gather(*(call() for _ in range(callers)))
    return total / (time.perf_counter() - began)


async def atomic_figures(log: JetStreamLog, maker: Maker) -> Figures:
    """What a role pays for a decision: a conditional append of three facts; and whole batches of 1,000."""
    times = []
    last = LOG_START
    for _ in range(100):
        facts = [maker.finished() for _ in range(3)]
        began = time.perf_counter()
        last = (await log.append(facts, expect=Expect(lane=Lane.PLACE, last=last))).last
        times.append(time.perf_counter() - began)
    began = time.perf_counter()
    for _ in range(20):
        await log.append([maker.submitted() for _ in range(1_000)])
    return {
        "decision_of_3_p50_ms": percentile(times, 0.5) * 1e3,
        "decision_of_3_p99_ms": percentile(times, 0.99) * 1e3,
        "atomic_1000_per_s": 20_000 / (time.perf_counter() - began),
    }


async def delivery_figures(log: JetStreamLog, maker: Maker) -> Figures:
    """From before the append to the fact in a follower's hands, at low load."""
    feed = await log.follow([JobSubmitted], after=await log.head())
    to_ack, to_reader = [], []
    for _ in range(400):
        reading = asyncio.create_task(feed.next(None))
        await asyncio.sleep(0.002)
        began = time.perf_counter()
        appending = asyncio.create_task(log.append([maker.submitted()]))
        await reading
        to_reader.append(time.perf_counter() - began)
        await appending
        to_ack.append(time.perf_counter() - began)
    await feed.close()
    return {
        "append_to_ack_p50_ms": percentile(to_ack, 0.5) * 1e3,
        "append_to_ack_p99_ms": percentile(to_ack, 0.99) * 1e3,
        "append_to_delivery_p50_ms": percentile(to_reader, 0.5) * 1e3,
        "append_to_delivery_p99_ms": percentile(to_reader, 0.99) * 1e3,
    }


async def replays_per_s(log: JetStreamLog, maker: Maker) -> float:
    """Facts delivered and decoded from the beginning of the log, all kinds asked for."""
    while (missing := REPLAYED - await log.head()) > 0:
        await log.append([maker.submitted() for _ in range(min(missing, 10_000))])
    head = await log.head()
    feed = await log.follow(tuple(KINDS.values()), after=LOG_START)
    began = time.perf_counter()
    count = 0
    while feed.passed < head:
        count += len(await feed.next(30.0))
    took = time.perf_counter() - began
    await feed.close()
    assert count == head
    return count / took


async def measure(url: str) -> Figures:
    """All figures of one server."""
    log = await JetStreamLog.connect(url, cluster="bench")
    maker = Maker()
    try:
        figures: Figures = {}
        for callers, total in ((1, 600), (16, 4_800), (256, 25_600)):
            figures[f"append_{callers}_callers_per_s"] = await appends_per_s(log, maker, callers=callers, total=total)
        figures |= await atomic_figures(log, maker)
        figures |= await delivery_figures(log, maker)
        figures["replay_per_s"] = await replays_per_s(log, maker)
        return figures
    finally:
        await log.close()


def fsync_ms(folder: Path) -> float:
    """Median time of an append of 512 bytes and its sync on the disk of `folder`."""
    times = []
    with (folder / "yardstick").open("wb") as file:
        for _ in range(200):
            began = time.perf_counter()
            file.write(b"x" * 512)
            file.flush()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - began)
    return percentile(times, 0.5) * 1e3


def run(*, folder: Path) -> dict[str, object]:
    """Measure both sync settings and return conditions and figures."""
    version = subprocess.run([find_nats_server(), "--version"], capture_output=True, text=True, check=True).stdout
    result: dict[str, object] = {
        "conditions": {
            "cores": os.cpu_count(),
            "load_1m_before": round(os.getloadavg()[0], 2),
            "python": platform.python_version(),
            "server": version.strip(),
            "disk_fsync_ms": round(fsync_ms(folder), 3),
        }
    }
    settings: tuple[Sync, ...] = ("always", "default")
    for sync in settings:
        server = NatsServer(folder / sync, sync=sync)
        server.start()
        try:
            figures = uvloop.run(measure(server.url))
        finally:
            server.stop()
        result[f"sync_{sync}"] = {name: round(value, 3 if value < 100 else None) for name, value in figures.items()}
    return result


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Figures of the log on a real nats-server.")
    parser.add_argument("--json", action="store_true", help="one JSON object and nothing else")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tenure-bench-log-") as folder:
        result = run(folder=Path(folder))
    print(json.dumps(result) if given.json else json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
