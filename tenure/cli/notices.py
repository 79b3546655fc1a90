"""What is to be said of a followed job, from what the gateway shows of it. No clock, nothing is sent: see `follow.py`.

A notice has a key of its job, its run and what happened, so that the same thing is the same notice whoever looks, and
however often.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tenure.domain.units import MINUTE, Millis

if TYPE_CHECKING:
    from tenure.v1 import jobs_pb2

WARNED_MS = (60 * MINUTE, 15 * MINUTE, 5 * MINUTE)
"""So long before its protection ends that is said, where it was protected for longer than that."""
OVER = frozenset({"completed", "failed", "preempted", "cancelled", "rejected"})
_STOPPED = {"drained": "stopped by a drain", "host_lost": "lost with a host"}


class Event(StrEnum):
    """What happened."""

    STARTED = "started"
    PROTECTION_ENDS = "protection_ends"
    PREEMPTED = "preempted"
    STOPPED = "stopped"
    REQUEUED = "requeued"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One thing to say. `at`: when it happened, epoch milliseconds; `run` is empty where it is about the whole job."""

    key: str
    event: Event
    job: str
    run: str
    budget: str
    user: str
    at: Millis
    text: str

    @property
    def document(self) -> dict[str, Any]:
        """As a web server is sent it, and `--json` prints it."""
        return {
            "key": self.key,
            "event": self.event.value,
            "job": self.job,
            "run": self.run or None,
            "budget": self.budget,
            "user": self.user,
            "at_ms": self.at,
            "text": self.text,
        }


def is_over(job: "jobs_pb2.Job") -> bool:
    """Whether nothing more happens to it."""
    return job.state in OVER


def notices_of(job: "jobs_pb2.Job", *, now: Millis) -> list[Notice]:
    """All that there is to say of a job at `now`, in the order in which it happened.

    Of the warnings that its protection ends only the last one that is due, and none when it has ended.
    """
    said = [notice for run in job.runs for notice in _of_run(job, run, now=now)]
    if is_over(job):
        code = next((run.exit_code for run in reversed(job.runs) if run.HasField("exit_code")), 0)
        status = f" with status {code}" if code and job.state == "failed" else ""
        said.append(_notice(job, Event.DONE, at=job.finished_at_ms or now, text=f"is over: {job.state}{status}"))
    return said


def keys_before(job: "jobs_pb2.Job", *, now: Millis, last_run_too: bool) -> set[str]:
    """What had been said of a job if it had been followed earlier: of all runs but the last one, or of that too."""
    last = job.runs[-1].run_id if job.runs else ""
    return {each.key for each in notices_of(job, now=now) if last_run_too or (each.run and each.run != last)}


def _of_run(job: "jobs_pb2.Job", run: "jobs_pb2.Run", *, now: Millis) -> Iterator[Notice]:
    if run.started_at_ms:
        yield _notice(job, Event.STARTED, run=run, at=run.started_at_ms, text=_started(run))
    if not run.ended_at_ms:
        if run.started_at_ms:
            yield from _warning(job, run, now=now)
        return
    if run.state == "preempted":
        by = f", for {run.ended_by}" if run.ended_by else ""
        yield _notice(job, Event.PREEMPTED, run=run, at=run.ended_at_ms, text=f"run {run.number} was preempted{by}")
    elif run.state in _STOPPED:
        by = f" ({run.ended_by})" if run.ended_by else ""
        text = f"run {run.number} was {_STOPPED[run.state]}{by}"
        yield _notice(job, Event.STOPPED, run=run, at=run.ended_at_ms, text=text)
    if run.number < len(job.runs) or not is_over(job):
        text = "is queued again, with the place of its first submission"
        yield _notice(job, Event.REQUEUED, run=run, at=run.ended_at_ms, text=text)


def _started(run: "jobs_pb2.Run") -> str:
    gpus = sum(len(place.gpus) for place in run.hosts)
    where = f"run {run.number} started: {gpus} GPUs on {len(run.hosts)} {'host' if len(run.hosts) == 1 else 'hosts'}"
    if run.protected_until_ms <= run.started_at_ms:
        return f"{where}, unallocated"
    return f"{where}, protected until {_clock(run.protected_until_ms)}"


def _warning(job: "jobs_pb2.Job", run: "jobs_pb2.Run", *, now: Millis) -> Iterator[Notice]:
    left, whole = run.protected_until_ms - now, run.protected_until_ms - run.started_at_ms
    due = [each for each in WARNED_MS if left <= each < whole]
    if left <= 0 or not due:
        return
    minutes = min(due) // MINUTE
    told = -(-left // MINUTE)
    text = f"run {run.number}: its protection ends in {told} min, at {_clock(run.protected_until_ms)}"
    at = run.protected_until_ms - min(due)
    yield _notice(job, Event.PROTECTION_ENDS, run=run, at=at, text=text, also=f"-{minutes}")


def _notice(
    job: "jobs_pb2.Job", event: Event, *, at: Millis, text: str, run: "jobs_pb2.Run | None" = None, also: str = ""
) -> Notice:
    of = job.job_id if run is None else run.run_id
    name = f" ({job.spec.name})" if job.spec.name else ""
    return Notice(
        key=f"{of}:{event}{also}",
        event=event,
        job=job.job_id,
        run="" if run is None else run.run_id,
        budget=job.spec.budget,
        user=job.spec.user,
        at=at,
        text=f"Job {job.job_id}{name} of {job.spec.budget}: {text}.",
    )


def _clock(when: Millis) -> str:
    return time.strftime("%H:%M %Z", time.localtime(when / 1000))
