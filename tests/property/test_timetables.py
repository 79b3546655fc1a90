"""P8 on random clusters: latest starts never slip and are kept, whoever else comes, and nothing is broken for them."""

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from simulator.simulation import Simulation
from simulator.workload import TraceJob
from tenure.domain.ids import BudgetPath, JobId, UserName
from tenure.domain.job import JobSpec, Launch
from tenure.domain.policy import Policy
from tenure.domain.tree_check import check_tree
from tenure.domain.units import HOUR, MINUTE
from tenure.events.placing import ReservationMade
from tenure.runtime.cluster_file import parse_hosts
from tests.checks.invariants import check_log, check_reservations

TREE = check_tree({"budgets": {"a": {"share": 30}, "b": {"share": 50}, "c": {"share": 20}}})

jobs = st.lists(
    st.tuples(
        st.integers(0, 6 * 60),  # submitted, minutes
        st.sampled_from(("a", "b", "c")),
        st.sampled_from(((1, 1), (1, 4), (1, 8), (1, 8), (2, 8), (3, 8), (4, 8), (6, 4))),
        st.sampled_from((0, 15, 60, 120)),  # minimum runtime, minutes
        st.integers(5, 8 * 60),  # runs for, minutes
        st.booleans(),
        st.integers(0, 1),
    ),
    min_size=5,
    max_size=30,
)


@settings(max_examples=40, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(jobs)
def test_a_latest_start_never_slips_and_is_kept(
    drawn: list[tuple[int, str, tuple[int, int], int, int, bool, int]],
) -> None:
    trace = [
        TraceJob(
            job=JobId(f"j{number:02}"),
            submitted_at=submitted * MINUTE,
            spec=JobSpec(
                budget=BudgetPath(budget),
                user=UserName("u"),
                replicas=shape[0],
                gpus_per_replica=shape[1],
                min_runtime_ms=minimum * MINUTE,
                resumable=resumable,
                priority=priority,
                launch=Launch(command=("true",)),
            ),
            runs_for_ms=length * MINUTE,
            kind="any",
        )
        for number, (submitted, budget, shape, minimum, length, resumable, priority) in enumerate(sorted(drawn))
    ]
    policy = Policy(lookback_ms=8 * HOUR)
    simulation = Simulation(hosts=parse_hosts("4x8"), tree=TREE, policy=policy, jobs=trace)
    recorded = simulation.run(16 * HOUR)
    check_log(recorded)
    check_reservations([entry.fact for entry in recorded])
    for entry in recorded:
        if isinstance(entry.fact, ReservationMade):
            assert entry.fact.latest_start <= entry.fact.at + policy.promise_horizon_ms + policy.grace_max_ms, (
                "the horizon"
            )
