"""A simulated system with a present, which the forecast folds as it would fold the log of a live one."""

from collections.abc import Sequence

from simulator.agents import Behaviour
from simulator.live.state import Folding, State
from simulator.simulation import without_silence
from simulator.world import World
from tenure.domain.ids import BudgetPath, JobId, UserName
from tenure.domain.job import JobSpec, Launch
from tenure.domain.policy import Policy
from tenure.domain.tree_check import check_tree
from tenure.domain.units import MINUTE, Millis
from tenure.events.fact import Recorded
from tenure.events.placing import RunAssigned
from tenure.runtime.cluster_file import check_cluster, parse_hosts

POLICY = without_silence(Policy())
FOLDING = Folding(POLICY)
TREE = check_tree({"budgets": {"a": {"share": 50}, "b": {"share": 50}}})


def a_job(*, gpus: int = 8, replicas: int = 1, name: str = "", budget: str = "a", contract: Millis = 0) -> JobSpec:
    """A job that asks for whole hosts of 8 GPUs unless said otherwise."""
    return JobSpec(
        budget=BudgetPath(budget),
        user=UserName("ana"),
        gpus_per_replica=gpus,
        replicas=replicas,
        launch=Launch(command=("true",)),
        min_runtime_ms=contract,
        name=name,
    )


class Present:
    """A world, and what the forecast has folded of it."""

    def __init__(self, hosts: str = "2x8", *, types: Sequence[str] = ()) -> None:
        """`types`: instead, one host of 8 GPUs of each."""
        clusters = [{"name": name.lower(), "hosts": 1, "gpus_per_host": 8, "gpu_type": name} for name in types]
        specs = check_cluster({"clusters": clusters}) if types else parse_hosts(hosts)
        self.world = World(hosts=specs, tree=TREE, policy=POLICY)
        self.state: State = FOLDING.initial()
        self._inbox: list[Recorded] = self.world.log.inbox(FOLDING.reads)

    def submit(self, name: str, spec: JobSpec, *, minutes: float, at: float = 0) -> None:
        """A job that lasts so long comes in at a minute."""
        behaviour = Behaviour(runs_for_ms=round(minutes * MINUTE))
        self.world.at(round(at * MINUTE), lambda: self.world.submit(JobId(name), spec, behaviour))

    def until(self, minute: float) -> bytes:
        """Let time pass and fold it: the state, dumped."""
        self.world.run(round(minute * MINUTE))
        for entry in self._inbox:
            FOLDING.evolve(self.state, entry)
        self._inbox.clear()
        return FOLDING.dump(self.state)

    def starts(self) -> dict[JobId, Millis]:
        """When each job started first, as it happened."""
        found: dict[JobId, Millis] = {}
        for entry in self.world.recorded:
            if isinstance(entry.fact, RunAssigned):
                found.setdefault(entry.fact.job, entry.fact.at)
        return found
