"""How large a gang could be placed: what counts as free, as placeable, and from when on."""

import itertools
from collections.abc import Iterable

from services.gateway.entries import ReservedEntry
from services.gateway.evolve import evolve
from services.gateway.metrics import readings
from services.gateway.policy.fragmentation import Fragmentation, fragmentation
from services.gateway.state import State, initial
from tenure.domain.host import HostSpec, HostState
from tenure.domain.ids import BudgetPath, HostId, JobId, Position, RunId, UserName
from tenure.domain.job import JobSpec, Launch, Placement, ReplicaPlace
from tenure.domain.policy import Policy
from tenure.domain.reasons import Reason, Why
from tenure.domain.units import HOUR
from tenure.events.budgets import JobAdmitted
from tenure.events.fact import Fact, Recorded
from tenure.events.hosts import HostStateChanged
from tenure.events.placing import ReservationMade, RunPreemptionRequested, RunStarted
from tenure.events.reports import HostRegistered
from tests.contract.gateway_rig import NOW, WHY, assigned

T = NOW + HOUR
"""When the tests look."""


class Hall:
    """A read model that is filled by facts, a line each."""

    def __init__(self, hosts: int = 0, *, gpus: int = 8, gpu_type: str = "H100") -> None:
        self.state: State = initial()
        self._jobs = itertools.count(1)
        self.hosts(*(f"h{number}" for number in range(hosts)), gpus=gpus, gpu_type=gpu_type)

    def say(self, *facts: Fact) -> None:
        for fact in facts:
            evolve(self.state, Recorded(Position(self.state.position + 1), fact))

    def hosts(self, *names: str, gpus: int = 8, gpu_type: str = "H100") -> None:
        specs = [HostSpec(host=HostId(n), gpus=gpus, gpu_type=gpu_type, block="b", cluster="c") for n in names]
        self.say(HostRegistered(at=NOW, agent="a", hosts=tuple(specs)))
        for name in names:
            self.put(name, HostState.HEALTHY)

    def put(self, host: str, state: HostState) -> None:
        why = Why(rule="P1", reason=Reason.HOST_REGISTERED)
        self.say(HostStateChanged(at=NOW, host=HostId(host), state=state, previous=None, last_seen=NOW, why=why))

    def queued(self, *, min_runtime_ms: int = HOUR, gpu_type: str | None = None) -> JobId:
        job = JobId(f"j{next(self._jobs)}")
        spec = JobSpec(
            budget=BudgetPath("b"),
            user=UserName("ana"),
            gpus_per_replica=1,
            launch=Launch(command=("true",)),
            min_runtime_ms=min_runtime_ms,
            gpu_type=gpu_type,
        )
        self.say(JobAdmitted(at=NOW, job=job, spec=spec, submitted_at=NOW))
        return job

    def run(self, held: Placement, *, protected_until: int | None = None) -> RunId:
        """A running run that holds these GPUs; None: unallocated."""
        run = self.starting(held, min_runtime_ms=0 if protected_until is None else HOUR)
        job, until = JobId(run.partition(".")[0]), protected_until or NOW
        self.say(RunStarted(at=NOW, run=run, job=job, protected_until=until, charged=until > NOW, hosts={}))
        return run

    def starting(self, held: Placement, *, min_runtime_ms: int = HOUR) -> RunId:
        job = self.queued(min_runtime_ms=min_runtime_ms)
        fact = assigned(self.state, job, held)
        self.say(fact)
        return RunId(fact.run)

    def stop_for(self, run: RunId, asker: JobId, escrow: Placement) -> None:
        job = JobId(run.partition(".")[0])
        self.say(RunPreemptionRequested(at=NOW, run=run, job=job, by=asker, why=WHY, escrow=escrow, deadline=T))

    def look(self) -> Fragmentation:
        """The only pool."""
        (pool,) = fragmentation(self.state, now=T)
        return pool


def on(host: str, gpus: Iterable[int]) -> Placement:
    return (ReplicaPlace(replica=0, host=HostId(host), gpus=tuple(gpus)),)


def test_free_gpus_are_told_with_their_hosts_and_the_largest_hole() -> None:
    hall = Hall(hosts=4)
    hall.run(on("h0", range(6)), protected_until=T + HOUR)
    hall.run(on("h1", range(7)), protected_until=T + HOUR)
    hall.run(on("h2", range(8)), protected_until=T + HOUR)
    pool = hall.look()
    assert (pool.hosts, pool.gpus, pool.free, pool.hosts_with_free) == (4, 32, 11, 3)
    assert (pool.largest_hole, pool.hosts_wholly_free) == (8, 1)
    assert pool.prospects[0].placeable.replicas == {1: 11, 2: 5, 4: 2, 8: 1}


def test_each_expiry_adds_to_what_a_gang_could_have() -> None:
    hall = Hall(hosts=3)
    hall.run(on("h0", range(4)), protected_until=T + 2 * HOUR)
    hall.run(on("h1", range(8)), protected_until=T + HOUR)
    hall.run(on("h2", (0,)), protected_until=T + HOUR)
    hall.run(on("h2", (1,)), protected_until=T + 3 * HOUR)
    prospects = hall.look().prospects
    assert [prospect.at for prospect in prospects] == [T, T + HOUR, T + 2 * HOUR, T + 3 * HOUR]
    assert [prospect.placeable.gpus for prospect in prospects] == [10, 19, 23, 24]
    assert [prospect.placeable.whole_hosts for prospect in prospects] == [0, 1, 2, 3]
    assert [prospect.placeable.replicas[4] for prospect in prospects] == [2, 4, 5, 6]
    assert all(prospect.placeable == prospect.if_p5_gives for prospect in prospects)


def test_unallocated_counts_now_and_what_is_past_its_protection_only_if_p5_gives_it() -> None:
    hall = Hall(hosts=3)
    hall.run(on("h0", range(8)))
    hall.run(on("h1", range(8)), protected_until=T)
    hall.run(on("h2", range(8)), protected_until=T + HOUR)
    pool = hall.look()
    assert (pool.free, pool.giving_way, pool.past_protection) == (0, 8, 8)
    assert [(at.placeable.whole_hosts, at.if_p5_gives.whole_hosts) for at in pool.prospects] == [(1, 2), (2, 3)]


def test_a_run_that_has_not_started_is_not_past_its_protection() -> None:
    hall = Hall(hosts=1)
    hall.starting(on("h0", range(8)), min_runtime_ms=HOUR // 2)
    pool = hall.look()
    assert (pool.past_protection, [at.at for at in pool.prospects]) == (0, [T, T + HOUR // 2])


def test_what_is_in_escrow_is_nobody_elses() -> None:
    hall = Hall(hosts=2)
    victim = hall.run(on("h0", range(4)))
    asker = hall.queued()
    hall.stop_for(victim, asker, on("h0", range(6)))
    pool = hall.look()
    assert (pool.in_escrow, pool.free, pool.giving_way) == (6, 10, 0)
    assert pool.prospects[0].if_p5_gives.replicas == {1: 10, 2: 5, 4: 2, 8: 1}


def test_what_stops_for_no_gang_gives_way() -> None:
    hall = Hall(hosts=1)
    run = hall.run(on("h0", range(8)), protected_until=T + HOUR)
    hall.say(RunPreemptionRequested(at=NOW, run=run, job=JobId("j1"), by="h0", why=WHY))
    assert (hall.look().giving_way, len(hall.look().prospects)) == (8, 1)


def test_what_is_reserved_is_told_and_may_be_used_until_then() -> None:
    hall = Hall(hosts=2)
    gang = hall.queued()
    made = ReservationMade(at=NOW, job=gang, placement=on("h1", range(8)), latest_start=T, waits_for=(), why=WHY)
    hall.say(made)
    assert isinstance(hall.state.jobs[gang].reservation, ReservedEntry)
    assert (hall.look().reserved, hall.look().prospects[0].placeable.whole_hosts) == (8, 2)


def test_only_hosts_that_take_runs_count() -> None:
    hall = Hall(hosts=5)
    hall.run(on("h0", range(8)), protected_until=T + HOUR)
    states = (HostState.SUSPECT, HostState.DRAINING, HostState.DRAINED, HostState.LOST)
    for number, state in enumerate(states):
        hall.put(f"h{number}", state)
    pool = hall.look()
    assert (pool.hosts, pool.gpus, len(pool.prospects)) == (1, 8, 1)
    hall.put("h4", HostState.LOST)
    assert fragmentation(hall.state, now=T) == []


def test_each_cluster_and_type_is_a_pool_with_the_sizes_its_hosts_have() -> None:
    hall = Hall(hosts=1)
    hall.hosts("a0", "a1", gpus=4, gpu_type="A100")
    hall.hosts("a2", gpus=6, gpu_type="A100")
    first, second = fragmentation(hall.state, now=T)
    assert [(pool.cluster, pool.gpu_type, pool.hosts) for pool in (first, second)] == [
        ("c", "A100", 3),
        ("c", "H100", 1),
    ]
    assert first.prospects[0].placeable.replicas == {1: 14, 2: 7, 4: 3}
    assert first.prospects[0].placeable.whole_hosts == 3


def test_the_metrics_are_the_same_figures_for_lengths_of_time() -> None:
    hall = Hall(hosts=3)
    hall.run(on("h0", range(8)), protected_until=T + HOUR)
    hall.run(on("h1", range(8)), protected_until=T)
    told = readings(hall.state, now=T, policy=Policy(), seen={})
    of = {"cluster": "c", "gpu_type": "H100"}
    assert told["tenure.gpus.free"] == [(8, of)]
    whole = {(labels["within"], labels["given"]): value for value, labels in told["tenure.placeable.whole_hosts"]}
    assert (whole["0s", "sure"], whole["0s", "if_p5_gives"]) == (1, 2)
    assert (whole["1h", "sure"], whole["8h", "if_p5_gives"]) == (2, 3)
    fours = [value for value, labels in told["tenure.placeable.replicas"] if labels["gpus_per_replica"] == "4"]
    assert fours == [2, 4, 4, 6, 4, 6, 4, 6, 4, 6]
