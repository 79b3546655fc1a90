"""A log of its own for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.runtime.nats_server import NatsServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path / "nats")
    server.start()
    yield server
    server.stop()
