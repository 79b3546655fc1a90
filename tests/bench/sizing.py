"""What a log takes on disk and on the wire: `python -m tests.bench.sizing` prints JSON. docs/sizing.md reckons with it.

Three logs go through the journal's own batches into the embedded ClickHouse, one after the other, each into empty
tables that are then merged: heartbeats of 1,000 hosts for some minutes, with runs and utilisation; the month of 256
GPUs that the dashboards are tested on, without its heartbeats; and the same month's occupancy as sums and samples.

Then the heartbeats of 1,000 hosts on a real nats-server, with all roles as processes, and after a while as many readers
of what agents read, on 50 connections: messages and bytes that the server takes in and gives out.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from clickhouse_connect.driver import Client

from services.agent.evolve import READS
from tenure.clickhouse.migrate import migrate
from tenure.domain.ids import BudgetPath, FactId, HostId, JobId, Position, RunId, UserName
from tenure.domain.units import MINUTE, SECOND, Millis
from tenure.events.fact import Recorded
from tenure.events.reports import Heartbeat, HostBeat, Segment
from tenure.log.access import Access
from tenure.log.jetstream import JetStreamLog
from tenure.log.link import Link
from tenure.runtime.nats_server import NatsServer
from tests.bench.heartbeats import SETTLE_S, beat_live
from tests.contract.dashboards.month import DAYS, GPUS_PER_HOST, load, month
from tests.contract.dashboards.month import HOSTS as MONTH_HOSTS
from tests.contract.own_clickhouse import Server, tables
from tests.e2e.roles import Roles
from tests.integration.faults.lab import free_ports

HOSTS, EVERY, T0 = 1_000, 5 * SECOND, 1_784_160_000_000
RUNS_OF_A_HOST = ((8,), (8,), (4, 4), (1, 1, 1, 1, 1, 1, 1, 1))
"""GPUs of the runs on every fourth host: half of the hosts have one run, the mean is three."""
CONNECTIONS = 50
SUMS = ("occupancy_hourly", "held_samples")
MACHINE = "9f3ac2d1.4be0"


def beats(minutes: int) -> Iterator[Recorded]:
    """Heartbeats of 1,000 hosts, in the order in which they come, each with the last five seconds of its runs."""
    chance, position = random.Random(11), 0
    for tick in range(minutes * MINUTE // EVERY):
        for number in range(HOSTS):
            position += 1
            at = T0 + tick * EVERY + number * EVERY // HOSTS + chance.randrange(40)
            yield Recorded(Position(position), _beat(number, at, chance))


def _beat(number: int, at: Millis, chance: random.Random) -> Heartbeat:
    host = HostId(f"gpu-{number:04d}")
    segments = [
        Segment(
            run=RunId(f"01K0AB{number:04d}{index:02d}NPQRSTVWXYZ012.1"),
            job=JobId(f"01K0AB{number:04d}{index:02d}NPQRSTVWXYZ012"),
            budget=BudgetPath(f"science/group{number % 15}"),
            user=UserName(f"user{number % 150}"),
            charged=number % 5 > 0,
            gpus=gpus,
            since=at - EVERY,
            until=at,
            busy_milli=chance.randrange(600, 1_000),
        )
        for index, gpus in enumerate(RUNS_OF_A_HOST[number % 4])
    ]
    beat = HostBeat(host=host, gpus=8, runs=tuple(held.run for held in segments), segments=tuple(segments))
    said = FactId(f"{host}-beat-{at}-0")
    return Heartbeat(at=at, id=said, cluster="lab", agent=host, hosts=(beat,), machine=MACHINE)


def measure_tables(minutes: int) -> dict[str, Any]:
    """Rows and bytes on disk of each table, merged, after each of the logs."""
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as folder:
        server = Server(data=Path(folder))
        server.start()
        try:
            client = server.client()
            migrate(client)
            began = time.monotonic()
            load(client, beats(minutes))
            took, of_beats = time.monotonic() - began, _on_disk(client)
            _empty(client)
            facts = [each for each in month().recorded if not isinstance(each.fact, Heartbeat)]
            load(client, facts)
            of_facts = _on_disk(client)
            _empty(client)
            load(client, month().recorded)
            sums = {name: each for name, each in _on_disk(client).items() if name.startswith(SUMS)}
        finally:
            server.kill()
    rate = {"facts_written_per_s": round(minutes * 12_000 / took)}
    return {"heartbeats": {**rate, **of_beats}, "facts": of_facts, "sums": sums}


def _empty(client: Client) -> None:
    for table in tables(client):
        client.command(f"TRUNCATE TABLE {table}")


def _on_disk(client: Client) -> dict[str, float]:
    """Each table that has rows, its parts merged into one a month."""
    for table in tables(client):
        client.command(f"OPTIMIZE TABLE {table} FINAL")
    query = """
        SELECT table, sum(rows), sum(bytes_on_disk), sum(data_uncompressed_bytes) FROM system.parts
        WHERE active AND database = {database:String} AND rows > 0 GROUP BY table ORDER BY table"""
    found: dict[str, float] = {}
    for table, rows, size, raw in client.query(query, {"database": client.database}).result_rows:
        if table not in ("journal_log", "migrations"):
            each = {"rows": rows, "bytes_a_row": round(size / rows, 1), "raw_a_row": round(raw / rows, 1)}
            found |= {f"{table}_{name}": value for name, value in each.items()}
    return found


def measure_messages(seconds: float) -> dict[str, float]:
    """Messages and bytes a second at the server, and what a heartbeat takes in the log."""
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as folder:
        nats = NatsServer(Path(folder) / "nats", also=f'http: "127.0.0.1:{port}"\n')
        with Roles(Path(folder), knobs=(), nats=nats) as roles:
            roles.start_deciders()
            roles.client()
            return asyncio.run(_messages(nats.url, port, seconds))


async def _messages(url: str, port: int, seconds: float) -> dict[str, float]:
    """The readers begin when all hosts are registered: each of them reads of all hosts that register."""
    readers, loop = (
        [await JetStreamLog.connect(url, cluster="tenure") for _ in range(CONNECTIONS)],
        asyncio.get_running_loop(),
    )

    async def begin() -> list[asyncio.Task[None]]:
        head = await readers[0].head()
        feeds = [await readers[number % CONNECTIONS].follow(READS, after=head) for number in range(HOSTS)]
        return [asyncio.create_task(_read(feed)) for feed in feeds]

    def measured() -> dict[str, float]:
        alone = _rates(port, seconds / 2)
        reading = asyncio.run_coroutine_threadsafe(begin(), loop).result()
        time.sleep(SETTLE_S)
        with_readers = _rates(port, seconds)
        for each in reading:
            loop.call_soon_threadsafe(each.cancel)
        told = {f"{name}_with_agents": value for name, value in with_readers.items()}
        return {f"{name}_without_agents": value for name, value in alone.items()} | told

    rates = await beat_live(url, measured, 1.5 * seconds + SETTLE_S)
    del rates["beats_per_s"]  # of a stretch that is not known so exactly
    link = await Link.open(Access(url=url), patience_s=5)
    state = (await link.api("STREAM.INFO.tenure-tenure", timeout_s=10))["state"]
    await link.close()
    for log in readers:
        await log.close()
    stored = {"messages": state["messages"], "bytes_a_message": round(state["bytes"] / state["messages"])}
    return {name: round(value) for name, value in rates.items()} | {
        f"stored_{name}": each for name, each in stored.items()
    }


async def _read(feed: Any) -> None:
    while True:
        await feed.next(None)


def _rates(port: int, seconds: float) -> dict[str, float]:
    before, began = _varz(port), time.monotonic()
    time.sleep(seconds)
    after, took = _varz(port), time.monotonic() - began
    names = ("in_msgs", "out_msgs", "in_bytes", "out_bytes")
    return {f"{name}_per_s": (after[name] - before[name]) / took for name in names} | {"server_bytes": after["mem"]}


def _varz(port: int) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/varz", timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.sizing", description="What a log takes.")
    parser.add_argument("--minutes", type=int, default=12, help="of heartbeats in the tables; 0: none of this")
    parser.add_argument("--live", type=float, default=30, metavar="SECONDS", help="on a real server; 0: not at all")
    asked = parser.parse_args(arguments)
    month_of = {"month_gpus": MONTH_HOSTS * GPUS_PER_HOST, "month_days": DAYS}
    conditions = {"hosts": HOSTS, "heartbeat_ms": EVERY, "minutes": asked.minutes, **month_of, "live_s": asked.live}
    figures: dict[str, Any] = {"conditions": conditions}
    if asked.minutes:
        figures |= measure_tables(asked.minutes)
    if asked.live:
        figures["messages"] = measure_messages(asked.live)
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
