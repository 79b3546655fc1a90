"""The contract suites once more, on the NATS and ClickHouse of the images that compose names.

Skipped where no Docker engine answers.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from docker import from_env
from docker.errors import DockerException
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import HttpWaitStrategy

from tests.integration.deploy.conftest import ROOT

SUITE_S = 900


def image(variable: str) -> str:
    """The image that compose takes unless told otherwise."""
    compose = (ROOT / "deploy" / "compose.yaml").read_text()
    (found,) = re.findall(rf"\$\{{{variable}:-([^}}]+)\}}", compose)
    return str(found)


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    try:
        from_env().ping()
    except DockerException as error:
        pytest.skip(f"needs a Docker engine, and none answers: {error}")


@contextmanager
def running(container: DockerContainer, port: int) -> Iterator[str]:
    """Start it; host:port of its port."""
    with container as started:
        yield f"127.0.0.1:{started.get_exposed_port(port)}"


def passes(suite: str, **environment: str) -> None:
    """A contract suite passes as a process of its own."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", suite]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=SUITE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.timeout(SUITE_S + 300)
def test_the_log_keeps_its_contract_on_the_image_of_nats() -> None:
    shipped = (ROOT / "deploy" / "compose" / "nats.conf").read_text()
    config = re.sub(r"^tls \{.*?^\}$|^include [^\n]*$", "", shipped, flags=re.MULTILINE | re.DOTALL)
    nats = DockerContainer(
        image("NATS_IMAGE"),
        command="--config /etc/nats/contract.conf",
        ports=[4222, 8222],
        transferables=[(config.encode(), "/etc/nats/contract.conf")],
    ).waiting_for(HttpWaitStrategy(8222, "/healthz"))
    with running(nats, 4222) as address:
        passes("tests/contract/test_log.py", TENURE_TEST_NATS=f"nats://{address}")


@pytest.mark.timeout(SUITE_S + 300)
def test_the_tables_keep_their_contract_on_the_image_of_clickhouse() -> None:
    clickhouse = DockerContainer(
        image("CLICKHOUSE_IMAGE"), env={"CLICKHOUSE_SKIP_USER_SETUP": "1"}, ports=[8123]
    ).waiting_for(HttpWaitStrategy(8123, "/ping"))
    with running(clickhouse, 8123) as address:
        passes("tests/contract/test_clickhouse_schema.py", TENURE_TEST_CLICKHOUSE=f"http://{address}")
