"""What a decision of the ranker costs: `python -m tests.bench.ranker` prints JSON.

A cluster of 1,024 GPUs with a full week of past runs behind it and 128 runs on it; the queue is made of classes of
alike jobs. Measured: folding an arrival and deciding on it, folding the ranking too; and a decision that says nothing.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable

from services.ranker.decider import role
from services.ranker.state import State
from tenure.domain.ids import JobId, Position, UserName
from tenure.domain.job import JobSpec, Launch
from tenure.domain.policy import Policy
from tenure.domain.units import DAY, MINUTE, Millis
from tenure.events.budgets import JobAdmitted
from tenure.events.fact import Fact, Recorded
from tenure.events.ranking import RankingPublished
from tests.unit.ranker.scene import Scene

PROGRAMS = 4
RUNS = 128 * 84
ROUNDS = 50


def busy_week(leaves: int) -> Scene:
    """A full cluster after a week of runs of two hours, 8 GPUs each, dealt out over the leaves."""
    shares = {f"p{program}": 100 // PROGRAMS for program in range(PROGRAMS)}
    shares |= {f"p{leaf % PROGRAMS}/l{leaf}": 100 * PROGRAMS // leaves for leaf in range(leaves)}
    scene = Scene(shares, gpus=1024)
    running: list[str] = []
    for number in range(RUNS):
        scene.now = number * 7 * DAY // RUNS
        if len(running) == 128:
            scene.complete(running.pop(0))
        leaf = number * number % leaves
        scene.job(f"h{number}", f"p{leaf % PROGRAMS}/l{leaf}", gpus=8, min_runtime_ms=(1 + number % 8) * 15 * MINUTE)
        running.append(scene.run(f"h{number}"))
    scene.actor.fold()
    return scene


class Bench:
    """A ranker's state, fed and asked by hand."""

    def __init__(self, *, leaves: int, classes: int, queued: int) -> None:
        scene = busy_week(leaves)
        self.role = role(Policy())
        self.state: State = scene.actor.state
        self.now: Millis = scene.now
        self.count = 0
        self.budgets = list(self.state.tree.leaves)
        for number in range(queued):
            kind = number % classes
            self.fold(self.arrival(kind, priority=kind // len(self.budgets) % 3, leaf=kind % leaves))
        self.decide()

    def arrival(self, kind: int, *, priority: int, leaf: int) -> JobAdmitted:
        """A job of one class."""
        self.count += 1
        spec = JobSpec(
            budget=self.budgets[leaf],
            user=UserName(f"u{self.count % 9}"),
            gpus_per_replica=8,
            replicas=(1, 1, 1, 2, 4, 16)[kind % 6],
            min_runtime_ms=(1 + kind % 31) * 15 * MINUTE if kind % 4 else 0,
            priority=priority,
            launch=Launch(command=("true",)),
        )
        return JobAdmitted(at=self.now, job=JobId(f"job-{self.count:022}"), spec=spec, submitted_at=self.now)

    def fold(self, fact: Fact) -> None:
        """One fact more."""
        self.role.evolve(self.state, Recorded(Position(self.state.position + 1), fact))

    def decide(self) -> RankingPublished | None:
        """Decide and fold what was said."""
        decision = self.role.decide(self.state, self.now)
        for fact in decision.facts:
            self.fold(fact)
        return next((fact for fact in decision.facts if isinstance(fact, RankingPublished)), None)

    def arrive(self) -> None:
        """A job unlike those that wait arrives and is ordered."""
        self.fold(self.arrival(self.count % 31, priority=7, leaf=self.count % len(self.budgets)))
        assert self.decide() is not None

    def pass_time(self) -> None:
        """A fact that changes nothing comes."""
        assert self.decide() is None

    def timed(self, action: Callable[[], None], *, step_ms: Millis) -> dict[str, float]:
        """Median and worst of some rounds, in milliseconds."""
        took = []
        for _ in range(ROUNDS):
            self.now += step_ms
            self.state.idle = None
            began = time.perf_counter()
            action()
            took.append((time.perf_counter() - began) * 1000)
        return {"p50_ms": round(statistics.median(took), 3), "max_ms": round(max(took), 3)}

    def report(self) -> dict[str, object]:
        """All figures of one setting."""
        said = self.state.said
        return {
            "queued": len(self.state.queue),
            "listed": 0 if said is None else len(said.order),
            "arrival_and_decision": self.timed(self.arrive, step_ms=1),
            "decision_without_news": self.timed(self.pass_time, step_ms=1),
            "snapshot_bytes": len(self.role.dump(self.state)),
        }


def main() -> int:
    """Print the figures."""
    figures = {
        "conditions": {"gpus": 1024, "history_days": 7, "runs_in_history": RUNS, "rounds": ROUNDS},
        "leaves_20_classes_50": Bench(leaves=20, classes=50, queued=50).report(),
        "leaves_15_classes_200": Bench(leaves=15, classes=200, queued=200).report(),
        "leaves_16_classes_480_jobs_10000": Bench(leaves=16, classes=480, queued=10_000).report(),
        "leaves_16_classes_480_jobs_400000": Bench(leaves=16, classes=480, queued=400_000).report(),
        "leaves_16_classes_1_jobs_10000": Bench(leaves=16, classes=1, queued=10_000).report(),
    }
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
