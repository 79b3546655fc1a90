"""The web console of a real `tenure up` in a real browser: it follows facts, loads nothing, and is used by keys."""

import contextlib
import json
import os
import shutil
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.e2e.command_line import CommandLine, is_running, until

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PICTURES = Path(os.environ.get("CONSOLE_PICTURES", "")) if os.environ.get("CONSOLE_PICTURES") else None
"""Where screenshots are left, for who wants to look at them."""
BRIEF = {"min-runtime": "2m"}
"""A contract that ends before the gang that waits is to start."""
SOON_S = 2.0
"""A page is asked for every half second; the rest is for a busy machine."""


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    system = CommandLine(tmp_path_factory.mktemp("console"), hosts="4x4")
    budgets = system.root / "budgets.yaml"
    budgets.write_text(
        "budgets: {science: {share: 60, managers: [mia], children: {chem: {share: 50}, bio: {share: 50}}},"
        " robotics: {share: 40}}"
    )
    try:
        system.start("--budgets", str(budgets), "--console-listen", "127.0.0.1:0")
        yield system
    finally:
        system.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("needs a browser: install Debian's package `chromium`, or name one in CHROMIUM")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


def address_of(system: CommandLine) -> str:
    """Where the console said that it answers."""
    until(lambda: "the web console is at " in system.said, "the console's address")
    return system.said.split("the web console is at ")[1].split()[0]


def submit(system: CommandLine, *command: str, budget: str = "science/chem", **more: str) -> str:
    options = {"budget": budget, "gpus": "4", "min-runtime": "10m", **more}
    flags = [word for name, value in options.items() for word in (f"--{name}", value)]
    return system.ask("submit", *flags, "--", *command).strip()


class Looked:
    """A page with everything it said and asked for."""

    def __init__(self, browser: Browser, url: str, *, scheme: str = "light", width: int = 1440) -> None:
        self.page: Page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(url)

    def fits(self) -> bool:
        """Nothing is wider than the window, but for tables that scroll by themselves."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))

    def close(self) -> None:
        self.page.close()


@contextlib.contextmanager
def looking(browser: Browser, url: str, **options: Any) -> Iterator[Looked]:
    looked = Looked(browser, url, **options)
    try:
        yield looked
    finally:
        looked.close()


@pytest.fixture(scope="module")
def jobs(system: CommandLine) -> dict[str, str]:
    """Two that run, one that waits for a whole cluster, one that is over."""
    done = submit(system, "sh", "-c", "echo all is well", name="short")
    until(lambda: system.state(done) == "completed", "the short job")
    running = submit(
        system, "sh", "-c", "i=0; while true; do i=$((i+1)); echo step $i; sleep 0.2; done", name="train-large"
    )
    free = submit(system, "sleep", "1000", budget="robotics", **{"min-runtime": "0", "name": "sweep"})
    until(lambda: system.state(running) == system.state(free) == "running", "both to run")
    waiting = submit(system, "sleep", "1000", budget="science/bio", replicas="4", name="gang")
    return {"done": done, "running": running, "free": free, "waiting": waiting}


def test_a_fact_is_soon_on_the_open_page(system: CommandLine, browser: Browser, jobs: dict[str, str]) -> None:
    with looking(browser, address_of(system)) as looked:
        page = looked.page
        page.wait_for_selector(f'tr[data-key="{jobs["running"]}"]')
        job = submit(system, "sleep", "1000", gpus="1", name="fresh", **BRIEF)
        gone = time.monotonic()
        page.wait_for_selector(f'tr[data-key="{job}"]', timeout=5_000)
        assert time.monotonic() - gone < SOON_S
        until(lambda: system.state(job) == "running", "it to run")
        page.wait_for_selector(f'tr[data-key="{job}"] .s-running', timeout=1_500)
        system.ask("cancel", job)
        page.wait_for_selector(f'tr[data-key="{job}"]', state="detached", timeout=5_000)
        assert not looked.said, looked.said
        assert all(url.startswith(address_of(system)) for url in looked.asked)


def test_a_job_page_follows_its_output_and_its_owner_cancels_it(system: CommandLine, browser: Browser) -> None:
    command = ("sh", "-c", "echo begun; while true; do date; sleep 0.2; done")
    job = submit(system, *command, gpus="1", name="to-cancel", **BRIEF)
    until(lambda: system.state(job) == "running", "it to run")
    with looking(browser, f"{address_of(system)}/jobs/{job}") as looked:
        page = looked.page
        until(lambda: page.inner_text("#output").count("\n") > 8, "the output to go on")
        assert "begun" in page.inner_text("#output")
        assert page.inner_text(".clock .large").startswith("1m")
        page.click("details.danger summary")
        page.click("button.danger")
        page.wait_for_selector(".s-cancelled", timeout=20_000)
        page.wait_for_selector("text=JobCancelRequested")
        assert not looked.said, looked.said


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_every_page_fits_and_says_no_error(
    system: CommandLine, browser: Browser, jobs: dict[str, str], scheme: str, width: int
) -> None:
    until(lambda: system.json("job", jobs["waiting"])["why"]["reason"], "a reason to wait")
    pages = {
        "queue": "/?view=all",
        "job": f"/jobs/{jobs['running']}",
        "waiting": f"/jobs/{jobs['waiting']}",
        "budgets": "/budgets",
        "budget": "/budgets/science",
        "cluster": "/cluster?hours=1",
        "hosts": "/hosts",
        "host": "/hosts/h000",
        "incentives": "/incentives",
        "trouble": "/jobs/j-unknown",
        "sign-in": "/sign-in",
    }
    for name, path in pages.items():
        with looking(browser, f"{address_of(system)}{path}", scheme=scheme, width=width) as looked:
            looked.page.wait_for_timeout(700 if PICTURES else 0)
            if PICTURES is not None:
                PICTURES.mkdir(parents=True, exist_ok=True)
                looked.page.screenshot(path=PICTURES / f"{name}-{width}-{scheme}.png", full_page=True)
            errors = [text for text in looked.said if not (name == "trouble" and "404" in text)]
            assert not errors, (name, errors)
            assert looked.fits(), f"{name} is wider than {width}"
            assert looked.page.locator("h1").count() == 1 and looked.page.locator("main").count() == 1
            assert looked.page.evaluate(UNLABELLED) == [], name


UNLABELLED = """
[...document.querySelectorAll("input:not([type=hidden]), select, textarea, button, a, svg[role=img], th")]
    .filter((one) => !(one.labels && one.labels.length) && !one.textContent.trim()
        && !one.getAttribute("aria-label") && !one.getAttribute("aria-labelledby"))
    .map((one) => one.outerHTML)
"""


def test_the_queue_is_used_with_keys_alone(system: CommandLine, browser: Browser, jobs: dict[str, str]) -> None:
    with looking(browser, f"{address_of(system)}/") as looked:
        page = looked.page
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the page"
        page.keyboard.press("Enter")
        page.focus("#user")
        page.keyboard.type("nobody-at-all")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=No job is like that")
        assert "user=nobody-at-all" in page.url
        page.go_back()
        page.focus(f'tr[data-key="{jobs["waiting"]}"] a')
        focused = page.evaluate("document.activeElement.href")
        noise = submit(system, "sleep", "1000", gpus="1", name="noise", **BRIEF)
        page.wait_for_selector("text=noise")
        assert page.evaluate("document.activeElement.href") == focused, "what has the focus keeps it"
        system.ask("cancel", noise)
        page.keyboard.press("Enter")
        page.wait_for_selector("text=Why it waits")


def test_a_share_is_changed_after_a_preview(system: CommandLine, browser: Browser) -> None:
    with looking(browser, f"{address_of(system)}/budgets/science") as looked:
        page = looked.page
        page.click("text=Change the shares below science")
        page.fill("#share-1", "60")
        page.fill("#share-2", "30")
        page.fill("#comment", "more for bio")
        page.click("text=Preview")
        page.wait_for_selector("text=Nothing has been changed yet")
        assert "Together 90 %" in page.inner_text("main")
        page.click("text=Change the shares")
        page.wait_for_selector("text=more for bio")
        changes = system.json("budget", "history")["changes"]
        assert {change["path"] for change in changes if change["comment"] == "more for bio"} == {
            "science/bio",
            "science/chem",
        }


def test_a_host_is_drained_and_resumed(system: CommandLine, browser: Browser) -> None:
    with looking(browser, f"{address_of(system)}/hosts/h003") as looked:
        page = looked.page
        page.click("text=Drain …")
        page.fill("#drain-comment", "fan")
        page.click("button:has-text('Drain')")
        page.wait_for_selector(".s-drained, .s-draining")
        page.click("text=Resume …")
        page.click("button:has-text('Resume')")
        page.wait_for_selector(".s-healthy", timeout=20_000)


def test_a_console_that_dies_comes_back_and_the_jobs_go_on(system: CommandLine, jobs: dict[str, str]) -> None:
    url = address_of(system)
    before = system.children()["console"]
    os.kill(before, signal.SIGKILL)
    until(lambda: system.children().get("console", before) != before, "another console")

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
                return bool(json.loads(answer.read())["gateway"] == "serving")
        except (urllib.error.URLError, ConnectionError):
            return False

    until(answers, "the console at its address")
    assert system.state(jobs["running"]) == "running"


def test_a_taken_port_stops_nothing_and_off_is_off(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        wanted = f"127.0.0.1:{taken.getsockname()[1]}"
        system = CommandLine(tmp_path, hosts="1x1")
        try:
            system.start("--console-listen", wanted)
            url = address_of(system)
            assert wanted not in url and f"({wanted} is taken)" in system.said
            assert json.loads((system.data / "console.json").read_text())["url"] == url
            console = system.children()["console"]
            assert system.stop() == 0 and not is_running(console)
            system.start("--console-listen", "off")
            assert "console" not in system.children() and "web console" not in system.said
        finally:
            system.close()
