"""Three nats-servers that are one cluster on the loopback address, and a log that lies on all three."""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import nats

from tenure.log.create import create
from tenure.log.port import Unavailable
from tenure.runtime.nats_server import PAYLOAD_MAX, find_nats_server
from tests.integration.faults.lab import free_ports

CLUSTER = "tenure"
START_S = 30.0
CONFIG = """
server_name: "n{number}"
listen: "127.0.0.1:{port}"
max_payload: {payload_max}
jetstream {{ store_dir: "{store}", sync_interval: always, max_file_store: 1GB }}
cluster {{ name: "trio", listen: "127.0.0.1:{route}", routes: [{routes}] }}
"""


class Trio:
    """A `LogServer` of three processes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        ports = free_ports(6)
        self._ports, self._routes = ports[:3], ports[3:]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        """All three."""
        return ",".join(f"nats://127.0.0.1:{port}" for port in self._ports)

    def start(self) -> None:
        """Start those that do not run, and wait until the log is there."""
        for number in range(3):
            if number not in self._processes:
                self.start_one(number)
        asyncio.run(self._until_created())

    def start_one(self, number: int) -> None:
        """Start one, with what it left on disk."""
        folder = self._folder / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        routes = ", ".join(f'"nats://127.0.0.1:{route}"' for route in self._routes)
        config = folder / "nats-server.conf"
        config.write_text(
            CONFIG.format(
                number=number,
                port=self._ports[number],
                route=self._routes[number],
                routes=routes,
                store=folder / "store",
                payload_max=PAYLOAD_MAX,
            )
        )
        orphan = [sys.executable, "-m", "tenure.runtime.orphan", str(os.getpid()), "9"]
        with (folder / "log").open("ab") as log:
            self._processes[number] = subprocess.Popen(
                [*orphan, str(find_nats_server()), "-c", str(config)], stdout=log, stderr=log
            )

    def kill(self, number: int) -> None:
        """kill -9 of one."""
        process = self._processes.pop(number)
        process.kill()
        process.wait()

    def stop(self) -> None:
        """End all of them."""
        for number in list(self._processes):
            self.kill(number)

    def leader(self) -> int:
        """Which of them orders the log."""
        return asyncio.run(self._leader())

    async def _leader(self) -> int:
        client = await nats.connect(self.url.split(","))
        try:
            answer = await client.request(f"$JS.API.STREAM.INFO.tenure-{CLUSTER}", timeout=10)
        finally:
            await client.close()
        return int(json.loads(answer.data)["cluster"]["leader"].removeprefix("n"))

    async def _until_created(self) -> None:
        deadline = time.monotonic() + START_S
        while True:
            try:
                await create(server=self.url, cluster=CLUSTER, replicas=3, max_gib=0)
                return
            except Unavailable:  # they have not found each other yet
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.1)
