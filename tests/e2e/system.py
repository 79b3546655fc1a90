"""A whole tenure in a temporary directory: `tenure up` as a child, its client, its processes, its log."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import psutil

from tenure.events.catalogue import KINDS
from tenure.events.fact import Recorded
from tenure.log.access import Access
from tenure.log.jetstream import JetStreamLog
from tenure.runtime.data_dir import DataDir
from tenure.runtime.reader import reader_access
from tenure.sdk.client import Client
from tenure.sdk.errors import ServerError
from tenure.v1.jobs_pb2 import Job, JobSpec, Step
from tests.checks.invariants import check_log

TENURE = Path(sys.executable).parent / "tenure"
T = TypeVar("T")
FAST = (
    "lookback=10m",
    "min_runtime_cap=60s",
    "heartbeat=500ms",
    "suspect_after=4s",
    "lost_after=12s",
    "escrow_slack=5s",
)
BUDGETS = """
budgets:
  a: {share: 40}
  b: {share: 40}
  c: {share: 20, children: {x: {share: 50}, y: {share: 50}}}
"""
FINAL = ("completed", "failed", "preempted", "cancelled", "rejected")


class System:
    """A running `tenure up`. `data` survives `kill` and `stop`, so that `start` again is a restart."""

    def __init__(self, folder: Path, *, hosts: str = "4x4", knobs: Sequence[str] = FAST) -> None:
        self.data = folder / "data"
        self.hosts, self.knobs = hosts, knobs
        self.budgets = folder / "budgets.yaml"
        self.budgets.write_text(BUDGETS)
        self.output = folder / "up.txt"
        self.process: subprocess.Popen[bytes] | None = None
        self.client: Client

    @property
    def address(self) -> str:
        """Where the gateway answers."""
        return str(json.loads((self.data / "endpoint.json").read_text())["address"])

    def start(self, *, timeout_s: float = 40) -> "System":
        """Start, and wait until it says that it is up."""
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        command = [str(TENURE), "up", "--data", str(self.data), "--hosts", self.hosts, "--budgets", str(self.budgets)]
        command += ["--listen", f"127.0.0.1:{port}", *[word for knob in self.knobs for word in ("--set", knob)]]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        self.until(lambda: b"tenure is up" in self.output.read_bytes() or None, timeout_s=timeout_s, what="up")
        self.client = Client(self.address)
        return self

    def stop(self) -> int:
        """Ctrl-C. Returns the exit status; asserts that nothing is left behind."""
        assert self.process is not None
        children = self.children()
        self.client.close()
        self.process.send_signal(signal.SIGINT)
        status = self.process.wait(timeout=30)
        left = [name for name, pid in children.items() if psutil.pid_exists(pid)]
        assert not left, f"left behind: {left}"
        return status

    def kill_everything(self) -> None:
        """kill -9 of `up` and of every process it started; running jobs are left alone."""
        assert self.process is not None
        self.client.close()
        children = self.children()
        self.process.kill()
        for pid in children.values():
            kill(pid)
        self.process.wait()
        self.until(lambda: not any(is_running(pid) for pid in children.values()) or None, what="the end of all")

    def children(self) -> dict[str, int]:
        """Pids of the processes of the system by role."""
        return {child["name"]: child["pid"] for child in json.loads((self.data / "children.json").read_text())}

    def kill_role(self, role: str) -> None:
        """kill -9 of one role; the supervisor starts it again. Returns when it is another process."""
        before = self.children()[role]
        kill(before)
        self.until(lambda: self.children().get(role, before) != before or None, what=f"{role} again")

    def until(self, probe: Callable[[], T | None], *, timeout_s: float = 30, what: str = "it") -> T:
        """The first answer of `probe` that is not None. Fails with what the system said when time is up."""
        deadline = time.monotonic() + timeout_s
        while True:
            answer = probe()
            if answer is not None:
                return answer
            if time.monotonic() > deadline:
                said = self.output.read_text(errors="replace")[-3000:] if self.output.exists() else ""
                raise AssertionError(f"{what} did not come in {timeout_s} s; the system said:\n{said}")
            time.sleep(0.02)

    def submit(self, budget: str, command: Sequence[str], *, gpus: int = 1, seconds: float = 0, **more: object) -> str:
        """Submit with a minimum runtime of `seconds`; returns the job id."""
        spec = JobSpec(
            budget=budget,
            user="tester",
            gpus_per_replica=gpus,
            replicas=int(more.pop("replicas", 1)),  # type: ignore[call-overload]
            min_runtime_ms=int(seconds * 1000),
            command=list(command),
            **more,  # type: ignore[arg-type]
        )
        return self.client.submit(spec)

    def wait(self, job_id: str, *states: str, timeout_s: float = 30) -> Job:
        """The job once it is in one of `states` (default: over)."""
        wanted = states or FINAL

        def probe() -> Job | None:
            try:
                job = self.client.job(job_id)
            except ServerError:
                return None
            return job if job.state in wanted else None

        return self.until(probe, timeout_s=timeout_s, what=f"{job_id} {'/'.join(wanted)}")

    def output_of(self, job_id: str, *, run: int = 0, replica: int = 0) -> str:
        """What a replica wrote to stdout."""
        return b"".join(self.client.output(job_id, run=run, replica=replica)).decode()

    def story_of(self, job_id: str) -> list[Step]:
        """The job's story, once the database shows all of it."""

        def probe() -> list[Step] | None:
            answer = self.client.explain(job_id)
            return list(answer.steps) if answer.position >= answer.last_position else None

        return self.until(probe, what=f"the whole story of {job_id}")

    def recorded(self) -> list[Recorded]:
        """The whole log so far."""
        endpoint = DataDir(self.data).endpoint()
        assert endpoint is not None, "it is running"
        return asyncio.run(read_log(reader_access(endpoint), endpoint.cluster))

    def check(self) -> list[Recorded]:
        """Assert I1-I10 on the log so far, and return it."""
        recorded = self.recorded()
        check_log(recorded)
        return recorded


async def read_log(server: str | Access, cluster: str) -> list[Recorded]:
    """All facts of a log up to now."""
    log = await JetStreamLog.connect(server, cluster=cluster)
    try:
        kinds = list(KINDS.values())
        head = await log.head()
        feed = await log.follow(kinds, after=0)  # type: ignore[arg-type]
        recorded: list[Recorded] = []
        while not recorded or recorded[-1].position < head:
            recorded.extend(await feed.next(10))
        await feed.close()
        return recorded
    finally:
        await log.close()


@contextmanager
def running(folder: Path, **options: object) -> Iterator[System]:
    """A system for the length of a block; stopped, or killed if it cannot be stopped, whatever happens."""
    system = System(folder, **options)  # type: ignore[arg-type]
    try:
        yield system.start()
    finally:
        process = system.process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                system.kill_everything()


def kill(pid: int) -> None:
    """kill -9, if it is still there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def is_running(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
