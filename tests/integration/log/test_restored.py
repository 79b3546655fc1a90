"""When everything else is lost: the log from ClickHouse alone, ClickHouse from the log alone; every role is as before.

A simulated lab's log is written to a real nats-server, with things between the facts that are none, and copied by the
journal to a real engine. Then one of the two is taken away.
"""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import nats
import pytest
from clickhouse_connect.driver import Client

from services.agent import decider as agent
from services.gateway.shell import ROLE as GATEWAY
from services.journal.journal import Journal
from simulator.world import fair
from tenure.clickhouse.story import export, log_identity, visible_position
from tenure.domain.ids import Position
from tenure.domain.units import DAY
from tenure.events.fact import Recorded
from tenure.events.reports import Heartbeat
from tenure.export.jsonl import lines
from tenure.log.access import Access
from tenure.log.jetstream import JetStreamLog
from tenure.log.link import Link
from tenure.log.port import Unavailable
from tenure.log.restore import family, restore
from tenure.log.subjects import Subjects
from tenure.runtime.cluster_file import parse_hosts
from tenure.runtime.nats_server import NatsServer
from tenure.runtime.options import build_policy
from tenure.runtime.role import Role
from tests.contract.conftest import nats_server
from tests.contract.log_facts import heartbeat, intake
from tests.contract.own_clickhouse import Server, clickhouse, client
from tests.contract.test_journal import until
from tests.contract.test_log import read_all
from tests.scenario.script import script_to_world

__all__ = ["clickhouse", "client", "nats_server"]

TREE = {"a": {"share": 60}, "b": {"share": 40}}
SCRIPT: dict[str, Any] = {
    "given": {"hosts": "3x8", "budgets": TREE, "policy": {"heartbeat": "30s", "suspect_after": "2m"}},
    "when": [
        {"at": "1m", "submit": "j1", "budget": "a", "gpus": 8, "replicas": 2, "min_runtime": "20m", "runs_for": "1h"},
        {
            "at": "2m",
            "submit": "j2",
            "budget": "b",
            "gpus": 8,
            "min_runtime": "10m",
            "runs_for": "2h",
            "resumable": True,
        },
        {"at": "3m", "submit": "j3", "budget": "b", "gpus": 4, "min_runtime": "0", "runs_for": "3h"},
        {"at": "20m", "submit": "j4", "budget": "a", "gpus": 8, "replicas": 3, "min_runtime": "30m", "runs_for": "1h"},
        {"at": "30m", "drain": "h002"},
        {"at": "50m", "resume": "h002"},
        {"at": "55m", "cancel": "j3"},
        {"at": "70m", "silence": "h001"},
    ],
    "until": "75m",
}
POLICY = build_policy(SCRIPT["given"]["policy"])
ENDS_AT = 75 * 60_000
ROOM = 64 << 20
"""A log without a limit of its own takes half of what its server has left, and this one serves many tests."""


async def write(server: NatsServer, cluster: str) -> list[Recorded]:
    """The lab's log on a server, with poison in it. Returns what its readers read."""
    world = script_to_world(SCRIPT)
    facts = [entry.fact for entry in world.recorded]
    log = await JetStreamLog.connect(server.url, cluster=cluster, max_bytes=ROOM)
    poison = await nats.connect(server.url)
    for start in range(0, len(facts), 100):
        await log.append(facts[start : start + 100])
        await poison.request(f"tenure.{cluster}.report.~.Heartbeat", b"{", timeout=5)
        await poison.request(f"tenure.{cluster}.nobody", b"x", timeout=5)
    await log.append([intake(1)])
    read = await read_all(log)
    await poison.close()
    await log.close()
    assert len(read) == len(facts) + 1
    assert read[-1].position >= len(read) + 10
    return read


async def copy(server: NatsServer, cluster: str, clickhouse: Server, folder: Path, *, upto: Position) -> None:
    """Let the journal copy the log."""
    log, stop = await JetStreamLog.connect(server.url, cluster=cluster), asyncio.Event()
    journal = Journal(log, clickhouse.client, progress_file=folder / "progress.json")
    running = asyncio.create_task(journal.run(stop))
    await until(lambda: journal.position >= upto, doing=running)
    stop.set()
    await running
    await log.close()


async def read_log(server: NatsServer, cluster: str) -> list[Recorded]:
    log = await JetStreamLog.connect(server.url, cluster=cluster)
    try:
        return await read_all(log)
    finally:
        await log.close()


def roles() -> list[Role[Any]]:
    hosts = parse_hosts("3x8")
    return [*fair(POLICY), GATEWAY, agent.role(POLICY, agent="agent", hosts=hosts)]


def standing(recorded: Sequence[Recorded]) -> list[tuple[str, bytes, bytes]]:
    """Of each role its state and its next decision after folding these."""
    found = []
    for role in roles():
        state = role.initial()
        for entry in recorded:
            if type(entry.fact) in role.reads:
                role.evolve(state, entry)
        dumped = role.dump(state)
        found.append((role.name, dumped, msgspec.json.encode(role.decide(state, ENDS_AT).facts)))
    return found


def test_everything_from_clickhouse_alone(
    nats_server: NatsServer, clickhouse: Server, client: Client, tmp_path: Path
) -> None:
    async def scenario() -> None:
        before = await write(nats_server, "lost")
        await copy(nats_server, "lost", clickhouse, tmp_path, upto=before[-1].position)
        lost = await JetStreamLog.connect(nats_server.url, cluster="lost")
        identity = await lost.identity()
        await lost.close()

        restored = await restore(
            export(client),
            Access(url=nats_server.url),
            cluster="anew",
            copy_of=log_identity(client),
            last=visible_position(client),
            now=ENDS_AT,
        )
        after = await read_log(nats_server, "anew")
        assert after == before, "the same facts at the same positions"
        assert (restored.facts, restored.last) == (len(before), before[-1].position)
        assert restored.gaps == before[-1].position - len(before)
        assert standing(after) == standing(before)
        assert list(lines(after)) == list(lines(before))

        log = await JetStreamLog.connect(nats_server.url, cluster="anew")
        assert await log.identity() != identity, "no snapshot of the lost log is taken for one of this"
        assert family(await log.identity()) == family(identity)
        assert (await log.append([intake(1)])).duplicate, "what is sent again is known"
        assert (await log.append([intake(2)])).last == before[-1].position + 1
        await log.close()
        await copy(nats_server, "anew", clickhouse, tmp_path, upto=Position(before[-1].position + 1))
        assert [entry.fact for entry in export(client)] == [*(entry.fact for entry in before), intake(2)]

    asyncio.run(asyncio.wait_for(scenario(), 120))


def test_clickhouse_from_the_log_alone(
    nats_server: NatsServer, clickhouse: Server, client: Client, tmp_path: Path
) -> None:
    async def scenario() -> None:
        before = await write(nats_server, "alone")
        await copy(nats_server, "alone", clickhouse, tmp_path, upto=before[-1].position)
        assert list(export(client)) == before
        beats = [beat for entry in before if isinstance(entry.fact, Heartbeat) for beat in entry.fact.hosts]
        segments = sum(len(beat.segments) for beat in beats)
        assert client.query("SELECT count() FROM occupancy WHERE kind = 'segment'").result_rows == [(segments,)]

    asyncio.run(asyncio.wait_for(scenario(), 120))


def test_the_log_made_anew_is_as_large_as_is_said(nats_server: NatsServer) -> None:
    async def scenario() -> None:
        before = await write(nats_server, "small")
        access, last = Access(url=nats_server.url), before[-1].position
        await restore(before, access, cluster="sized", copy_of="a", last=last, now=ENDS_AT, max_bytes=3 << 30)
        link = await Link.open(access, patience_s=5)
        made = await link.api(f"STREAM.INFO.{Subjects('sized').stream}", timeout_s=5)
        await link.close()
        assert made["config"]["max_bytes"] == 3 << 30

    asyncio.run(scenario())


def test_heartbeats_that_the_log_would_have_forgotten_are_left_out(nats_server: NatsServer) -> None:
    facts = [intake(0), heartbeat(1), heartbeat(DAY), intake(3)]
    held = [Recorded(Position(position), fact) for position, fact in enumerate(facts, start=3)]

    async def scenario() -> None:
        access = Access(url=nats_server.url)
        given = {"copy_of": "x", "last": Position(5), "now": 2 * DAY + 1_000}
        restored = await restore(held, access, cluster="beats", **given)  # type: ignore[arg-type]
        assert (restored.facts, restored.gaps, restored.heartbeats_left_out) == (2, 3, 1)
        assert await read_log(nats_server, "beats") == [held[0], held[2]]
        with pytest.raises(Unavailable, match="there is a log tenure-beats already, up to position 5"):
            await restore(held, access, cluster="beats", **given)  # type: ignore[arg-type]
        assert len(await read_log(nats_server, "beats")) == 2

    asyncio.run(scenario())


def test_a_data_directory_without_its_log(tmp_path: Path) -> None:
    """The command, as operations.md says it: the engine and the server are its own."""
    root = tmp_path / "data"

    async def fill() -> list[Recorded]:
        server, engine = NatsServer(root / "nats"), Server(data=root / "clickhouse")
        server.start()
        engine.start()
        try:
            before = await write(server, "tenure")
            await copy(server, "tenure", engine, tmp_path, upto=before[-1].position)
        finally:
            server.stop()
            engine.kill()
        (root / "run").mkdir()
        (root / "run" / "clickhouse.token").write_text((root / "clickhouse" / "token").read_text())
        return before

    def tenure(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [str(Path(sys.executable).parent / "tenure"), "log", "restore", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    before = asyncio.run(fill())
    kept = tenure("--data", str(root))
    assert (kept.returncode, "there is a log" in kept.stderr) == (1, True), kept
    (root / "nats").rename(tmp_path / "lost")
    done = tenure("--data", str(root))
    assert done.returncode == 0, done.stderr
    without = [entry for entry in before if not isinstance(entry.fact, Heartbeat)]  # of 1970
    assert f"restored {len(without)} facts up to position {before[-1].position}" in done.stdout
    server = NatsServer(root / "nats")
    server.start()
    try:
        assert asyncio.run(read_log(server, "tenure")) == without
    finally:
        server.stop()
    usage = tenure()
    assert (usage.returncode, "Traceback" in usage.stderr) == (1, False), usage
