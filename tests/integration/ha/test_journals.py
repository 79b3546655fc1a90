"""Two journals on one log and one database, one of them suspended and killed in the midst of it: every fact once."""

import asyncio
import json
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from clickhouse_connect.driver import Client

from tenure.clickhouse.story import visible_position
from tenure.events.fact import Recorded
from tenure.log.access import Access
from tenure.log.jetstream import JetStreamLog
from tenure.runtime.nats_server import NatsServer
from tests.contract.own_clickhouse import Server, clickhouse, client
from tests.contract.test_clickhouse_schema import busy_lab
from tests.contract.test_journal_writer import check_totals
from tests.integration.ha.pairs import Pairs

__all__ = ["clickhouse", "client"]

PART = 150


@pytest.fixture
def pairs(server: NatsServer, clickhouse: Server, client: Client, tmp_path: Path) -> Iterator[Pairs]:
    more = ["--clickhouse", clickhouse.url]
    if clickhouse.token_file is not None:
        more += ["--clickhouse-token-file", str(clickhouse.token_file)]
    pairs = Pairs(tmp_path, lambda _: Access(url=server.url), more=more)
    try:
        yield pairs
    finally:
        pairs.close()


def test_every_fact_is_written_once(pairs: Pairs, server: NatsServer, client: Client) -> None:
    told = busy_lab(16, segments=PART * 10)
    parts = [told.recorded[begin : begin + PART] for begin in range(0, len(told.recorded), PART)]
    pairs.start_pairs("journal")

    def say(count: int) -> None:
        asyncio.run(append(server.url, [parts.pop(0) for _ in range(count)]))

    def shown() -> None:
        wanted = len(told.recorded) - sum(map(len, parts))
        pairs.until(lambda: visible_position(client) >= wanted or None, what=f"{wanted} facts in the database")

    say(2)
    shown()
    for number in (signal.SIGSTOP, signal.SIGKILL, signal.SIGTERM):
        first = pairs.until(lambda: pairs.leader("journal"), what="a leader")
        second = pairs.until(lambda: pairs.follower("journal"), what="a follower")
        say(1)
        pairs.send(first, number)
        say(1)
        shown()
        assert pairs.lead(second)["leading"]
        if number is signal.SIGSTOP:
            pairs.send(first, signal.SIGCONT)
            pairs.until(lambda: pairs.follower("journal"), what=f"{first} to follow")
        pairs.start_pairs("journal")
    say(2)
    last = pairs.until(lambda: pairs.leader("journal"), what="a leader")
    progress = pairs.folder / last / "journal" / "progress.json"  # tells what is written everywhere
    pairs.until(lambda: json.loads(progress.read_text())["position"] == len(told.recorded) or None, what="the rest")
    check_totals(client, told)


async def append(url: str, parts: Sequence[Sequence[Recorded]]) -> None:
    log = await JetStreamLog.connect(url, cluster="pairs")
    for part in parts:
        await log.append([recorded.fact for recorded in part])
    await log.close()
