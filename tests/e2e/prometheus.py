"""A real Prometheus on a free port of the loopback address, with this repository's alerts told without patience."""

import json
import re
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy/prometheus"
RULES = DEPLOY / "rules/tenure.rules.yaml"
CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: tenure
    static_configs: [{{targets: {targets}}}]
"""


def binary(name: str) -> str:
    """Where `prometheus` or `promtool` is; the test is skipped where it is not."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name}: apt-get install --no-install-recommends prometheus")
    return found


def free_port() -> int:
    """A port of the loopback address that nobody listens at now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def hasty_rules() -> str:
    """The alerts, but they fire after a second and look back for seconds, not for minutes and hours."""
    text = re.sub(r"for: \d+[mh]", "for: 1s", RULES.read_text())
    return text.replace("[1h]", "[20s]")


@dataclass(frozen=True)
class Prometheus:
    """A server that answers at `address`."""

    address: str

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series now."""
        found = self._ask(f"query?query={quote(expression)}")["result"]
        assert isinstance(found, list)
        return [(each["metric"], float(each["value"][1])) for each in found]

    def firing(self) -> list[Mapping[str, str]]:
        """The labels of each alert that fires."""
        alerts = self._ask("alerts")["alerts"]
        assert isinstance(alerts, list)
        return [alert["labels"] for alert in alerts if alert["state"] == "firing"]

    def _ask(self, what: str) -> dict[str, object]:
        with urllib.request.urlopen(f"{self.address}/api/v1/{what}", timeout=5) as answer:
            return dict(json.load(answer)["data"])


@contextmanager
def prometheus(folder: Path, targets: Sequence[str]) -> Iterator[Prometheus]:
    """A Prometheus that scrapes these, for the length of a block. Returns at once; wait for what is asked of it."""
    folder.mkdir()
    rules, config = folder / "hasty.rules.yaml", folder / "prometheus.yaml"
    rules.write_text(hasty_rules())
    config.write_text(CONFIG.format(rules=rules, targets=json.dumps(list(targets))))
    port = free_port()
    command = [binary("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
    with (folder / "said.log").open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said)
    try:
        yield Prometheus(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(timeout=20)
