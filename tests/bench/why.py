"""How long `Explain` takes with 10,000 jobs queued: `python -m tests.bench.why`.

A `tenure up` of 128 virtual hosts of 8 GPUs with real parts, full, as in `tests.bench.path`. Asked about are 200 queued
jobs from the front of the queue to its end, one call after another, then by four callers at once.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from tenure.sdk.client import Client
from tests.bench.path import fill, fresh_system, occupy, percentiles, spec, wait_for
from tests.e2e.system import System

QUEUED, ASKED, CALLERS = 10_000, 200, 4


def of_shapes(system: System) -> None:
    """Gangs of twenty shapes of two budgets."""
    fill(system, QUEUED)


def alike(system: System) -> None:
    """All the same job: of such only some are listed in the order."""
    occupy(system)
    system.client.submit_batch([spec("c/y", ["true"], gpus=8, replicas=4)] * QUEUED)
    wait_for(system, "queued", QUEUED)


def ask(client: Client, job: str) -> float:
    """The time that one answer takes, in ms; it must be whole."""
    began = time.perf_counter()
    answer = client.explain(job)
    took = (time.perf_counter() - began) * 1000
    assert answer.HasField("before") and answer.before.runs and answer.answer and answer.steps, f"{job} has no answer"
    return took


def has_settled(client: Client, jobs: Sequence[str]) -> bool:
    """Whether the database has all that the queue's coming in left in the log: until then a story waits for it."""
    answers = [client.explain(job) for job in (jobs[0], jobs[-1])]
    return all(answer.position >= answer.last_position for answer in answers)


def questions(system: System) -> list[str]:
    """Jobs of the queue, evenly from its first to its last."""
    jobs = [job.job_id for job in system.client.jobs(states=("queued",), limit=QUEUED).jobs]
    return jobs[:: max(1, len(jobs) // ASKED)][:ASKED]


def at_once(address: str, jobs: Sequence[str]) -> list[float]:
    """The same by several callers, each with a connection of its own."""

    def some(first: int) -> list[float]:
        with Client(address) as client:
            return [ask(client, job) for job in jobs[first::CALLERS]]

    with ThreadPoolExecutor(CALLERS) as pool:
        return [took for samples in pool.map(some, range(CALLERS)) for took in samples]


def measure(prepare: Callable[[System], None]) -> dict[str, object]:
    """The times of one queue."""
    with fresh_system() as system:
        prepare(system)
        jobs = questions(system)
        system.until(lambda: has_settled(system.client, jobs) or None, timeout_s=120, what="the journal")
        alone = [ask(system.client, job) for job in jobs]
        together = at_once(system.address, jobs)
    return {"answer_ms": percentiles(alone), f"answer_ms_of_{CALLERS}_callers": percentiles(together)}


def main() -> int:
    """Measure both queues and print one JSON object."""
    print(json.dumps({"shapes": measure(of_shapes), "alike": measure(alike)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
