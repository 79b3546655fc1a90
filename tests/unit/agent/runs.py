"""Runs as the placer assigns them, for tests of the agent."""

from tenure.domain.ids import BudgetPath, HostId, JobId, RunId, UserName
from tenure.domain.job import Launch, ReplicaPlace
from tenure.domain.reasons import Reason, Why
from tenure.events.placing import RunAssigned

RUN, JOB = RunId("j.1"), JobId("j")
WHY = Why(rule="P4", reason=Reason.START_IN_ORDER)


def assigned(*hosts: str, **more: object) -> RunAssigned:
    """A run with a replica of two GPUs on each of these hosts."""
    places = tuple(ReplicaPlace(replica=n, host=HostId(host), gpus=(2 * n, 2 * n + 1)) for n, host in enumerate(hosts))
    values: dict[str, object] = {
        "at": 0,
        "run": RUN,
        "job": JOB,
        "number": 1,
        "budget": BudgetPath("a"),
        "user": UserName("u"),
        "placement": places,
        "launch": Launch(command=("true",)),
        "min_runtime_ms": 60_000,
        "resumable": True,
        "grace_ms": 7_000,
        "resume_count": 0,
        "master_address": "127.0.0.1",
        "master_port": 20_000,
        "why": WHY,
    }
    return RunAssigned(**{**values, **more})  # type: ignore[arg-type]
