"""A budget's lines over time, from rows on a real engine to the page."""

import os
import time
from pathlib import Path

import pytest
from clickhouse_connect.driver import Client

from tenure.domain.units import HOUR, MINUTE
from tests.contract.console_rig import Browser, play_console
from tests.contract.gateway_rig import Rig
from tests.contract.own_clickhouse import Server, clickhouse, client
from tests.contract.test_console_questions import held
from tests.contract.test_gateway_identity import People

__all__ = ["clickhouse", "client"]

HOURS = 48
PICTURE = Path(os.environ["CONSOLE_PAGE"]) if "CONSOLE_PAGE" in os.environ else None
"""Where the page is left for who wants to look at it."""


@pytest.fixture
def people(tmp_path: Path) -> People:
    return People(tmp_path)


def fill(client: Client) -> None:
    """Two days of science/chem and science/bio, on 32 GPUs."""
    now = time.time_ns() // 1_000_000 // HOUR * HOUR
    begin = now - HOURS * HOUR
    rows = [
        {"job": f"{leaf}{hour}", "budget": f"science/{leaf}", "user": user, "gpus": 1 + (hour * step) % 13}
        | {"since_ms": begin + hour * HOUR}
        for leaf, user, step in (("chem", "ana", 5), ("bio", "eve", 7))
        for hour in range(HOURS)
    ]
    held(client, rows)
    client.insert(
        "capacity",
        [[number, begin, "test", f"h{number}", 8, "H100"] for number in range(4)],
        column_names=["position", "at_ms", "cluster", "host", "gpus", "gpu_type"],
    )
    leaves = [[9, begin, f"science/{leaf}", 0.25, True] for leaf in ("chem", "bio")]
    client.insert("shares", leaves, column_names=["position", "at_ms", "path", "fraction", "leaf"])
    standings = [
        ["test", path, (begin + part * 5 * MINUTE) // 1000, begin + part * 5 * MINUTE, part, used, 0, 10 * HOUR]
        for part in range(HOURS * 12)
        for path, used in (("science/chem", (5 + part % 97 // 10) * HOUR), ("science/bio", (9 - part // 100) * HOUR))
    ]
    columns = ["cluster", "path", "period", "at_ms", "position", "charged_gpu_ms", "commitment_gpu_ms"]
    client.insert("standings", standings, column_names=[*columns, "entitlement_gpu_ms"])


def test_a_budgets_lines_are_drawn_from_its_rows(people: People, clickhouse: Server, client: Client) -> None:
    fill(client)

    async def scenario(rig: Rig, browser: Browser) -> None:
        page = await browser.get("/budgets/science/chem?days=7&format=json")
        tables = page.json()
        assert len(tables["over_time"]) in (HOURS, HOURS + 1) and {row["path"] for row in tables["ratios"]} == {
            "science/chem",
            "science/bio",
        }
        chem = [1 + (hour * 5) % 13 for hour in range(HOURS)]
        lines = [row["charged_gpus"] for row in tables["over_time"]]
        assert lines in ([*chem, 0], chem), "the last is the present hour, when enough of that is over"
        assert [row["user"] for row in tables["users"]] == ["ana"]
        shown = (await browser.get("/budgets/science/chem?days=7")).text
        assert shown.count('<path class="line') >= 4 and 'class="c-one"' in shown
        assert {row["entitled_gpus"] for row in tables["over_time"]} == {8.0}, "a quarter of 32"
        if PICTURE:
            PICTURE.write_text(shown)
        above = (await browser.get("/budgets/science?days=7&format=json")).json()
        both = [2 + (hour * 5) % 13 + (hour * 7) % 13 for hour in range(HOURS)]
        assert [row["charged_gpus"] for row in above["over_time"]][:HOURS] == both

    play_console(people, scenario, database=clickhouse, clock=time.monotonic)
