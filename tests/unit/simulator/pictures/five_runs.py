"""A log of five runs in four hours, small enough to do every sum by hand.

Two hosts of 4 GPUs; h001 is away in the third hour. Budgets: a 50 %, b/x and b/y 25 % each.

    h000  j1.1, 4 GPUs of a, 0:00-1:30, protected until 1:00, preempted for j2
          j2.1, 4 GPUs of b/x, 1:30-2:30, completes
          j1.2, 4 GPUs of a, 2:30-..., protected until 3:30
    h001  j3.1, GPUs 0 and 1, unallocated, of a, 0:10-2:00, lost with its host
          j4.1, GPUs 2 and 3 of b/y, 1:00-2:00, lost with its host; half an hour of it is refunded
"""

from typing import Any

from simulator.pictures.history import History, read_history
from tenure.domain.units import HOUR, Millis

HOURS = 3_600
BUDGETS = {"a": 0.5, "b": 0.5, "b/x": 0.5, "b/y": 0.5}
LEAVES = ("a", "b/x", "b/y")
END: Millis = 4 * HOUR


def lines() -> list[dict[str, Any]]:
    """The log, in order of time."""
    return [
        {"t": 0, "type": "origin", "epoch_ms": 0},
        {"t": 0, "type": "budget_tree", "shares": BUDGETS, "users_equal": []},
        {"t": 0, "type": "capacity", "host": "h001", "gpus": 4, "gpu_type": "H100"},
        {"t": 0, "type": "capacity", "host": "h000", "gpus": 4, "gpu_type": "H100"},
        submitted("j1", 0, budget="a", gpus=4, min_runtime_s=HOURS),
        started("j1.1", 0, {"h000": [0, 1, 2, 3]}, protected_until=HOURS),
        submitted("j3", 600, budget="a", gpus=2, min_runtime_s=0, resumable=False),
        started("j3.1", 600, {"h001": [0, 1]}, protected_until=600, charged=False),
        submitted("j4", 1_200, budget="b/y", gpus=2, min_runtime_s=HOURS, resumable=False),
        submitted("j2", HOURS, budget="b/x", gpus=4, min_runtime_s=1_800),
        started("j4.1", HOURS, {"h001": [3, 2]}, protected_until=2 * HOURS),
        ended("j1.1", 5_400, "preempted", by="j2", reason="disrupt_lower_ratio", numbers={"ratio": 0.5, "level": "a"}),
        started("j2.1", 5_400, {"h000": [0, 1, 2, 3]}, protected_until=7_200),
        {"t": 7_200, "type": "capacity", "host": "h001", "gpus": 0, "gpu_type": "H100"},
        ended("j3.1", 7_200, "host_lost", by="h001", reason="stop_host_lost"),
        ended("j4.1", 7_200, "host_lost", by="h001", reason="stop_host_lost", refunded_gpu_s=3_600),
        ended("j2.1", 9_000, "completed", reason="end_completed"),
        {"t": 9_000, "type": "job_finished", "job": "j2", "state": "completed", "reason": {}},
        started("j1.2", 9_000, {"h000": [0, 1, 2, 3]}, protected_until=12_600),
        {"t": 10_800, "type": "capacity", "host": "h001", "gpus": 4, "gpu_type": "H100"},
        {"t": 14_400, "type": "host_state", "host": "h001", "state": "healthy"},
    ]


def history() -> History:
    """The log as it is read."""
    return read_history(lines(), budgets={})


def submitted(job: str, t: float, *, budget: str, gpus: int, min_runtime_s: int, **more: Any) -> dict[str, Any]:
    line = {"t": t, "type": "job_submitted", "job": job, "budget": budget, "user": "ana", "replicas": 1}
    line |= {"gpus_per_replica": gpus, "min_runtime_s": min_runtime_s, "resumable": True, "priority": 0}
    return {**line, "gpu_type": None, **more}


def started(run: str, t: float, hosts: dict[str, list[int]], *, protected_until: float, **more: Any) -> dict[str, Any]:
    line = {"t": t, "type": "run_started", "job": run.split(".")[0], "run": run, "hosts": hosts, "charged": True}
    return {**line, "protected_until": protected_until, **more}


def ended(run: str, t: float, cause: str, *, reason: str, **more: Any) -> dict[str, Any]:
    why = {"rule": "P5", "reason": reason, "numbers": more.pop("numbers", {})}
    line = {"t": t, "type": "run_ended", "job": run.split(".")[0], "run": run, "cause": cause, "by": None}
    return {**line, "reason": why, "refunded_gpu_s": 0, **more}
