"""Supervision, with real little processes: restarts, logs, orderly ends, and none that outlives its supervisor."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import msgspec
import pytest

from tenure.runtime.data_dir import ChildRecord
from tenure.runtime.processes import identify, is_alive, is_running
from tenure.runtime.supervisor import QUICK_FAILURES_MAX, ChildSpec, Supervisor, backoff_s, end_leftovers, ending

FOREVER = "import time; time.sleep(1000)"


class Watched:
    """A supervisor with all that it says and records."""

    def __init__(self, folder: Path, *, backoff: Callable[[int], float] = backoff_s) -> None:
        self.said: list[str] = []
        self.records: dict[str, ChildRecord] = {}
        self.folder = folder
        self.supervisor = Supervisor(say=self.said.append, record=self._record, backoff=backoff)

    def _record(self, records: Mapping[str, ChildRecord]) -> None:
        self.records = dict(records)

    def start(self, name: str, code: str, *, stop_s: float = 10.0) -> None:
        command = [sys.executable, "-c", code]
        self.supervisor.start(
            ChildSpec(name=name, command=command, log_file=self.folder / f"{name}.log", role=False, stop_s=stop_s)
        )


@contextlib.asynccontextmanager
async def watched(folder: Path, *, backoff: Callable[[int], float] = backoff_s) -> AsyncIterator[Watched]:
    watched = Watched(folder, backoff=backoff)
    try:
        yield watched
    finally:
        await watched.supervisor.stop(list(watched.records), hurry=asyncio.Event())


async def until(condition: Callable[[], object], patience_s: float = 15.0) -> None:
    async with asyncio.timeout(patience_s):
        while not condition():
            await asyncio.sleep(0.01)


def wait_for(condition: Callable[[], object], patience_s: float = 15.0) -> None:
    deadline = time.monotonic() + patience_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


def test_failures_are_tried_again_at_once_then_ever_later_then_seldom() -> None:
    assert [backoff_s(failures) for failures in range(7)] == [0, 0, 1, 2, 4, 30, 30]


@pytest.mark.parametrize(
    ("status", "said"),
    [(0, "ended with status 0"), (-9, "was ended by SIGKILL"), (-64, "was ended by SIGRTMAX"), (-99, "signal 99")],
)
def test_an_end_is_said_in_words(status: int, said: str) -> None:
    assert ending(status).endswith(said)


def test_a_child_that_is_killed_is_started_again_and_recorded(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with watched(tmp_path) as it:
            it.start("one", FOREVER)
            first = it.records["one"]
            os.kill(first.pid, signal.SIGKILL)
            await until(lambda: it.records["one"].pid != first.pid)
            assert it.said == [f"one was ended by SIGKILL; starting it again (log: {tmp_path}/one.log)"]
            second = it.records["one"].pid
        assert not is_alive(second) and not it.records

    asyncio.run(scenario())


def test_a_failing_child_is_said_with_its_last_words_while_the_rest_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with watched(tmp_path, backoff=lambda failures: 0.0 if failures < QUICK_FAILURES_MAX else 60.0) as it:
            it.start("good", FOREVER)
            it.start("bad", "import sys; sys.exit('no such disk')")
            await until(lambda: it.supervisor.is_failing("bad"))
            assert it.said[0].startswith("bad ended with status 1: no such disk; starting it again")
            assert it.said[-1].startswith(
                f"bad failed {QUICK_FAILURES_MAX} times in a row: no such disk; the rest goes"
            )
            assert f"{tmp_path}/bad.log" in it.said[-1] and len(it.said) == QUICK_FAILURES_MAX
            assert is_alive(it.records["good"].pid)

    asyncio.run(scenario())


def test_output_goes_to_the_log_and_errors_are_said_once(tmp_path: Path) -> None:
    line = "2026-11-29 21:09:52,123 one ERROR disk on fire"
    as_json = '{"time":"2026-11-29T21:09:52.123Z","level":"ERROR","role":"one","message":"lost"}'
    code = (
        f"import os, time; os.write(1, b'''hello\\n{line}\\n{line}\\n[7] 2026/11/29 21:09:52.1 [ERR] x\\n'''); "
        f"os.write(1, b'''{as_json}\\n'''); " + FOREVER
    )

    async def scenario() -> None:
        async with watched(tmp_path) as it:
            it.start("one", code)
            await until(lambda: len(it.said) == 3)
            assert it.said == ["one: one ERROR disk on fire", "one: [ERR] x", "one: lost"]
        assert (tmp_path / "one.log").read_text().startswith(f"hello\n{line}\n{line}\n")

    asyncio.run(scenario())


def test_a_descendant_that_holds_the_output_delays_no_restart(tmp_path: Path) -> None:
    code = "import subprocess; print(subprocess.Popen(['sleep', '1000'], start_new_session=True).pid, flush=True)"

    async def scenario() -> None:
        async with watched(tmp_path) as it:
            it.start("one", code)
            await until(lambda: it.said)
            assert it.said[0].startswith("one ended with status 0: ")
        for pid in (tmp_path / "one.log").read_text().split():
            os.kill(int(pid), signal.SIGKILL)

    asyncio.run(scenario())


def test_a_child_that_does_not_end_in_time_is_killed(tmp_path: Path) -> None:
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); " + FOREVER

    async def scenario() -> None:
        async with watched(tmp_path) as it:
            it.start("deaf", code, stop_s=0.2)
            await until(lambda: (tmp_path / "deaf.log").read_text())
            pid = it.records["deaf"].pid
            await it.supervisor.stop(["deaf"], hurry=asyncio.Event())
            assert not is_alive(pid) and it.said == ["deaf did not end in time and is killed"]

    asyncio.run(scenario())


def test_hurrying_does_not_wait_for_the_time_to_pass(tmp_path: Path) -> None:
    code = """
import signal, sys, time
count = 0
def end(*_):
    global count
    count += 1
    print('heard', flush=True)
    if count == 2: sys.exit()
signal.signal(signal.SIGTERM, end)
print('up', flush=True)
while True: time.sleep(0.01)
"""

    async def scenario() -> None:
        async with watched(tmp_path) as it:
            it.start("slow", code, stop_s=1000)
            await until(lambda: "up" in (tmp_path / "slow.log").read_text())
            hurry = asyncio.Event()
            stopping = asyncio.create_task(it.supervisor.stop(["slow"], hurry=hurry))
            await until(lambda: "heard" in (tmp_path / "slow.log").read_text())
            hurry.set()
            async with asyncio.timeout(10):
                await stopping
            assert not it.said

    asyncio.run(scenario())


def test_children_end_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    code = f"""
import asyncio
from pathlib import Path
from tests.unit.runtime.test_supervisor import Watched, FOREVER
async def main():
    it = Watched(Path({str(tmp_path)!r}))
    it.start("one", "print('up', flush=True); " + FOREVER)
    print(it.records["one"].pid, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        log = tmp_path / "one.log"
        wait_for(lambda: log.exists() and log.read_text() == "up\n")
        parent.kill()
    wait_for(lambda: not is_alive(child))


def test_a_child_whose_supervisor_is_gone_already_ends_at_once() -> None:
    command = [sys.executable, "-m", "tenure.runtime.orphan", "1", str(int(signal.SIGKILL)), "/bin/sleep", "1000"]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL


def test_leftovers_are_known_by_more_than_their_pid() -> None:
    with subprocess.Popen(["sleep", "1000"]) as left, subprocess.Popen(["sleep", "1000"]) as other:
        records = [record("left", left.pid), record("other", other.pid, ticks_earlier=100), record("gone", left.pid)]
        records[2] = ChildRecord(**{**msgspec.to_builtins(records[2]), "boot_id": "another boot"})
        assert end_leftovers(records) == ["left"]
        assert left.wait(5) == -signal.SIGKILL and other.poll() is None
        other.kill()


def record(name: str, pid: int, *, ticks_earlier: int = 0) -> ChildRecord:
    identity = identify(pid)
    assert identity is not None
    return ChildRecord(
        name=name,
        pid=pid,
        start_ticks=identity.start_ticks - ticks_earlier,
        boot_id=identity.boot_id,
    )


def test_one_that_waits_for_burial_runs_no_more() -> None:
    with subprocess.Popen(["sleep", "1000"]) as process:
        identity = identify(process.pid)
        assert identity is not None and is_running(identity) and is_alive(process.pid)
        process.kill()
        wait_for(lambda: not is_alive(process.pid))
        assert not is_running(identity) and identify(process.pid) is None
