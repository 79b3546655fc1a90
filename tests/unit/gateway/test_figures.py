"""What watchers are told: the queue by class, overdue drains, silent hosts, broken contracts, delivered shares."""

from dataclasses import replace

import pytest

from services.gateway.metrics import BUDGETS_MAX, OTHER, delivered_readings
from services.gateway.policy.figures import JobClass, class_of, drains_overdue, silent_hosts, started, waiting
from services.gateway.state import State, dump, load
from tenure.clickhouse.report import BudgetRow
from tenure.domain.host import CPU, HostState
from tenure.domain.ids import BudgetPath, HostId, JobId, UserName
from tenure.domain.job import JobSpec, Launch
from tenure.domain.policy import Policy
from tenure.domain.reasons import Reason, Why
from tenure.domain.units import HOUR, MINUTE
from tenure.events.intake import DrainRequested
from tenure.events.placing import RunPreemptionRequested
from tests.contract.gateway_rig import NOW, WHY
from tests.unit.gateway.test_fragmentation import Hall, T, on

POLICY = Policy(grace_max_ms=10 * MINUTE, escrow_slack_ms=0, suspect_after_ms=20_000)


def spec(*, gpus: int, minutes: int) -> JobSpec:
    return JobSpec(
        budget=BudgetPath("b"),
        user=UserName("ana"),
        gpus_per_replica=gpus,
        launch=Launch(command=("true",)),
        min_runtime_ms=minutes * MINUTE,
    )


def test_jobs_are_of_the_first_class_that_fits() -> None:
    of = {
        (8, 0): JobClass.UNALLOCATED,
        (8, 15): JobClass.DEBUG,
        (8, 16): JobClass.OTHER,
        (9, 15): JobClass.OTHER,
        (32, 15): JobClass.LARGEST,
    }
    for (gpus, minutes), expected in of.items():
        assert class_of(spec(gpus=gpus, minutes=minutes), gpus_of_cluster=128) is expected


def test_a_job_of_cpus_is_none_of_the_largest_and_waits_for_no_gpus() -> None:
    cpus = replace(spec(gpus=48, minutes=60), gpu_type=CPU)
    assert class_of(cpus, gpus_of_cluster=16) is JobClass.OTHER
    assert class_of(replace(cpus, min_runtime_ms=0), gpus_of_cluster=16) is JobClass.UNALLOCATED
    hall = Hall(hosts=2)
    hall.queued(gpu_type=CPU)
    found = waiting(hall.state, now=T)[JobClass.OTHER]
    assert (found.jobs, found.gpus) == (1, 0)


def test_the_queue_is_told_by_class() -> None:
    hall = Hall(hosts=16)
    hall.queued()
    hall.queued(min_runtime_ms=0)
    hall.queued(min_runtime_ms=0)
    hall.starting(on("h0", [0]))
    found = waiting(hall.state, now=T)
    assert {name.value: (each.jobs, each.gpus, each.longest_ms) for name, each in found.items()} == {
        "unallocated": (2, 2, HOUR),
        "largest": (0, 0, 0),
        "debug": (0, 0, 0),
        "other": (1, 1, HOUR),
    }


def test_a_first_start_is_told_once() -> None:
    hall = Hall(hosts=16)
    hall.run(on("h0", [0]), protected_until=T)
    fresh = started(hall.state, after=NOW - 1)
    assert (fresh.until, fresh.waits_ms) == (NOW, [(JobClass.OTHER, 0)])
    assert started(hall.state, after=fresh.until).waits_ms == []


def draining(hall: Hall, host: str, *, deadline: int | None = None, accepts: bool = False) -> State:
    asked = DrainRequested(at=NOW, host=HostId(host), by=UserName("op"), comment="x", deadline=deadline)
    hall.say(asked)
    hall.put(host, HostState.DRAINING)
    entry = hall.state.hosts[HostId(host)]
    entry.drain_deadline, entry.drain_accepts = deadline, accepts
    return hall.state


def test_a_drain_is_overdue_when_contracts_and_grace_are_over() -> None:
    hall = Hall(hosts=2)
    hall.run(on("h0", [0]), protected_until=T)
    state = draining(hall, "h0")
    assert drains_overdue(state, now=T + 10 * MINUTE, policy=POLICY) == []
    assert drains_overdue(state, now=T + 10 * MINUTE + 1, policy=POLICY) == ["h0"]


def test_an_empty_host_is_not_overdue_and_a_deadline_counts() -> None:
    hall = Hall(hosts=2)
    assert drains_overdue(draining(hall, "h1"), now=T + HOUR, policy=POLICY) == []
    hall.run(on("h0", [0]), protected_until=T + 2 * HOUR)
    state = draining(hall, "h0", deadline=T)
    assert drains_overdue(state, now=T + 11 * MINUTE, policy=POLICY) == ["h0"]
    state.hosts[HostId("h0")].drain_accepts = True
    state.hosts[HostId("h0")].drain_deadline = T + HOUR
    assert drains_overdue(state, now=T + 11 * MINUTE, policy=POLICY) == []


def test_a_host_in_service_that_says_nothing_is_silent() -> None:
    hall = Hall(hosts=3)
    hall.put("h1", HostState.FAILED)
    hall.put("h2", HostState.LOST)
    assert silent_hosts(hall.state, seen={}, now=NOW + 20_000, policy=POLICY) == []
    assert silent_hosts(hall.state, seen={}, now=NOW + 20_001, policy=POLICY) == ["h0", "h2"]
    seen = {HostId("h0"): NOW + 1}
    assert silent_hosts(hall.state, seen=seen, now=NOW + 20_001, policy=POLICY) == ["h2"]


@pytest.mark.parametrize(
    ("protected_until", "reason", "broken"),
    [
        (NOW, Reason.DISRUPT_LOWER_RATIO, 0),
        (NOW + 1, Reason.DISRUPT_LOWER_RATIO, 1),
        (NOW + 1, Reason.DISRUPT_HOST_FATAL, 0),
        (None, Reason.DISRUPT_UNALLOCATED, 0),
    ],
)
def test_a_contract_that_was_broken_is_counted(protected_until: int | None, reason: Reason, broken: int) -> None:
    hall = Hall(hosts=1)
    run = hall.run(on("h0", [0]), protected_until=protected_until)
    if protected_until == NOW:
        run_entry = hall.state.jobs[JobId(run.partition(".")[0])].runs[-1]
        run_entry.allocated = True
    job = JobId(run.partition(".")[0])
    hall.say(RunPreemptionRequested(at=NOW, run=run, job=job, by="x", why=Why(rule="P5", reason=reason)))
    assert hall.state.contracts_broken == broken
    assert load(dump(hall.state)).contracts_broken == broken


def test_a_run_that_has_not_started_is_protected() -> None:
    hall = Hall(hosts=1)
    run = hall.starting(on("h0", [0]))
    hall.say(RunPreemptionRequested(at=NOW, run=run, job=JobId("j1"), by="x", why=WHY))
    assert hall.state.contracts_broken == 1


def row(path: str, *, owed: int, delivered: int, leaf: bool = True) -> BudgetRow:
    return BudgetRow(path=BudgetPath(path), leaf=leaf, owed_gpu_ms=owed, delivered_gpu_ms=delivered)


def test_a_topmost_budget_is_told_by_its_leaves() -> None:
    rows = [
        row("a", leaf=False, owed=3000, delivered=5000),
        row("a/x", owed=1000, delivered=4000),
        row("a/y", owed=2000, delivered=1000),
        row("idle", owed=0, delivered=0),
    ]
    told = delivered_readings(rows)
    assert told["tenure.budgets.owed"] == [(3.0, {"budget": "a"})]
    assert told["tenure.budgets.delivered"] == [(2 / 3, {"budget": "a"})]


def test_of_many_budgets_the_rest_is_told_together() -> None:
    rows = [row(f"b{number:03}", owed=1000 + number, delivered=0) for number in range(BUDGETS_MAX + 2)]
    told = delivered_readings(rows)["tenure.budgets.owed"]
    assert len(told) == BUDGETS_MAX + 1
    assert told[-1] == ((1000 + 1001) / 1000, {"budget": OTHER})
