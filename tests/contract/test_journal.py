"""The journal's loop on a real engine: nothing lost while the database is away, nothing said twice."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from clickhouse_connect.driver import Client

from services.journal.journal import Journal
from services.journal.writer import Writer
from tenure.clickhouse.story import visible_position
from tenure.domain.refusal import Refusal
from tenure.log.jetstream import JetStreamLog
from tenure.log.memory import MemoryLog
from tenure.runtime.nats_server import NatsServer
from tests.contract.own_clickhouse import Server, clickhouse, client
from tests.contract.test_clickhouse_schema import busy_lab
from tests.contract.test_journal_writer import check_totals
from tests.unit.journal.facts import T0, Story

__all__ = ["clickhouse", "client"]

PATIENCE_S = 30.0


async def until(condition: Callable[[], bool], *, doing: "asyncio.Task[None] | None" = None) -> None:
    """Wait for a condition that is sure to come; fail at once when the journal dies instead."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        if doing is not None and doing.done():
            doing.result()
        await asyncio.sleep(0.01)


def filled(told: Story) -> MemoryLog:
    """A log of these facts."""
    log = MemoryLog()
    log.append_now([recorded.fact for recorded in told.recorded])
    return log


def test_the_log_ends_up_in_the_database(clickhouse: Server, client: Client, tmp_path: Path) -> None:
    told = busy_lab(11, segments=200)
    told.finished("next-month", T0 + 40 * 24 * 3_600_000)
    log = filled(told)

    async def scenario() -> None:
        stop = asyncio.Event()
        journal = Journal(log, clickhouse.client, progress_file=tmp_path / "j" / "progress.json")
        running = asyncio.create_task(journal.run(stop))
        await asyncio.wait_for(journal.caught_up.wait(), PATIENCE_S)
        told.finished("one-more", T0)
        log.append_now([told.recorded[-1].fact])
        await until(lambda: journal.position == len(told.recorded), doing=running)
        stop.set()
        await running

    asyncio.run(scenario())
    check_totals(client, told)
    progress = json.loads((tmp_path / "j" / "progress.json").read_text())
    assert progress["head"] - progress["position"] == progress["lag"] <= 1


def test_the_database_is_away_and_comes_back(
    clickhouse: Server, client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if clickhouse.process is None:
        pytest.skip("the server is not ours to kill")
    caplog.set_level(logging.INFO)
    told = busy_lab(12, segments=100)
    log = filled(told)
    tries: list[float] = []

    def connect() -> Client:
        tries.append(time.monotonic())
        return clickhouse.client()

    async def scenario() -> None:
        stop = asyncio.Event()
        journal = Journal(log, connect, progress_file=tmp_path / "progress.json")
        running = asyncio.create_task(journal.run(stop))
        await asyncio.wait_for(journal.caught_up.wait(), PATIENCE_S)
        clickhouse.kill()
        for recorded in busy_lab(13, segments=50).recorded:
            told.say(recorded.fact)
            log.append_now([told.recorded[-1].fact])
        await until(lambda: len(tries) >= 4, doing=running)
        clickhouse.start()
        await until(lambda: journal.position == len(told.recorded), doing=running)
        stop.set()
        await running

    asyncio.run(scenario())
    check_totals(clickhouse.client(), told)
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1 and warnings[0].getMessage().startswith("waiting for ClickHouse")
    assert sum("all is well again" in record.getMessage() for record in caplog.records) == 1


def test_a_database_of_another_log_or_ahead_of_it_is_refused(
    clickhouse: Server, client: Client, tmp_path: Path
) -> None:
    told = busy_lab(14, segments=5)

    def run(log: MemoryLog) -> None:
        journal = Journal(log, clickhouse.client, progress_file=tmp_path / "progress.json")
        asyncio.run(asyncio.wait_for(journal.run(asyncio.Event()), PATIENCE_S))

    Writer(client).resume("another log")
    with pytest.raises(Refusal, match="another log"):
        run(filled(told))
    client.command("TRUNCATE TABLE journal_log")
    longer = filled(told)
    stop = asyncio.Event()
    stop_when_caught_up = Journal(longer, clickhouse.client, progress_file=tmp_path / "progress.json")

    async def scenario() -> None:
        running = asyncio.create_task(stop_when_caught_up.run(stop))
        await until(lambda: stop_when_caught_up.position == 5, doing=running)
        stop.set()
        await running

    asyncio.run(scenario())
    del longer.recorded[3:]
    with pytest.raises(Refusal, match="up to position 5"):
        run(longer)


def test_the_process_is_killed_mid_batch(
    clickhouse: Server, client: Client, nats_server: NatsServer, tmp_path: Path
) -> None:
    """kill -9 of `tenure serve journal` again and again while it writes; the totals are exact."""
    told = busy_lab(15, segments=3_000)
    cluster = f"journal{os.getpid()}"

    async def fill() -> None:
        log = await JetStreamLog.connect(nats_server.url, cluster=cluster)
        await log.append([recorded.fact for recorded in told.recorded])
        assert await log.head() == len(told.recorded)
        await log.close()

    asyncio.run(fill())
    for kill_at in (1, 1_500):
        journal = start_journal(nats_server, cluster, clickhouse, tmp_path)
        wait_for(lambda at=kill_at: visible_position(client) >= at, journal)  # type: ignore[misc]
        journal.kill()
        journal.wait()
    journal = start_journal(nats_server, cluster, clickhouse, tmp_path)
    wait_for((tmp_path / "ready.json").exists, journal)
    journal.send_signal(signal.SIGTERM)
    assert journal.wait(PATIENCE_S) == 0
    assert json.loads((tmp_path / "journal" / "progress.json").read_text())["lag"] == 0
    check_totals(client, told)


def start_journal(nats: NatsServer, cluster: str, clickhouse: Server, data: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "services", "journal", "--nats", nats.url, "--cluster", cluster]
    command += ["--data", str(data), "--clickhouse", clickhouse.url, "--ready-file", str(data / "ready.json")]
    if clickhouse.token_file is not None:
        command += ["--clickhouse-token-file", str(clickhouse.token_file)]
    with (data / "journal.log").open("ab") as log:
        return subprocess.Popen(command, stderr=log)


def wait_for(condition: Callable[[], bool], process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert process.poll() is None, "the journal ended by itself"
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.005)
