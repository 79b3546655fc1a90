"""A list of faults in the hands of the same deciders: GPUs are told of by their hosts, the rest by people (P9).

Twenty hosts. One GPU fault; a power failure; then eight GPU faults at once, of which automation may take two (a tenth).
On the other six the runs die and nothing can be launched, and no run comes to any harm by a decision.
"""

from collections import Counter

from simulator.faults import Fault
from simulator.simulation import Simulation
from simulator.workload import TraceJob
from tenure.domain.ids import BudgetPath, HostId, JobId, UserName
from tenure.domain.job import JobSpec, Launch
from tenure.domain.policy import Policy
from tenure.domain.reasons import EndCause, Reason
from tenure.domain.tree_check import check_tree
from tenure.domain.units import HOUR, MINUTE
from tenure.events.hosts import HostStateChanged
from tenure.events.placing import JobFinished, JobRequeued, RunEnded
from tenure.runtime.cluster_file import parse_hosts
from tests.checks.invariants import check_log

ONCE = [HostId(f"h{number:03}") for number in range(10, 18)]
FAULTS = (
    Fault(host=HostId("h001"), down_at=HOUR, up_at=2 * HOUR, kind="xid79"),
    Fault(host=HostId("h002"), down_at=HOUR, up_at=2 * HOUR, kind="psu"),
    *(Fault(host=host, down_at=5 * HOUR, up_at=6 * HOUR, kind="gpu") for host in ONCE),
)


def job(number: int) -> TraceJob:
    spec = JobSpec(
        budget=BudgetPath("a"),
        user=UserName("ana"),
        replicas=1,
        gpus_per_replica=8,
        min_runtime_ms=30 * MINUTE,
        resumable=False,
        launch=Launch(command=("true",)),
    )
    return TraceJob(
        job=JobId(f"j{number:03}"), submitted_at=number * MINUTE, spec=spec, runs_for_ms=50 * MINUTE, kind="short"
    )


def test_faults_are_evidence_and_the_blast_radius_holds() -> None:
    simulation = Simulation(
        hosts=parse_hosts("20x8"),
        tree=check_tree({"budgets": {"a": {"share": 100}}}),
        policy=Policy(),
        jobs=[job(number) for number in range(400)],
        faults=FAULTS,
    )
    recorded = simulation.run(30 * HOUR)
    check_log(recorded)
    facts = [entry.fact for entry in recorded]
    changes = [fact for fact in facts if isinstance(fact, HostStateChanged)]
    why = {(fact.host, fact.at): fact.why.reason for fact in changes if fact.state.value == "draining"}
    assert why[HostId("h001"), HOUR] is Reason.HOST_SIGNAL_FATAL
    assert why[HostId("h002"), HOUR] is Reason.HOST_DRAIN_REQUESTED
    at_once = [fact for fact in changes if fact.at == 5 * HOUR and fact.why.reason in _BY_EVIDENCE]
    assert Counter(fact.why.reason for fact in at_once) == {Reason.HOST_SIGNAL_FATAL: 2, Reason.HOST_HELD_BACK: 6}
    held = [fact for fact in facts if isinstance(fact, JobRequeued) and fact.held_until is not None]
    assert held and all(fact.held_until - fact.at >= 15_000 for fact in held if fact.held_until is not None)
    assert {fact.state.value for fact in facts if isinstance(fact, JobFinished)} == {"completed"}
    ended = Counter(fact.cause_of_end for fact in facts if isinstance(fact, RunEnded))
    assert ended[EndCause.COMPLETED] == 400 and set(ended) == {EndCause.COMPLETED, EndCause.HOST_LOST}


_BY_EVIDENCE = (Reason.HOST_SIGNAL_FATAL, Reason.HOST_HELD_BACK)
