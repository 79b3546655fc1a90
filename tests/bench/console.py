"""How fast the web console is with a full queue: `python -m tests.bench.console [--jobs N] [--hosts NxG]`.

One `tenure up` with 1,024 virtual GPUs and 10,000 jobs, most of which wait. A real browser opens each page several
times: until its first paint, until it is whole. Then a page of the queue is open while jobs are submitted and
cancelled: from the moment the gateway has acknowledged that to the moment it is on the page.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from tenure.v1.jobs_pb2 import JobSpec
from tests.e2e.system import System, running

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
JOBS, HOSTS, TIMES = 10_000, "128x8", 5
KNOBS = ("heartbeat=5s",)
PAGES = {
    "queue": "/",
    "queue_page_90": "/?view=queued&page=90",
    "queue_500_rows": "/?size=500",
    "budgets": "/budgets",
    "budget": "/budgets/c",
    "cluster": "/cluster?hours=1",
    "hosts": "/hosts",
}
PAINT = """() => Object.fromEntries([
    ...performance.getEntriesByType("paint").map((entry) => [entry.name, entry.startTime]),
    ["whole", performance.getEntriesByType("navigation")[0].loadEventEnd],
])"""


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--hosts", default=HOSTS)
    arguments = parser.parse_args()
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        print("needs a browser: install Debian's package `chromium`, or name one in CHROMIUM", file=sys.stderr)
        return 1
    with (
        tempfile.TemporaryDirectory(prefix="tenure-console-") as folder,
        running(Path(folder), hosts=arguments.hosts, knobs=KNOBS) as system,
        sync_playwright() as playwright,
    ):
        fill(system, arguments.jobs)
        url = system.until(lambda: address_of(system), what="the console")
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        first: dict[str, int] = {}
        whole: dict[str, int] = {}
        for name, path in PAGES.items():
            paints = [painted(browser, f"{url}{path}") for _ in range(TIMES)]
            first[name] = round(statistics.median(each["first-contentful-paint"] for each in paints))
            whole[name] = round(statistics.median(each["whole"] for each in paints))
            print(name, paints[-1], file=sys.stderr, flush=True)
        figures: dict[str, object] = {"first_paint_ms": first, "whole_ms": whole}
        figures["update_ms"] = updates(system, browser, url)
        browser.close()
    figures["conditions"] = {"jobs": arguments.jobs, "hosts": arguments.hosts, "times": TIMES}
    print(json.dumps(figures))
    return 0


def fill(system: System, jobs: int) -> None:
    """Fill the hosts with jobs that are protected, and the queue with others."""
    for budget in ("a", "b"):
        spec = JobSpec(
            budget=budget,
            user=f"user-{budget}",
            gpus_per_replica=8,
            replicas=1,
            min_runtime_ms=8 * 3_600_000,
            name=f"train-{budget}",
            command=["/bin/sleep", "100000"],
        )
        system.client.submit_batch([spec] * (jobs // 2))

    def settled() -> bool | None:
        counts = system.client.jobs(limit=1).counts
        return (counts["queued"] + counts["running"] >= jobs and counts["running"] > 0) or None

    system.until(settled, timeout_s=180, what="the queue")


def address_of(system: System) -> str | None:
    """Where the console answers."""
    said = system.output.read_text(errors="replace")
    return said.split("the web console is at ")[1].split()[0] if "the web console is at " in said else None


def painted(browser: Browser, url: str) -> dict[str, float]:
    """One visit without anything kept: milliseconds to the first paint, and to all of it."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(url, wait_until="load")
    page.wait_for_selector("h1")
    wait(lambda: "first-contentful-paint" in page.evaluate(PAINT), page)
    found: dict[str, float] = page.evaluate(PAINT)
    page.close()
    return found


def updates(system: System, browser: Browser, url: str) -> dict[str, float]:
    """From the acknowledgement of a submission, and of a cancellation, to the page that is open."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(f"{url}/?user=watched", wait_until="load")
    lengths: list[float] = []
    for _ in range(2 * TIMES):
        spec = JobSpec(budget="c/x", user="watched", gpus_per_replica=8, replicas=1, command=["/bin/sleep", "1000"])
        spec.min_runtime_ms = 10_000
        job = system.client.submit(spec)
        began = time.monotonic()
        wait(lambda job=job: page.locator(f'tr[data-key="{job}"]').count() == 1, page)  # type: ignore[misc]
        lengths.append(1000 * (time.monotonic() - began))
        system.client.cancel(job, user="watched")
        began = time.monotonic()
        wait(lambda job=job: page.locator(f'tr[data-key="{job}"]').count() == 0, page)  # type: ignore[misc]
        lengths.append(1000 * (time.monotonic() - began))
    page.close()
    ordered = sorted(lengths)
    return {"median": round(statistics.median(ordered)), "longest": round(ordered[-1])}


def wait(condition: Callable[[], bool], page: Page) -> None:
    """Until it is so."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it was not so in 30 s"
        page.wait_for_timeout(10)


if __name__ == "__main__":
    sys.exit(main())
