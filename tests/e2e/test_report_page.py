"""The page of a simulated log in a real browser: it asks for nothing, says no error, zooms, and has its tables."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from simulator.pictures.page import write_html
from tests.unit.simulator.pictures.five_runs import BUDGETS, ended, lines, started, submitted

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SCHEMES = ("light", "dark")
SERVED = {"delivered_gpu_hours": 4.0, "wait_mean_s": 60.0}
WHAT_IF = {
    "changes": ["budgets of <b>new</b>.yaml"],
    "compared_with": "replay",
    "budgets": [
        {
            "name": name,
            "really": SERVED,
            "before": SERVED,
            "after": {"delivered_gpu_hours": 4.0 + change, "wait_mean_s": None},
            "delivered_change_gpu_hours": change,
            "unallocated_change_gpu_hours": 0.0,
        }
        for name, change in (("a", 3.0), ("b/x", 0.0), ("b/y", -1.5))
    ],
    "users": [],
}


def many() -> list[dict[str, Any]]:
    """A month of 64 hosts of 8 GPUs: so much that it is seen in bands from afar."""
    told: list[dict[str, Any]] = [{"t": 0, "type": "origin", "epoch_ms": 0}]
    told.append({"t": 0, "type": "budget_tree", "shares": BUDGETS, "users_equal": []})
    told += [{"t": 0, "type": "capacity", "host": f"h{host:02}", "gpus": 8, "gpu_type": "H100"} for host in range(64)]
    for day in range(30):
        for host in range(64):
            job, at = f"j{day:02}{host:02}", day * 86_400
            free = host % 8 == 0
            budget, gpus = ("a", "b/x", "b/y")[(host + day) % 3], list(range(8))
            told.append(submitted(job, at, budget=budget, gpus=8, min_runtime_s=0 if free else 3_600))
            hosts = {f"h{host:02}": gpus}
            told.append(started(f"{job}.1", at, hosts, protected_until=at + 3_600, charged=not free))
            cause = "preempted" if host % 5 == 0 else "completed"
            told.append(ended(f"{job}.1", at + 80_000, cause, by="j0101", reason="disrupt_lower_ratio"))
    return sorted(told, key=lambda line: line["t"])


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("needs a browser: install Debian's package `chromium`, or name one in CHROMIUM")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


def until_true(page: Page, expression: str, *, timeout_s: float = 30) -> None:
    """Wait for it. Asked from outside: the page's content security policy forbids that it polls a string itself."""
    until = time.monotonic() + timeout_s
    while not page.evaluate(expression):
        assert time.monotonic() < until, f"never true: {expression}"
        page.wait_for_timeout(20)


class Opened:
    """A page in the browser with everything it said and asked for."""

    def __init__(self, page: Page, file: Path) -> None:
        self.page = page
        self.said: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))
        page.goto(file.as_uri())
        page.wait_for_selector("#timeline[data-drawn]")

    def sees(self) -> list[float]:
        """Instants and rows that the timeline shows: t0, t1, r0, r1."""
        seen: list[float] = self.page.evaluate("[view.t0, view.t1, view.r0, view.r1]")
        return seen

    def detail(self) -> str | None:
        """`bands` or `bars`, once what was asked for is drawn."""
        until_true(self.page, "!redraw.asked")
        return self.page.get_attribute("#timeline", "data-detail")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    for name, told in (("few", lines()), ("many", many())):
        report = {"policy": "fair", **({"what_if": WHAT_IF} if name == "few" else {})}
        write_html(folder / f"{name}.html", lines=told, report=report, budgets={})
    return {name: folder / f"{name}.html" for name in ("few", "many")}


@pytest.fixture
def open_page(browser: Browser, files: dict[str, Path]) -> Iterator[Any]:
    contexts = []

    def opened(name: str, scheme: str = "light") -> Opened:
        context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=scheme, offline=True)
        contexts.append(context)
        return Opened(context.new_page(), files[name])

    yield opened
    for context in contexts:
        context.close()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", ["few", "many"])
def test_no_error_and_no_request(open_page: Any, name: str, scheme: str) -> None:
    opened = open_page(name, scheme)
    opened.page.emulate_media(color_scheme=SCHEMES[scheme == "light"])
    until_true(opened.page, "drawn > 1")
    assert opened.said == []
    assert [url for url in opened.asked if not url.startswith("file:")] == []
    assert len(opened.asked) == 1


def test_schemes_differ_in_ground_and_ink(open_page: Any) -> None:
    colours = []
    for scheme in SCHEMES:
        page = open_page("few", scheme).page
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        corner = page.evaluate("[...context.getImageData(3, 3, 1, 1).data]")
        colours.append((ground, f"rgb({corner[0]}, {corner[1]}, {corner[2]})"))
    assert [ground == corner for ground, corner in colours] == [True, True], "the canvas stands on the page's ground"
    assert colours[0] != colours[1]


def test_keys_zoom_and_move(open_page: Any) -> None:
    opened = open_page("many")
    assert opened.detail() == "bands"
    whole = opened.sees()
    opened.page.focus("#timeline")
    for _ in range(4):
        opened.page.keyboard.press("+")
    t0, t1, r0, r1 = opened.sees()
    assert (t1 - t0) < (whole[1] - whole[0]) / 3 and [r0, r1] == whole[2:]
    opened.page.keyboard.press("ArrowRight")
    assert opened.sees()[0] > t0
    for _ in range(8):
        opened.page.keyboard.press("Shift+ArrowUp")
    assert opened.detail() == "bars"
    opened.page.keyboard.press("Home")
    assert opened.sees() == whole and opened.detail() == "bands"


def test_the_wheel_zooms_about_the_pointer_only_when_asked(open_page: Any) -> None:
    opened = open_page("many")
    box = opened.page.locator("#timeline").bounding_box()
    opened.page.mouse.move(box["x"] + 700, box["y"] + 100)
    whole = opened.sees()
    opened.page.mouse.wheel(0, -300)
    until_true(opened.page, "window.scrollY === 0")
    assert opened.sees() == whole, "a page is scrolled with the wheel"
    before = opened.page.evaluate("atOf(700)")
    opened.page.keyboard.down("Control")
    opened.page.mouse.wheel(0, -300)
    until_true(opened.page, "view.t1 - view.t0 < data.end")
    assert opened.page.evaluate("atOf(700)") == pytest.approx(before, abs=1)


def test_dragging_moves_and_dragging_with_shift_zooms_into_the_box(open_page: Any) -> None:
    opened = open_page("many")
    box = opened.page.locator("#timeline").bounding_box()
    wanted = opened.page.evaluate("[atOf(400), atOf(600), rowOf(100), rowOf(200)]")
    opened.page.keyboard.down("Shift")
    drag(opened.page, box, (400, 100), (600, 200))
    opened.page.keyboard.up("Shift")
    assert opened.sees() == pytest.approx(wanted, rel=0.01)
    drag(opened.page, box, (600, 200), (500, 200))
    assert opened.sees()[0] > wanted[0]


def drag(page: Page, box: Any, start: tuple[int, int], end: tuple[int, int]) -> None:
    page.mouse.move(box["x"] + start[0], box["y"] + start[1])
    page.mouse.down()
    page.mouse.move(box["x"] + end[0], box["y"] + end[1], steps=4)
    page.mouse.up()


def test_a_bar_tells_its_run(open_page: Any) -> None:
    """j1.1 holds the first four GPUs until 1:30, when j2 preempts it."""
    opened = open_page("few")
    assert opened.detail() == "bars"
    box = opened.page.locator("#timeline").bounding_box()
    x, y = opened.page.evaluate(f"[xOf({4_500}), yOf(1.5)]")
    opened.page.mouse.move(box["x"] + x, box["y"] + y)
    tip = opened.page.inner_text("#tip")
    for told in (
        "h000, GPU 1",
        "j1, run 1",
        "a, ana",
        "4 GPUs for 1.5 h",
        "at least 1 h, resumable",
        "preempted by j2",
    ):
        assert told in tip
    assert "disrupt lower ratio (P5): ratio 0.5, level a" in tip
    assert "until day 0, 01:00:00" in tip
    opened.page.mouse.click(box["x"] + x, box["y"] + y)
    assert opened.page.locator("#details button").count() == 2, "the job has two runs"


def test_bands_tell_who_held_how_much(open_page: Any) -> None:
    opened = open_page("many")
    box = opened.page.locator("#timeline").bounding_box()
    opened.page.mouse.move(box["x"] + 500, box["y"] + 60)
    tip = opened.page.inner_text("#tip")
    assert "b/x" in tip and "GPUs" in tip and "may be interrupted" in tip


def test_a_job_is_found(open_page: Any) -> None:
    opened = open_page("many")
    opened.page.fill("#find", "j1207")
    opened.page.press("#find", "Enter")
    assert opened.detail() == "bars"
    assert "j1207, run 1" in opened.page.inner_text("#details")
    opened.page.fill("#find", "nobody")
    opened.page.press("#find", "Enter")
    assert (
        opened.page.evaluate("document.getElementById('find').validationMessage") == "There is no such job in this log."
    )


def test_every_chart_has_a_table_that_sorts(open_page: Any) -> None:
    page = open_page("few").page
    for part in ("delivered", "ratio", "parts", "waits", "stops"):
        section = page.locator(f"#{part}")
        if not section.locator("details").get_attribute("open"):
            section.locator("details").evaluate("(details) => { details.open = true; }")
        until_true(page, f"document.querySelector('#{part} details tbody tr') != null")
    heads = page.locator("#delivered thead th")
    heads.nth(4).locator("button").click()
    assert heads.nth(4).get_attribute("aria-sort") == "descending"
    first = page.locator("#delivered tbody tr").first.inner_text().split()
    assert first == ["a", "0", "14", "14", "12", "0.857"], "a: delivered 12 of 14 GPU-hours owed"


def test_who_gains_and_who_loses_is_shown_where_a_log_was_replayed(open_page: Any) -> None:
    page = open_page("few").page
    rows = page.locator("#gains-budgets tr").filter(has=page.locator(".bar"))
    assert [row.split() for row in rows.all_inner_texts()] == [["a", "+3"], ["b/y", "−1.5"]]
    assert "With budgets of <b>new</b>.yaml" in page.locator("#gains-budgets .note").inner_text()
    page.locator("#gains-budgets details").evaluate("(details) => { details.open = true; }")
    until_true(page, "document.querySelector('#gains-budgets details tbody tr') != null")
    first = page.locator("#gains-budgets details tbody tr").first.inner_text().split()
    assert first == ["a", "4", "4", "7", "3", "0", "60", "–"]
    assert "Nobody gains or loses" in page.locator("#gains-users").inner_text()
    assert open_page("many").page.locator("#gains-budgets").count() == 0


def test_per_day_and_summed_up(open_page: Any) -> None:
    page = open_page("many").page
    path = "#delivered .panel path"
    summed = page.locator(path).first.get_attribute("d")
    page.get_by_role("button", name="Per day").click()
    assert page.locator(path).first.get_attribute("d") != summed
    assert page.get_by_role("button", name="Per day").get_attribute("aria-pressed") == "true"


def test_what_is_drawn_for_paper_is_light(open_page: Any) -> None:
    page = open_page("few", "dark").page
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("[...context.getImageData(3, 3, 1, 1).data]") == [255, 255, 255, 255]
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
