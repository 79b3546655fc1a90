"""The console's other pages over a real gateway, while ClickHouse is away; and their forms."""

from pathlib import Path

import pytest

from tenure.domain.host import HostState
from tenure.domain.ids import HostId
from tenure.domain.rights import Role
from tests.contract.console_rig import Browser, field_of, play_console
from tests.contract.gateway_rig import Rig
from tests.contract.test_gateway_identity import People

PAGES = (
    "/",
    "/budgets",
    "/budgets/science",
    "/budgets/science/chem",
    "/cluster",
    "/hosts",
    "/hosts/h000",
    "/incentives",
)


@pytest.fixture
def people(tmp_path: Path) -> People:
    return People(tmp_path)


@pytest.mark.parametrize("address", PAGES)
def test_every_page_answers_while_clickhouse_is_away(people: People, address: str) -> None:
    async def scenario(rig: Rig, browser: Browser) -> None:
        page = await browser.get(address)
        assert page.status == 200 and page.text.count("<h1>") == 1, page.text
        tables = (await browser.get(f"{address}?format=json")).json()
        for name in tables:
            exported = await browser.get(f"{address}?format=csv&table={name}")
            assert exported.status == 200 and exported.headers["content-type"].startswith("text/csv"), name
        tag = page.headers["etag"]
        assert (await browser.get(address, if_none_match=tag)).status in (200, 304)

    play_console(people, scenario)


@pytest.mark.parametrize(
    ("address", "status", "words"),
    [
        ("/budgets/scince", 404, "scince"),
        ("/budgets?days=8", 400, "days"),
        ("/cluster?hours=x", 400, "hours"),
        ("/hosts/nowhere", 404, "nowhere"),
        ("/hosts?view=ill", 400, "view"),
    ],
)
def test_a_bad_question_is_said_clearly(people: People, address: str, status: int, words: str) -> None:
    async def scenario(rig: Rig, browser: Browser) -> None:
        answer = await browser.get(address)
        assert answer.status == status and words in answer.text, answer.text

    play_console(people, scenario)


def test_a_manager_sees_what_shares_would_do_and_then_sets_them(people: People) -> None:
    async def scenario(rig: Rig, browser: Browser) -> None:
        mia = browser.as_(people.token("mia"))
        page = (await mia.get("/budgets/science")).text
        assert "Change the shares below science" in page
        assert "Change the shares" not in (await browser.get("/budgets/science")).text, "ana manages nothing"
        assert "Change the shares" not in (await mia.get("/budgets")).text, "nor mia the topmost ones"
        form = {
            "form_token": field_of(page, "form_token"),
            "parent": "science",
            "share:science/bio": "30",
            "share:science/chem": "62.5",
            "comment": "more for chem",
        }
        preview = (await mia.post("/shares", {**form, "do": "preview"})).text
        rows = {line.split("</th>")[0] for line in preview.split('<tr role="row" data-key="')[1:]}
        assert len(rows) == 2 and "Nothing has been changed yet" in preview and "92.5" in preview
        assert "GPUs more from now on" in preview and "GPUs fewer from now on" in preview
        position = field_of(preview, "position")
        done = await mia.post("/shares", {**form, "do": "apply", "position": position})
        assert (done.status, done.headers["location"]) == (303, "/budgets/science")
        shares = {
            row["path"]: row["share_percent"] for row in (await mia.get("/budgets?format=json")).json()["budgets"]
        }
        assert (shares["science/bio"], shares["science/chem"]) == (30, 62.5)
        again = await mia.post("/shares", {**form, "do": "apply", "position": position, "share:science/bio": "1"})
        assert again.status == 409, "the tree has changed since that preview"
        eve = browser.as_(people.token("eve"))
        token = field_of((await eve.get("/budgets/science")).text.replace("</body>", FORM_OF_EVE), "form_token")
        assert token == "none", "who may not change anything is shown no form"

    play_console(people, scenario)


FORM_OF_EVE = '<input name="form_token" value="none">'


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("share:science/bio", "abc", "share of science/bio"),
        ("share:science/bio", "-1", "share of science/bio"),
        ("share:science/bio", "10.00001", "share of science/bio"),
        ("share:science/bio", "80", "sum to 130"),
        ("parent", "nowhere", "nowhere"),
        ("comment", "x" * 300, "comment"),
        ("position", "", "position"),
    ],
)
def test_a_bad_share_is_said_clearly_and_changes_nothing(people: People, field: str, value: str, words: str) -> None:
    async def scenario(rig: Rig, browser: Browser) -> None:
        mia = browser.as_(people.token("mia"))
        page = (await mia.get("/budgets/science")).text
        before = rig.loop.state.tree_position if hasattr(rig.loop.state, "tree_position") else rig.loop.state.tree
        good = {"form_token": field_of(page, "form_token"), "parent": "science", "do": "apply", "position": "5"}
        answer = await mia.post("/shares", {**good, field: value})
        assert answer.status in (400, 404) and words in answer.text, answer.text
        after = rig.loop.state.tree_position if hasattr(rig.loop.state, "tree_position") else rig.loop.state.tree
        assert before == after

    play_console(people, scenario)


def test_operators_alone_drain_and_resume(people: People) -> None:
    async def scenario(rig: Rig, browser: Browser) -> None:
        otto = browser.as_(people.token("otto", Role.OPERATOR))
        page = (await otto.get("/hosts/h001")).text
        assert "/hosts/h001/drain" in page
        hers = (await browser.get("/hosts/h001")).text
        assert "/hosts/h001/drain" not in hers
        form = {"form_token": field_of(page, "form_token"), "comment": "fan"}
        without = await otto.post("/hosts/h001/drain", {**form, "comment": ""})
        assert without.status == 400 and "comment" in without.text
        late = await otto.post("/hosts/h001/drain", {**form, "within": "soon"})
        assert late.status == 400 and "within" in late.text
        assert (await otto.post("/hosts/h001/drain", form)).headers["location"] == "/hosts/h001"
        again = await otto.post("/hosts/h001/drain", form)
        assert again.status == 409, again.text
        assert (await otto.post("/hosts/h001/resume", {**form, "comment": ""})).status == 303
        assert rig.loop.state.hosts[HostId("h001")].state is HostState.HEALTHY

    play_console(people, scenario)
