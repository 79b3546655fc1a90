"""A log that is replayed unchanged has the same starts, GPUs and ends, from wherever it is taken over."""

from pathlib import Path

import pytest

from simulator.past.replay import Changes
from simulator.report.breaches import find_breaches
from tenure.domain.units import DAY, HOUR
from tests.unit.simulator.past.scene import both, decisions, history, hosts, replayed, tree

INSTANTS = (0, DAY + 7, 2 * DAY + 6 * HOUR, 4 * DAY, 5 * DAY + 2 * HOUR, 6 * DAY + 1)
"""Before anything, before the new host, while a host is away, before the tree changes, while another is away, after."""


@pytest.mark.parametrize("seed", [1, 2])
def test_the_facts_are_decided_again_alike(seed: int, tmp_path: Path) -> None:
    recorded = history(seed)
    past = both(recorded, tmp_path).facts
    for start in INSTANTS:
        assert decisions(replayed(past, start=start), since=start) == decisions(recorded, since=start), start


@pytest.mark.parametrize("seed", [1, 2])
def test_an_export_tells_enough_from_its_beginning(seed: int, tmp_path: Path) -> None:
    recorded = history(seed)
    assert decisions(replayed(both(recorded, tmp_path).lines)) == decisions(recorded)


def test_what_is_replayed_keeps_every_promise(tmp_path: Path) -> None:
    past = both(history(3), tmp_path).facts
    for changes in (Changes(), Changes(tree=tree(a=10, b=10, c=80)), Changes(hosts=tuple(hosts(3)))):
        assert find_breaches(replayed(past, start=3 * DAY, changes=changes)) == []
