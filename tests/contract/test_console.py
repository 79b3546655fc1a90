"""What the console answers over a real gateway: pages, exports, "the same as before", clear words for what is wrong."""

import csv
import io
import socket
from pathlib import Path

import pytest

from tenure.domain.ids import JobId
from tenure.domain.rights import Role
from tenure.events.placing import PlacementDeferred
from tenure.v1 import jobs_pb2
from tests.contract.console_rig import Browser, field_of, play_console
from tests.contract.gateway_rig import NOW, Rig, good_job
from tests.contract.test_gateway_identity import People
from tests.contract.test_gateway_reads import FULL, admit, ending, start

NASTY = '"><script>alert(1)</script>'


@pytest.fixture
def people(tmp_path: Path) -> People:
    return People(tmp_path)


async def submit(rig: Rig, people: People, **fields: object) -> str:
    """A job of ana's, admitted."""
    request = jobs_pb2.SubmitRequest(job=good_job(user="", **fields))
    job: str = (await rig.jobs.Submit(request, **people.called("ana"))).job_id
    await rig.gateway.read()
    await admit(rig, job)
    return job


def test_the_queue_says_why_a_job_waits(people: People) -> None:
    async def scenario(rig: Rig, browser: Browser) -> None:
        job, other = await submit(rig, people, name="train"), await submit(rig, people)
        await rig.write(PlacementDeferred(at=NOW, job=JobId(job), why=FULL))
        await start(rig, other, at=rig.gateway.now())
        page = await browser.get("/")
        assert page.status == 200 and page.headers["content-type"].startswith("text/html")
        assert f'href="/jobs/{job}"' in page.text and "train" in page.text
        assert "It asks for 8 GPUs and 0 are free" in page.text
        rows = {row["job"]: row for row in (await browser.get("/?format=json")).json()["jobs"]}
        assert rows[job]["state"] == "queued" and rows[job]["gpus"] == 8 and rows[job]["user"] == "ana"
        assert rows[other]["state"] == "running" and rows[other]["protected_until_ms"] > rig.gateway.now()
        waiting = (await browser.get("/?view=queued&format=json")).json()["jobs"]
        assert [row["job"] for row in waiting] == [job]

    play_console(people, scenario)


def test_every_table_is_exported_whole_and_formulas_are_made_harmless(people: People) -> None:
    async def scenario(rig: Rig, browser: Browser) -> None:
        for number in range(30):
            await submit(rig, people, name=f"=1+{number}")
        exported = await browser.get("/?size=25&format=csv&table=jobs")
        rows = list(csv.DictReader(io.StringIO(exported.text)))
        assert len(rows) == 30 and exported.headers["content-disposition"].endswith('filename="jobs.csv"')
        assert all(row["name"].startswith("'=1+") for row in rows)
        page = await browser.get("/?size=25&page=2")
        assert page.text.count('<tr role="row" data-key=') == 5 and "26–30 of 30" in page.text

    play_console(people, scenario)


def test_an_open_page_is_told_that_nothing_changed_until_something_does(people: People) -> None:
    async def scenario(rig: Rig, browser: Browser) -> None:
        job = await submit(rig, people)
        for address in ("/", f"/jobs/{job}"):
            tag = (await browser.get(address)).headers["etag"]
            assert (await browser.get(address, if_none_match=tag)).status == 304, address
        await start(rig, job, at=rig.gateway.now())
        for address in ("/", f"/jobs/{job}"):
            again = await browser.get(address, if_none_match=tag)
            assert again.status == 200 and again.headers["etag"] != tag, address

    play_console(people, scenario)


def test_a_job_page_has_its_story_runs_and_clock_and_is_cancelled_by_its_owner_alone(people: People) -> None:
    async def scenario(rig: Rig, browser: Browser) -> None:
        job = await submit(rig, people, name="train", command=["python", "-c", "print('<b>')"])
        await start(rig, job, at=rig.gateway.now())
        page = (await browser.get(f"/jobs/{job}")).text
        for words in ("Contract clock", "Story", "JobSubmitted", "&lt;b&gt;", f"/jobs/{job}/cancel"):
            assert words in page, words
        story = (await browser.get(f"/jobs/{job}?format=json&table=story")).json()
        assert [step["kind"] for step in story][:2] == ["JobSubmitted", "JobAdmitted"]
        eve = browser.as_(people.token("eve"))
        hers = (await eve.get(f"/jobs/{job}")).text
        assert "/cancel" not in hers and "You may not read what this job prints" in hers
        form = {"form_token": field_of(page, "form_token")}
        assert (await eve.post(f"/jobs/{job}/cancel", form)).status == 400, "a form of somebody else"
        forged = browser.as_(people.token("ana"))
        assert (await forged.post(f"/jobs/{job}/cancel", {"form_token": "x"})).status == 400
        assert (await browser.post(f"/jobs/{job}/cancel", form, origin="https://evil.example")).status == 403
        assert "JobCancelRequested" not in (await browser.get(f"/jobs/{job}")).text
        done = await browser.post(f"/jobs/{job}/cancel", form)
        assert (done.status, done.headers["location"]) == (303, f"/jobs/{job}")
        assert "JobCancelRequested" in (await browser.get(f"/jobs/{job}")).text
        await rig.write(*ending(job, at=rig.gateway.now()))
        over = (await browser.get(f"/jobs/{job}")).text
        assert "/cancel" not in over and "completed" in over

    play_console(people, scenario)


def test_nothing_that_people_write_becomes_markup(people: People) -> None:
    async def scenario(rig: Rig, browser: Browser) -> None:
        job = await submit(rig, people, name=NASTY, command=["echo", NASTY], working_directory="/<i>")
        for address in ("/", f"/jobs/{job}", "/?user=%3Cscript%3E", "/?budget=science"):
            page = (await browser.get(address)).text
            assert "<script>alert" not in page and "<i>" not in page, address
        assert "&lt;script&gt;alert(1)" in (await browser.get("/")).text

    play_console(people, scenario)


@pytest.mark.parametrize(
    ("address", "status", "words"),
    [
        ("/jobs/j-unknown", 404, "j-unknown"),
        ("/?view=wating", 400, "view"),
        ("/?page=0", 400, "page"),
        ("/?page=9999999999999999", 400, "page"),
        ("/?size=7", 400, "size"),
        ("/?budget=scince", 404, "scince"),
        ("/?format=xml", 400, "format"),
        ("/?format=csv&table=hosts", 400, "table"),
        ("/?user=" + "x" * 300, 400, "user"),
        ("/nothing", 404, "no such page"),
    ],
)
def test_a_bad_question_is_said_clearly(people: People, address: str, status: int, words: str) -> None:
    async def scenario(rig: Rig, browser: Browser) -> None:
        answer = await browser.get(address)
        assert answer.status == status and words in answer.text, answer.text

    play_console(people, scenario)


def test_nobody_sees_anything_before_the_gateway_knows_them(people: People) -> None:
    async def scenario(rig: Rig, browser: Browser) -> None:
        job = await submit(rig, people)
        nobody = browser.as_("")
        for address in ("/", f"/jobs/{job}", f"/jobs/{job}/output", "/?view=all"):
            answer = await nobody.get(address)
            assert answer.status == 303 and answer.headers["location"].startswith("/sign-in?next=%2F"), address
            assert job not in answer.text
            assert (await browser.as_("nonsense").get(address)).status == 303
        assert (await nobody.get("/?view=all&format=json")).status == 401
        assert (await browser.as_(people.token("agnes", Role.AGENT)).get("/")).status == 403
        assert (await nobody.post(f"/jobs/{job}/cancel", {})).status == 401

    play_console(people, scenario)


def test_signing_in_with_a_token_lasts_until_signing_out(people: People) -> None:
    async def scenario(rig: Rig, browser: Browser) -> None:
        visitor = browser.as_("")
        bad = await visitor.post("/sign-in", {"token": "nonsense", "next": "/"})
        assert bad.status == 401 and "nonsense" not in bad.text and not visitor.cookies
        assert (await visitor.post("/sign-in", {"token": "two words"})).status == 400
        token = people.token("ana")
        done = await visitor.post("/sign-in", {"token": token, "next": "//evil.example"})
        assert (done.status, done.headers["location"]) == (303, "/")
        cookie = done.headers["set-cookie"].lower()
        assert "httponly" in cookie and "samesite=lax" in cookie and token.lower() not in cookie
        assert ">ana</span>" in (await visitor.get("/")).text
        kept = dict(visitor.cookies)
        await visitor.post("/sign-out", {})
        visitor.cookies = kept
        assert (await visitor.get("/")).status == 303, "the session itself is over"

    play_console(people, scenario)


def test_a_session_counts_only_for_the_user_of_this_machine_who_began_it(people: People) -> None:
    """Browsers send cookies to every port of 127.0.0.1, so that another user's server there comes by them."""

    async def scenario(rig: Rig, browser: Browser) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as mine:
            visitor = Browser(app=browser.app, client=mine.getsockname(), server=server.getsockname())
            await visitor.post("/sign-in", {"token": people.token("ana"), "next": "/"})
            assert ">ana</span>" in (await visitor.get("/")).text
        thief = Browser(app=browser.app, cookies=dict(visitor.cookies))
        assert (await thief.get("/")).status == 303, "the kernel does not say that this is the same user"

    play_console(people, scenario)


@pytest.mark.parametrize(
    "shown", ["Bearer ", "Bearer", "Basic YW5hOmFuYQ==", "", "Bearer two words", "Bearer " + "x" * 20_000]
)
def test_who_shows_something_unusable_is_nobody(people: People, shown: str) -> None:
    async def scenario(rig: Rig, browser: Browser) -> None:
        visitor = browser.as_("")
        await visitor.post("/sign-in", {"token": people.token("ana"), "next": "/"})
        assert (await visitor.get("/?format=json")).status == 200
        assert (await visitor.get("/?format=json", authorization=shown)).status == 401

    play_console(people, scenario)


def test_addresses_that_are_none_are_refused(people: People) -> None:
    async def scenario(rig: Rig, browser: Browser) -> None:
        assert (await browser.get("/sign-in?next=//[")).status == 200
        assert (await browser.get("/sign-in?next=/%2F[")).status == 200
        assert (await browser.post("/sign-out", {}, origin="http://[")).status == 403
        assert (await browser.post("/sign-out", {}, origin="null")).status == 403

    play_console(people, scenario)


def test_every_answer_has_the_headers_of_security(people: People) -> None:
    async def scenario(rig: Rig, browser: Browser) -> None:
        for address in ("/", "/sign-in", "/nothing", "/health", "/?format=json"):
            answer = await browser.get(address)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"
        assert (await browser.get("/health")).json() == {"gateway": "serving"}
        page = (await browser.get("/")).text
        style = page.split('rel="stylesheet" href="')[1].partition('"')[0]
        assert "immutable" in (await browser.get(style)).headers["cache-control"]
        assert " style=" not in page and "javascript:" not in page and " onclick" not in page

    play_console(people, scenario)


def test_a_name_that_somebody_bound_to_loopback_is_not_answered(people: People) -> None:
    async def scenario(rig: Rig, browser: Browser) -> None:
        for host, status in (("evil.example:7734", 421), ("localhost:9999", 200), ("[::1]:7734", 200), ("", 421)):
            asking = Browser(app=browser.app, token=browser.token, host=host)
            assert (await asking.get("/")).status == status, host

    play_console(people, scenario)
