"""A log on three servers: the one that orders it is killed under load."""

from pathlib import Path

import pytest

from tests.integration.faults.aftermath import check_aftermath
from tests.integration.faults.lab import lab
from tests.integration.faults.trio import Trio

pytestmark = pytest.mark.timeout(300)


def test_the_leader_is_killed_under_load_and_comes_back(tmp_path: Path) -> None:
    trio = Trio(tmp_path / "trio")
    with lab(tmp_path, nats=trio) as each:
        with each.load(seed=5) as load:
            load.more(20)
            first = trio.leader()
            trio.kill(first)
            load.more(20)
            assert trio.leader() != first
            trio.start_one(first)
            load.more(20)
        check_aftermath(each, load)
