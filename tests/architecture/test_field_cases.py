"""The table of field cases and the tests that it names name each other."""

import re

from tests.architecture.sources import ROOT
from tests.scenario.script import load

TABLE = ROOT / "docs" / "checklists" / "field-cases.md"
ROW = re.compile(r"\| (S\d\d) \|[^|]*\| `([^`]+)` \|")


def test_each_row_names_a_test_that_says_its_number() -> None:
    rows = ROW.findall(TABLE.read_text())
    assert len(rows) >= 30
    for case, name in rows:
        if name.endswith(".py"):
            assert re.search(rf"\b{case}\b", (ROOT / name).read_text()), f"{name} says nothing of {case}"
        else:
            assert case in told(name), f"{name} does not have {case} among its cases"


def test_each_case_of_a_scenario_is_in_the_table() -> None:
    rows = set(ROW.findall(TABLE.read_text()))
    for path in sorted((ROOT / "tests" / "scenario").glob("*.yaml")):
        for case in told(path.stem):
            assert (case, path.stem) in rows, f"{case} of {path.name} has no row"


def told(scenario: str) -> list[str]:
    cases = load(ROOT / "tests" / "scenario" / f"{scenario}.yaml").get("cases", [])
    assert isinstance(cases, list)
    return [str(case) for case in cases]
