"""What a job prints, as the console hands it on: what there is by now, never a request that stays open."""

import asyncio
from pathlib import Path

import pytest

from services.console.pages import job as job_page
from tests.contract.console_rig import Browser, play_console
from tests.contract.gateway_rig import Rig
from tests.contract.test_console import submit
from tests.contract.test_gateway_identity import People
from tests.contract.test_gateway_reads import Agent, ending, start


@pytest.fixture
def people(tmp_path: Path) -> People:
    return People(tmp_path)


def test_output_is_answered_at_once_also_where_there_is_none_yet(people: People) -> None:
    agent = Agent()

    async def scenario(rig: Rig, browser: Browser) -> None:
        job = await submit(rig, people)
        address = f"/jobs/{job}/output?run=1&replica=0&stream=stdout"
        assert (await browser.get(address)).status == 204, "it has not run yet"
        await start(rig, job, at=rig.gateway.now())
        async with asyncio.timeout(10):
            silent = await browser.get(f"{address}&offset=0")
        assert (silent.status, silent.body, silent.headers["x-tenure-offset"]) == (200, b"", "0")
        agent.text = b"one two!"
        one = await browser.get(f"{address}&offset=0")
        two = await browser.get(f"{address}&offset={len(one.body)}")
        assert (one.body, two.body, two.headers["x-tenure-offset"]) == (b"one ", b"two!", "4")
        assert two.headers["x-tenure-over"] == "no"
        hers = await browser.as_(people.token("eve")).get(f"{address}&offset=0")
        assert hers.status == 403 and "output" in hers.json()["error"]
        assert (await browser.get("/jobs/j-unknown/output")).json()["error"], "read by the page's script"
        agent.away = True
        assert (await browser.get(address)).status == 503
        agent.away = False
        await rig.write(*ending(job, at=rig.gateway.now()))
        fresh = await browser.get(f"{address}&offset=8")
        assert fresh.headers["x-tenure-over"] == "no", "its agent may still have some"

    play_console(people, scenario, agents=agent)


def test_output_of_a_run_that_ended_a_while_ago_is_over(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_page, "LAST_WORDS_MS", -60_000)
    agent = Agent()
    agent.text, agent.over = b"done", True

    async def scenario(rig: Rig, browser: Browser) -> None:
        job = await submit(rig, people)
        await start(rig, job, at=rig.gateway.now())
        await rig.write(*ending(job, at=rig.gateway.now()))
        monkeypatch.setattr(job_page, "ANSWER_BYTES_MAX", 4)
        cut = await browser.get(f"/jobs/{job}/output?offset=0")
        assert (cut.body, cut.headers["x-tenure-over"], cut.headers["x-tenure-more"]) == (b"done", "no", "yes")
        rest = await browser.get(f"/jobs/{job}/output?offset=4")
        assert (rest.body, rest.headers["x-tenure-over"], rest.headers["x-tenure-more"]) == (b"", "yes", "no")

    play_console(people, scenario, agents=agent)
