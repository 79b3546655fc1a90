"""The log's server with a door for sites, and the server of a site, by the shipped configurations, on this machine."""

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from tenure.runtime.nats_server import find_nats_server
from tests.integration.faults.lab import free_ports

SHIPPED = Path(__file__).parents[3] / "deploy" / "nats"
LEAFNODES = re.compile(r"^leafnodes \{.*?^\}\n", re.MULTILINE | re.DOTALL)
START_S = 30.0


def door(port: int, *, store: Path) -> str:
    """What the log's servers have for sites, on a port of this machine and without TLS. `store`: its JetStream's."""
    text = (SHIPPED / "nats-server.conf").read_text()
    (block,) = LEAFNODES.findall(text)
    assert "0.0.0.0:7422" in block
    assert 'domain: "tenure"' in text
    jetstream = f'jetstream {{ domain: "tenure", store_dir: "{store}", sync_interval: always }}\n'
    return jetstream + re.sub(r"^  tls \{.*?^  \}\n", "", block, flags=re.MULTILINE | re.DOTALL).replace(
        "0.0.0.0:7422", f"127.0.0.1:{port}"
    )


class LeafServer:
    """A `nats-server -c leaf.conf`. It dies with this process."""

    def __init__(self, folder: Path, *, remote: str, users: str = "", seed: str = "") -> None:
        """`remote`: host:port of the log's door. Without `users` and `seed` everybody on this machine may do all."""
        self.folder, self._remote, self._users, self._seed = folder, remote, users, seed
        self.port, self._http = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where the site's agents connect."""
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it is joined to the log's server."""
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "leaf.conf"
        config.write_text(self._configuration())
        (self.folder / "leaf-users.conf").write_text(self._users)
        orphan = [sys.executable, "-m", "tenure.runtime.orphan", str(os.getpid()), "9"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*orphan, str(find_nats_server()), "-c", str(config)],
                stdout=log,
                stderr=log,
                env={**os.environ, "TENURE_NATS_LEAF": self._seed},
            )
        deadline = time.monotonic() + START_S
        while not self.joined():
            said = (self.folder / "log").read_text()[-2000:]
            assert self._process.poll() is None and time.monotonic() < deadline, said
            time.sleep(0.05)

    def joined(self) -> bool:
        """Whether it has its connection to the log's server, as far as it knows."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._http}/leafz", timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)
        except OSError:
            return False
        return found["leafnodes"] > 0

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _configuration(self) -> str:
        text = (SHIPPED / "leaf.conf").read_text()
        urls = '"tls://nats-0:7422", "tls://nats-1:7422", "tls://nats-2:7422"'
        for shipped, ours in (
            ("0.0.0.0:4222", f"127.0.0.1:{self.port}"),
            ("127.0.0.1:8222", f"127.0.0.1:{self._http}"),
            (urls, f'"nats-leaf://{self._remote}"'),
            ('      tls { ca_file: "/etc/tenure/nats/ca.crt", timeout: 5 }\n', ""),
            *([] if self._seed else [("      nkey: $TENURE_NATS_LEAF\n", "")]),
            ("include ./tls.conf\n", ""),
        ):
            assert shipped in text, f"{shipped} is no longer in the shipped configuration"
            text = text.replace(shipped, ours)
        return text
