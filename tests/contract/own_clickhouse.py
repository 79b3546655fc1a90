"""A ClickHouse for tests: the embedded server as a process of its own, or the one `TENURE_TEST_CLICKHOUSE` names.

Every test gets an empty database of the present schema.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from clickhouse_connect.driver import Client

from tenure.clickhouse.connect import connect
from tenure.clickhouse.migrate import migrate

START_S = 90.0
"""A second on a quiet machine."""


@dataclass(kw_only=True)
class Server:
    """The embedded server on a data folder; it can be killed and started again on the same port."""

    data: Path
    url: str = ""
    process: "subprocess.Popen[bytes] | None" = field(default=None)

    @property
    def token_file(self) -> Path | None:
        """The password of a server that we started."""
        return self.data / "token" if self.process is not None else None

    def start(self) -> None:
        """Start it and wait until it answers."""
        ready = self.data / "ready.json"
        port = self.url.rpartition(":")[2] or "0"
        command = [sys.executable, "-m", "services.clickhouse", "--data", str(self.data), "--port", port]
        self.process = subprocess.Popen([*command, "--ready-file", str(ready)], stderr=subprocess.PIPE)
        deadline = time.monotonic() + START_S
        while not ready.exists():
            if self.process.poll() is not None:
                assert self.process.stderr is not None
                raise RuntimeError(f"the server did not start: {self.process.stderr.read().decode()}")
            if time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the server was not ready within {START_S} s")
            time.sleep(0.02)
        self.url = f"http://127.0.0.1:{json.loads(ready.read_text())['port']}"

    def kill(self) -> None:
        """End it as a power button would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            if self.process.stderr is not None:
                self.process.stderr.close()
            (self.data / "ready.json").unlink(missing_ok=True)

    def client(self) -> Client:
        """A new client."""
        return connect(self.url, self.token_file)


@pytest.fixture(scope="module")
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running server."""
    given = os.environ.get("TENURE_TEST_CLICKHOUSE")
    if given:
        yield Server(data=tmp_path_factory.mktemp("unused"), url=given)
        return
    server = Server(data=tmp_path_factory.mktemp("clickhouse"))
    server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture
def client(clickhouse: Server) -> Client:
    """A client of an empty database with the present schema. Emptying a table makes it forget its tokens too."""
    client = clickhouse.client()
    migrate(client)
    for table in tables(client):
        client.command(f"TRUNCATE TABLE {table}")
    return client


def tables(client: Client) -> list[str]:
    """The tables that hold what the journal wrote, or what follows from it."""
    query = (
        "SELECT name FROM system.tables WHERE database = {database:String} AND engine LIKE '%MergeTree' "
        "AND name != 'migrations' AND NOT startsWith(name, '.') ORDER BY name"
    )
    return [row[0] for row in client.query(query, {"database": client.database}).result_rows]
