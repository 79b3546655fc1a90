"""The checkers of what real faults leave find what is wrong: a millisecond too much, an asker without a right."""

from collections.abc import Sequence

import msgspec
import pytest

from tenure.domain.host import HostSpec
from tenure.domain.ids import BudgetPath, FactId, HostId, UserName
from tenure.events.budgets import RunCharged
from tenure.events.fact import Fact
from tenure.events.hosts import CapacityChanged
from tenure.events.reports import (
    Heartbeat,
    HostBeat,
    HostRegistered,
    ReplicaExit,
    ReplicasExited,
    ReplicasStarted,
    ReplicaStart,
    Segment,
)
from tests.checks.accounts import check_accounts
from tests.checks.export_lines import broken_invariants
from tests.unit.agent.runs import JOB, RUN, WHY, assigned

H0 = HostId("h0")


def told(*, charged: bool = True, until: int = 40, cost: int = 60) -> list[Fact]:
    """A host of four GPUs, offered from 5 to 90 of 100 ms; a run holds two of them from 10 to 40."""
    allocated = {} if charged else {"min_runtime_ms": 0}
    spec = HostSpec(host=H0, gpus=4, gpu_type="t", block="b", cluster="c")
    segment = Segment(
        run=RUN, job=JOB, budget=BudgetPath("a"), user=UserName("u"), charged=charged, gpus=2, since=10, until=until
    )
    books = RunCharged(
        at=41, run=RUN, job=JOB, budget=BudgetPath("a"), user=UserName("u"), charged_gpu_ms=cost, why=WHY
    )
    facts: list[Fact] = [
        HostRegistered(at=0, agent="a", hosts=(spec,)),
        CapacityChanged(at=5, host=H0, gpus=4, gpu_type="t"),
        assigned("h0", at=9, **allocated),
        ReplicasStarted(at=10, run=RUN, job=JOB, replicas=(ReplicaStart(replica=0, host=H0, at=10),)),
        Heartbeat(at=41, agent="a", hosts=(HostBeat(host=H0, gpus=4, segments=(segment,)),)),
        ReplicasExited(at=40, run=RUN, job=JOB, replicas=(ReplicaExit(replica=0, host=H0, at=40, code=0),)),
        *([books] if charged else []),
        CapacityChanged(at=90, host=H0, gpus=0, gpu_type="t"),
        Heartbeat(at=100, agent="a", hosts=(HostBeat(host=H0, gpus=4),)),
    ]
    return [msgspec.structs.replace(fact, id=FactId(str(number))) for number, fact in enumerate(facts)]


def test_every_gpu_millisecond_is_in_one_account() -> None:
    books = check_accounts(told())
    assert (books.capacity, books.charged, books.unallocated) == (400, 60, 0)
    assert (books.idle, books.unavailable) == (4 * 85 - 60, 4 * 15)
    assert check_accounts(told(charged=False)).unallocated == 60


@pytest.mark.parametrize("wrong", [told(cost=59), told(charged=False, until=41)], ids=["books", "heartbeats"])
def test_a_gpu_millisecond_too_few_or_too_many_is_found(wrong: Sequence[Fact]) -> None:
    with pytest.raises(AssertionError, match=r"I5: -?[12] GPU-ms are missing"):
        check_accounts(wrong)


def lines(*, asked_at: float) -> list[dict[str, object]]:
    """A run of a protected job ends at 10 s, and somebody whose news is late asks for its end."""
    why = {"rule": "P10", "reason": "end_completed", "numbers": {"exit_code": 0}}
    right = {"rule": "P5", "reason": "disrupt_lower_ratio", "numbers": {"ratio": 0.1, "victim_ratio": 2}}
    job = {"type": "job_submitted", "replicas": 1, "gpus_per_replica": 1, "min_runtime_s": 5, "priority": 0}
    run = {"job": "v", "run": "v.1", "hosts": {"h0": [0]}, "charged": True}
    told = [
        {"t": 0, "type": "capacity", "host": "h0", "gpus": 4},
        {"t": 0, **job, "job": "v", "budget": "a", "resumable": True},
        {"t": 0, **job, "job": "w", "budget": "b", "resumable": True},
        {"t": 0, "type": "run_assigned", **run},
        {"t": 6, "type": "run_started", **run, "protected_until": 11},
        {"t": asked_at, "type": "preemption_requested", "job": "v", "run": "v.1", "by": "w", "reason": right},
        {"t": 10, "type": "run_ended", "job": "v", "run": "v.1", "cause": "completed", "by": None, "reason": why},
        {"t": 12, "type": "job_finished", "job": "v", "state": "completed"},
    ]
    told[6] |= {"refunded_gpu_s": 0}
    return sorted(told, key=lambda line: float(str(line["t"])))


def test_who_has_not_heard_of_an_end_may_ask_for_it_if_that_would_have_been_right() -> None:
    assert broken_invariants(lines(asked_at=11.5)) == ["I4: v.1 is to end and is not there"]
    assert broken_invariants(lines(asked_at=11.5), late_news=True) == []
    (found,) = broken_invariants(lines(asked_at=10.5), late_news=True)
    assert found.startswith("I3: v.1 is to end at 10.5")
