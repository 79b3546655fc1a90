"""Every test here gets a canned gateway and a way to run `tenure` against it in this process."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tenure.cli.main import main
from tests.unit.cli.canned import Canned, serve


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Result]


@pytest.fixture
def gateway() -> Iterator[Canned]:
    canned = Canned()
    server = serve(canned)
    yield canned
    server.stop(None).wait()


@pytest.fixture
def tenure(gateway: Canned, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run one command against the canned gateway."""
    monkeypatch.setenv("TENURE_SERVER", gateway.address)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()

    def run(*arguments: str) -> Result:
        capfd.readouterr()
        status = main(arguments)
        out, err = capfd.readouterr()
        return Result(status, out, err)

    return run
