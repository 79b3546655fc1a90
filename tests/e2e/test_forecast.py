"""What `tenure queue` says of when jobs will start, on a real `tenure up`, against when they then do."""

from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tests.e2e.command_line import CommandLine, until

LASTS_S = 12
OFF_MS = 3_000
"""By so much a start may be off: processes have to start and to end on a busy machine."""


@pytest.fixture
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    system = CommandLine(tmp_path_factory.mktemp("up"), hosts="1x4")
    try:
        system.start()
        yield system
    finally:
        system.close()


def submit(system: CommandLine, *, gpus: int) -> str:
    return system.submit("--name", "step", "--", "sleep", str(LASTS_S), min_runtime="30s", gpus=gpus)


def with_forecast(system: CommandLine, jobs: list[str]) -> dict[str, Any]:
    """These jobs of the queue, once each that waits has a forecast."""

    def look() -> dict[str, Any] | None:
        answer = system.json("queue")
        found = {each["job"]: each for each in answer["jobs"] if each["job"] in jobs}
        waiting = [each for each in found.values() if each["state"] == "queued"]
        told = waiting and all(each["forecast_start_p50_ms"] for each in waiting)
        return found if told and not answer["forecast"]["trouble"] else None

    found: dict[str, Any] = until(look, "a forecast")
    return found


def test_jobs_start_when_the_queue_said(system: CommandLine) -> None:
    before = [submit(system, gpus=1) for _ in range(3)]
    for job in before:
        assert system.run("job", job, "--wait").returncode == 0
    jobs = [submit(system, gpus=4) for _ in range(3)]
    told = with_forecast(system, jobs)
    waiting = [job for job in jobs if job in told and told[job]["state"] == "queued"]
    assert jobs[2] in waiting and [told[job]["forecast_basis"] for job in waiting] == ["followed"] * len(waiting)
    assert all(told[job]["forecast_start_p50"] is None for job in told if job not in waiting), "they have started"
    assert "START P50" in system.ask("queue") and "Start, p50" in system.ask("job", jobs[2])
    for job in waiting:
        assert system.run("job", job, "--wait").returncode == 0
        started_ms = system.json("job", job)["first_started_at_ms"]
        assert abs(told[job]["forecast_start_p50_ms"] - started_ms) < OFF_MS
        assert told[job]["forecast_start_p90_ms"] >= told[job]["forecast_start_p50_ms"]


def test_without_its_process_the_queue_is_told_all_the_same(system: CommandLine) -> None:
    jobs = [submit(system, gpus=4) for _ in range(2)]
    with_forecast(system, jobs)
    killed = system.children()["forecast"]
    psutil.Process(killed).kill()
    assert {each["job"] for each in system.json("queue")["jobs"]} == set(jobs)
    until(lambda: system.children()["forecast"] != killed, "another process")
    jobs.append(submit(system, gpus=4))
    with_forecast(system, jobs)


def test_an_explanation_says_what_would_start_at_once(system: CommandLine) -> None:
    runs = system.submit("--", "sleep", "1000", min_runtime="1h", gpus=2)
    until(lambda: system.state(runs) == "running", "the first job to run")
    waits = system.submit("--", "sleep", "1000", min_runtime="1h", gpus=4)

    def told() -> dict[str, Any] | None:
        answer: dict[str, Any] = system.json("why", waits)
        return answer if answer["alternatives"] and answer["forecast"] else None

    answer = until(told, "what would change its start")
    outcomes = {each["change"]: each["outcome"] for each in answer["alternatives"]}
    assert outcomes["2 GPUs instead of 4"] == "now"
    assert "2 GPUs instead of 4" in system.ask("why", waits)
