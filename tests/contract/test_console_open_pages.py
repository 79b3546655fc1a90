"""An open page is told when what it shows has changed, also beside its tables."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from services.console.gateway import Gateway, NoAnswer
from tenure.domain.ids import FactId, HostId
from tenure.domain.rights import Role
from tenure.events.reports import Heartbeat, HostBeat
from tests.contract.console_rig import Browser, play_console
from tests.contract.gateway_rig import Rig
from tests.contract.test_console import submit
from tests.contract.test_gateway_identity import People, closed_tree


@pytest.fixture
def people(tmp_path: Path) -> People:
    return People(tmp_path)


def test_a_host_that_was_heard_again(people: People) -> None:
    async def scenario(rig: Rig, browser: Browser) -> None:
        before = (await browser.get("/hosts/h001")).headers["etag"]
        at = rig.gateway.now() + 60_000
        fact = Heartbeat(at=at, agent="a0", hosts=(HostBeat(host=HostId("h001"), gpus=8),))
        await rig.log.append([msgspec.structs.replace(fact, id=FactId("beat"), cluster="test")])
        async with asyncio.timeout(10):
            while rig.gateway.sightings.at.get(HostId("h001")) != at:
                await asyncio.sleep(0.01)
        again = await browser.get("/hosts/h001", if_none_match=before)
        assert again.status == 200 and again.headers["etag"] != before

    play_console(people, scenario)


async def away_now(*_: object, **__: object) -> None:
    raise NoAnswer("UNAVAILABLE", "the gateway does not answer")


def test_trouble_that_passes_is_tried_again_and_other_trouble_is_not(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(rig: Rig, browser: Browser) -> None:
        lost = (await browser.get("/jobs/j-unknown")).text
        assert "data-live" not in lost and "data-passes" not in lost
        agnes = await browser.as_(people.token("agnes", Role.AGENT)).get("/")
        assert agnes.status == 403 and "data-live" not in agnes.text
        monkeypatch.setattr(Gateway, "call", away_now)
        away = await browser.get("/")
        assert away.status == 503 and "data-live" in away.text and "data-passes" in away.text

    play_console(people, scenario)


def test_rights_that_somebody_was_given(people: People) -> None:
    async def scenario(rig: Rig, browser: Browser) -> None:
        job = await submit(rig, people)
        pia = browser.as_(people.token("pia"))
        before = await pia.get(f"/jobs/{job}")
        assert "/cancel" not in before.text
        await rig.write(closed_tree())
        again = await pia.get(f"/jobs/{job}", if_none_match=before.headers["etag"])
        assert again.status == 200 and "/cancel" in again.text and "data-output" in again.text

    play_console(people, scenario)
