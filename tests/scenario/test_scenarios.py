"""Every scenario in this folder: the documentation of behaviour, run on the services' own deciders."""

from pathlib import Path

import pytest

from tests.checks.invariants import check_log, check_reservations
from tests.scenario.script import check, load, script_to_world

SCENARIOS = sorted(Path(__file__).parent.glob("*.yaml"))


@pytest.mark.parametrize("path", SCENARIOS, ids=[path.stem for path in SCENARIOS])
def test_scenario(path: Path) -> None:
    script = load(path)
    recorded = script_to_world(script).recorded
    facts = [entry.fact for entry in recorded]
    check(script, facts)
    if script["given"].get("roles", "fair") == "fair":
        check_log(recorded)
        check_reservations(facts)
