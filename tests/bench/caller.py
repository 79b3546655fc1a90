"""The caller of the bench `load`, a process of its own: submits at a rate, whether answers come or not.

`python -m tests.bench.caller ADDRESS RATE SECONDS BACKLOG USERS FILE HOSTS OFF [WORD ...]`: the ids of acknowledged
jobs go to FILE, and a JSON object of what became of all to stdout. USERS are names with commas between them, who submit
in turn; HOSTS of 8 GPUs are what those jobs want that wait (more than are free, or they are promised a start, and what
the others could use is kept for them), and OFF a host that the others keep off, if it is not empty; WORDs are the
command of the jobs (`true`).
"""

import asyncio
import json
import sys
import time
from collections import Counter, deque
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from tenure.v1.jobs_pb2 import CancelJobRequest, JobSpec, SubmitRequest
from tenure.v1.jobs_pb2_grpc import JobsStub

if TYPE_CHECKING:
    from tenure.v1.jobs_pb2_grpc import JobsAsyncStub

DEADLINE_S = 10.0
RUNS_EVERY = 10
"""One job in so many can run at once; the others want more GPUs than are free."""
CANCEL_TRIES = 60
IN_FLIGHT_MAX = 4_000
"""A caller has so many connections at most: what it would send beyond counts as not answered."""


class Caller:
    """Submissions under way, and what became of them."""

    def __init__(
        self,
        stub: "JobsAsyncStub",
        *,
        backlog: int,
        name: str,
        users: Sequence[str],
        hosts: int,
        off: Sequence[str],
        command: Sequence[str],
    ) -> None:
        self._stub, self._backlog, self._name, self._users = stub, backlog, name, users
        self._hosts, self._off, self._command = hosts, off, command
        self.acknowledged: list[str] = []
        self.refused: Counter[str] = Counter()
        self.waits_ms: list[float] = []
        self.in_flight = 0
        self._waiting: deque[tuple[str, str]] = deque()
        """Jobs that wait, with their users, oldest first."""
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, number: int) -> None:
        """Send one; its answer is noted when it comes."""
        if self.in_flight >= IN_FLIGHT_MAX:
            self.refused["not sent"] += 1
            return
        self._begin(self._submit(number))

    async def finish(self) -> None:
        """Cancel what still waits, and wait for every answer."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        while self._waiting:
            some = [self._waiting.popleft() for _ in range(min(50, len(self._waiting)))]
            await asyncio.gather(*(self._cancel(job, user) for job, user in some))

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _submit(self, number: int) -> None:
        self.in_flight += 1
        began = time.monotonic()
        runs = number % RUNS_EVERY == 0
        spec = JobSpec(budget="a", user=self._users[number % len(self._users)], command=self._command)
        spec.gpus_per_replica, spec.replicas = (1, 1) if runs else (8, self._hosts)
        spec.hosts_excluded.extend(self._off if runs else ())
        spec.min_runtime_ms = 10_000 if runs else 900_000
        request = SubmitRequest(job=spec, idempotency_key=f"{self._name}-{number}")
        try:
            job = (await self._stub.Submit(request, timeout=DEADLINE_S)).job_id
        except grpc.aio.AioRpcError as error:
            self.refused[error.code().name] += 1
            return
        finally:
            self.in_flight -= 1
        self.waits_ms.append(1000 * (time.monotonic() - began))
        self.acknowledged.append(job)
        if runs:
            return
        self._waiting.append((job, spec.user))
        if len(self._waiting) > self._backlog:
            self._begin(self._cancel(*self._waiting.popleft()))

    async def _cancel(self, job: str, user: str) -> None:
        """Until it is heard, or has long not been."""
        for _ in range(CANCEL_TRIES):
            try:
                await self._stub.Cancel(CancelJobRequest(job_id=job, user=user), timeout=DEADLINE_S)
                return
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.5)


async def drive(address: str, rate: int, seconds: int, file: Path, **how: Any) -> None:
    """Submit, wait for the rest, tell. `how`: see `Caller`."""
    async with grpc.aio.insecure_channel(address) as channel:
        caller = Caller(JobsStub(channel), name=file.name, **how)
        began = time.monotonic()
        for number in range(rate * seconds):
            ahead = began + number / rate - time.monotonic()
            if ahead > 0:
                await asyncio.sleep(ahead)
            elif number % 50 == 0:
                await asyncio.sleep(0)
            caller.submit(number)
        sent_s = time.monotonic() - began
        await caller.finish()
    file.write_text("\n".join(caller.acknowledged))
    waits = sorted(caller.waits_ms) or [0.0]
    told = {
        "offered": rate * seconds,
        "offered_per_s": round(rate * seconds / sent_s, 1),
        "acknowledged": len(caller.acknowledged),
        "refused": dict(caller.refused),
        "submit_ms": {"p50": round(waits[len(waits) // 2], 1), "p99": round(waits[int(len(waits) * 0.99)], 1)},
    }
    print(json.dumps(told))


if __name__ == "__main__":
    address, rate, seconds, backlog, users, told, hosts, off, *command = sys.argv[1:]
    asyncio.run(
        drive(
            address,
            int(rate),
            int(seconds),
            Path(told),
            backlog=int(backlog),
            users=users.split(","),
            hosts=int(hosts),
            off=[off] if off else [],
            command=command or ["true"],
        )
    )
