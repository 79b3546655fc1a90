"""What is committed for Grafana: made by the code, whole, and told of in the provisioning files."""

import re
from typing import Any

import pytest
from ruamel.yaml import YAML

from deploy.grafana import services
from deploy.grafana.board import VARIABLES
from deploy.grafana.catalogue import BOARDS
from deploy.grafana.query import SOURCE_TYPE, SOURCE_UID
from deploy.grafana.written import FOLDER, ROOT, files
from tenure.events.catalogue import KINDS
from tenure.events.fact import Lane
from tests.contract.dashboards.expand import dashboards, panels

PROVISIONING = ROOT / "deploy" / "grafana" / "provisioning"
NAMES = sorted(board.name for board in BOARDS)


def test_the_files_are_what_the_code_makes() -> None:
    stale = [str(path) for path, text in files().items() if (ROOT / path).read_text() != text]
    assert not stale, "run make dashboards"
    assert sorted(dashboards()) == NAMES, "a file is left of a dashboard that is no more"


@pytest.mark.parametrize("name", NAMES)
def test_panels_lie_side_by_side(name: str) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboards()[name]["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies on {taken[x, y]}"
                taken[x, y] = panel["title"]
    ids = [panel["id"] for panel in dashboards()[name]["panels"]]
    assert len(set(ids)) == len(ids) and 0 not in ids


@pytest.mark.parametrize("name", NAMES)
def test_every_panel_says_what_it_means_and_asks_our_source(name: str) -> None:
    dashboard = dashboards()[name]
    assert dashboard["uid"] == f"tenure-{name}"
    declared = {variable["name"] for variable in dashboard["templating"]["list"]}
    titles = [shown.title for shown in panels(name, dashboard)]
    assert len(set(titles)) == len(titles)
    used: set[str] = set()
    for shown in panels(name, dashboard):
        assert shown.panel["description"].endswith("."), shown.title
        assert shown.panel["fieldConfig"]["defaults"]["unit"]
        (target,) = shown.panel["targets"]
        assert target["datasource"] == shown.panel["datasource"] == {"type": SOURCE_TYPE, "uid": SOURCE_UID}
        used |= set(re.findall(r"\$\{(\w+):singlequote\}", shown.sql))
    assert used == declared <= set(VARIABLES), "a variable that changes nothing, or one that is not there"


def test_own_settings_are_of_columns_that_are_there() -> None:
    for board in BOARDS:
        for panel, shown in zip(board.panels, panels(board.name, dashboards()[board.name]), strict=True):
            named = [each["matcher"]["options"] for each in shown.panel["fieldConfig"]["overrides"]]
            assert set(named) <= set(panel.columns), panel.title


def test_colours_are_told_apart_without_red_and_green() -> None:
    """Of the eight of Okabe and Ito at most, and two greys; blue where Grafana would have green."""
    allowed = {"#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00", "#cc79a7", "#f0e442", "#8c959f", "#c9ced4"}
    for name in NAMES:
        text = (ROOT / FOLDER / f"{name}.json").read_text()
        assert set(re.findall(r"#[0-9a-f]{6}\b", text)) <= allowed
        assert not re.findall(r'"(?:fixedColor|color)": "(?!#)\w+"', text)


def test_provisioning_names_the_source_and_the_folder() -> None:
    (source,) = read("datasources/tenure.yaml")["datasources"]
    assert (source["type"], source["uid"]) == (SOURCE_TYPE, SOURCE_UID)
    assert source["secureJsonData"]["password"].startswith("$__file{"), "no secret in a file that is committed"
    (provider,) = read("dashboards/tenure.yaml")["providers"]
    assert provider["type"] == "file" and provider["options"]["path"]


def test_every_kind_of_fact_is_counted_as_of_who_says_it() -> None:
    speakers = {
        Lane.REPORT: "agents",
        Lane.RANK: "ranker",
        Lane.RUNS: "placer",
        Lane.HOSTS: "health",
        Lane.INTAKE: "gateway",
        Lane.BUDGET: "budget",
    }
    of_the_gateway = {"BudgetTreeChanged", "PolicyChanged"}
    for name, kind in KINDS.items():
        expected = "gateway" if name in of_the_gateway else speakers[kind.lane]
        named = {speaker for speaker, kinds in services.KINDS.items() if name in kinds.split()}
        assert named == ({expected} if expected != "placer" else set()), name


def read(name: str) -> Any:
    return YAML(typ="safe").load(PROVISIONING / name)
