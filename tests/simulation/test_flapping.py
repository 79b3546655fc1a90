"""S64: hosts that come and go lose nothing; the bench `flapping` says it of 1,000 for hours."""

import pytest

from tenure.domain.units import MINUTE
from tests.bench.flapping import measure


@pytest.mark.parametrize("together", [True, False], ids=["together", "apart"])
def test_nothing_is_drained_lost_or_stopped(together: bool) -> None:
    found = measure(hosts=40, hours=1, together=together)
    assert found["suspicions"] == 12 * 11, "each silence is seen"
    zeros = ("lost", "drained", "told_to_stop", "ended_early", "capacity_changes")
    assert {name: found[name] for name in zeros} == dict.fromkeys(zeros, 0)
    assert found["completed"] == 40


def test_the_count_sees_what_silence_can_do() -> None:
    """The same hosts, silent for longer than `lost_after`, are lost with their runs: the zeros above mean something."""
    found = measure(hosts=40, hours=1, together=False, silent_ms=6 * MINUTE, every_ms=10 * MINUTE)
    assert found["lost"] > 0 and found["ended_early"] > 0 and found["capacity_changes"] > 0
