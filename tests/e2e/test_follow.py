"""`tenure follow` on a running `tenure up`: what a hook is sent of a job that starts, gives way, and is over."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tenure.v1.jobs_pb2 import JobSpec
from tests.e2e.system import TENURE, System
from tests.integration.health.test_repair_plug import web_server

KNOBS = ("lookback=10m", "min_runtime_cap=10m", "heartbeat=500ms", "suspect_after=4s", "lost_after=12s")


@contextmanager
def following(system: System, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "TENURE_SERVER": system.address}
    process = subprocess.Popen([str(TENURE), "follow", *arguments, "--every", "1s"], env=environment)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(20)


def spec(command: str, *, min_runtime_ms: int, budget: str = "a") -> JobSpec:
    return JobSpec(
        budget=budget,
        command=["sh", "-c", command],
        replicas=1,
        gpus_per_replica=4,
        min_runtime_ms=min_runtime_ms,
        resumable=True,
        grace_ms=1_000,
        user="root" if os.getuid() == 0 else "",
    )


@pytest.mark.timeout(240)
def test_a_hook_hears_of_start_protection_preemption_and_end(tmp_path: Path) -> None:
    system = System(tmp_path, hosts="1x4", knobs=KNOBS).start()
    try:
        with web_server(lambda _: (200, b"")) as (url, got):
            told = lambda: [(each["job"], each["event"]) for each in (json.loads(body) for _, body in got)]  # noqa: E731
            free = system.client.submit(spec("test $TENURE_RESUME_COUNT != 0 || sleep 600", min_runtime_ms=0))
            with following(system, free, "--webhook", url, "--state", str(tmp_path / "kept.json")) as process:
                system.until(lambda: (free, "started") in told() or None, what="the start")
                paid = system.client.submit(spec("sleep 600", min_runtime_ms=303_000))
                system.until(lambda: (free, "requeued") in told() or None, what="that it is queued again")
                with following(system, paid, "--slack", url) as other:
                    texts = lambda: [json.loads(body)["text"] for _, body in got]  # noqa: E731
                    warned = f"Job {paid} of a: run 1: its protection ends in 5 min"
                    system.until(lambda: any(each.startswith(warned) for each in texts()) or None, what="the warning")
                    system.client.cancel(paid, user=spec("", min_runtime_ms=0).user)
                    assert other.wait(60) == 0
                assert process.wait(60) == 0
        of_free = [each for each in (json.loads(body) for _, body in got) if each.get("job") == free]
        assert [each["event"] for each in of_free] == ["started", "preempted", "requeued", "started", "done"]
        assert f"Run 1 is to stop for {paid}: it runs unallocated" in of_free[1]["text"]
        assert any(each["text"] == f"Job {paid} of a: is over: cancelled." for each in (json.loads(b) for _, b in got))
        with following(system, free, "--webhook", url, "--state", str(tmp_path / "kept.json")) as again:
            assert again.wait(30) == 0
        assert sum(headers.get("Idempotency-Key") == f"{free}:done" for headers, _ in got) == 1
    finally:
        system.stop()
