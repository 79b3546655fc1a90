"""Every scenario in this folder: the documentation of behaviour, run on the services' own deciders."""

from pathlib import Path

import pytest

from tests.scenario.script import check, load, play

SCENARIOS = sorted(Path(__file__).parent.glob("*.yaml"))


@pytest.mark.parametrize("path", SCENARIOS, ids=[path.stem for path in SCENARIOS])
def test_scenario(path: Path) -> None:
    script = load(path)
    check(script, play(script))
