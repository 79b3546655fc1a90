"""What deciding costs when the cluster is full and the queue is long: `python -m tests.bench.placer` prints JSON.

The ranker and the placer of `tests.bench.pair`, asked one after the other as two processes would be. Times are of the
processor: nothing here waits for anything else, and the machine is shared. Measured:

- `full`: the ranker's order, then all that the placer has to decide, with nothing known but what a snapshot holds:
  every job is told anew why it waits, a gang lacks its reservation, eight runs have ended and eight jobs have come.
  Until it rests, or 1,000 reasons are said. One set of victims and one reservation a decision: `decisions` says how
  many that takes. Apart from it `full_with_timetables`: every ten minutes all timetables are looked at again.
- `arrival`: a job comes and both roles have decided on it.
- `alike`: an event when one job, 256 (the ranker lists no more of a kind), or 10,000 of the same kind wait for room
  (S10); `alike_gangs`: jobs of two hosts each.
"""

import argparse
import gc
import json
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from services.ranker.policy.alike import AT_ONCE_MAX
from tenure.cli.main import GARBAGE_AT
from tenure.domain.ids import UserName
from tenure.domain.reasons import Reason, Why
from tenure.domain.units import HOUR, MINUTE, SECOND
from tenure.events.fact import Fact
from tenure.events.intake import JobCancelRequested
from tenure.events.placing import PlacementDeferred, ReservationDropped
from tests.bench.pair import GPUS, LEAVES, SHAPES, Pair, milliseconds, percentiles

SIZES = {"hosts_1024_jobs_10000": (1_024, 10_000, 100), "hosts_12500_jobs_100000": (12_500, 100_000, 20)}
"""Hosts, jobs that wait, rounds."""
REASONS = 1_000


def perturb(pair: Pair) -> None:
    """A minute passes; eight runs end, eight jobs come, and one gang loses its reservation."""
    pair.now += MINUTE
    started = sorted(run.run for run in pair.placer.core.runs.values() if run.started_at is not None)
    pair.say(*[pair.exit(run, code=0) for run in pair.chance.sample(started, 8)])
    pair.place()  # settles what has ended
    for _ in range(8):
        pair.admit(pair.shape(pair.chance.randrange(SHAPES), leaf=pair.chance.randrange(LEAVES)))
    reserved = sorted(pair.placer.core.reservations)
    if reserved:
        why = Why(rule="P8", reason=Reason.RESERVE_HOST_GONE)
        pair.say(ReservationDropped(at=pair.now, job=pair.chance.choice(reserved), why=why))


def forget(pair: Pair) -> None:
    """The placer starts anew from a snapshot in which nobody was told why they wait."""
    pair.placer.core.said.clear()
    pair.placer = pair.placer_role.load(pair.placer_role.dump(pair.placer))
    pair.placer.attention.clear()  # all is settled


def full(pair: Pair, rounds: int) -> dict[str, dict[str, Any]]:
    """Decide on everything, again and again."""
    ordinary, looking = Passes(), Passes()
    for _ in range(rounds):
        perturb(pair)
        forget(pair)
        began = time.process_time()
        pair.rank()
        passes = looking if pair.placer.core.new_round else ordinary
        reasons = 0
        while reasons < REASONS and (facts := passes.decide(pair)):
            reasons += sum(isinstance(fact, PlacementDeferred) for fact in facts)
        passes.samples.append(milliseconds(began))
        pair.rest()
    return {"full": ordinary.figures(), "full_with_timetables": looking.figures()}


class Passes:
    """Full decisions of one kind: how long each took, and what they said."""

    def __init__(self) -> None:
        self.samples: list[float] = []
        self.decisions, self.longest = 0, 0.0
        self.said = Counter[str]()

    def decide(self, pair: Pair) -> list[Fact]:
        """The placer decides once."""
        began = time.process_time()
        facts = pair.place()
        self.longest = max(self.longest, milliseconds(began))
        self.decisions += 1
        self.said.update(type(fact).__name__ for fact in facts)
        return facts

    def figures(self) -> dict[str, Any]:
        """Times, and means of what was decided in one."""
        count = len(self.samples)
        return {
            **percentiles(self.samples),
            "decisions": round(self.decisions / count, 1),
            "longest_decision_ms": round(self.longest, 1),
            "facts": {kind: round(number / count, 1) for kind, number in sorted(self.said.items())},
        }


def arrival(pair: Pair, rounds: int) -> dict[str, Any]:
    """A job comes, of any of the shapes."""
    samples = []
    for _ in range(rounds):
        pair.now += 1
        spec = pair.shape(pair.chance.randrange(SHAPES), leaf=pair.chance.randrange(LEAVES))
        began = time.process_time()
        pair.admit(spec)
        pair.rank()
        while pair.place():
            pass
        samples.append(milliseconds(began))
        pair.rest()
    return percentiles(samples)


def measure(hosts: int, jobs: int, rounds: int) -> dict[str, Any]:
    """All figures of one size, with the memory of the process that made them."""
    gc.set_threshold(GARBAGE_AT)  # as every command of tenure does
    pair = Pair(hosts=hosts)
    pair.occupy()
    runs = len(pair.placer.core.runs)
    pair.queue(jobs)
    began = time.process_time()
    pair.rest()
    settled_s = round(milliseconds(began) / 1000, 1)
    figures = {
        "runs_at_first": runs,
        "classes": len(pair.placer.waiting.lines),
        "listed": len(pair.placer.core.order),
        "reservations": len(pair.placer.core.reservations),
        "settled_s": settled_s,
        "arrival": arrival(pair, 5 * rounds),
        **full(pair, rounds),
        "runs_at_last": len(pair.placer.core.runs),
    }
    return {**figures, "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}


def event_ms(jobs: int, replicas: int) -> list[float]:
    """What it costs that an unallocated job comes, and one leaves, while so many jobs of one kind wait for room."""
    pair = Pair(hosts=1_024)
    for _ in range(1_023):
        pair.admit(pair.spec(1, GPUS, 8 * HOUR, leaf=0, priority=0))
    pair.rest()
    for _ in range(jobs):
        pair.admit(pair.spec(replicas, GPUS, HOUR, leaf=1, priority=0))
    pair.rest()
    samples = []
    for _ in range(200):
        pair.now += SECOND
        began = time.process_time()
        job = pair.admit(pair.spec(1, GPUS, 0, leaf=2, priority=0))
        pair.rest()
        pair.say(JobCancelRequested(at=pair.now, job=job, by=UserName("u")))
        pair.rest()
        samples.append(milliseconds(began))
    return samples


def alike(replicas: int) -> dict[str, Any]:
    """One blocked job, as many of its kind as are listed, and 10,000."""
    one, listed, many = [percentiles(event_ms(jobs, replicas))["p50_ms"] for jobs in (1, AT_ONCE_MAX, 10_000)]
    return {"one_p50_ms": one, "listed_p50_ms": listed, "many_p50_ms": many, "ratio": round(many / listed, 2)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; every size in a process of its own, so that its memory is its own."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.placer")
    parser.add_argument("--size", choices=list(SIZES), help="only this, and nothing else")
    size = parser.parse_args(arguments).size
    if size is not None:
        print(json.dumps(measure(*SIZES[size]), indent=1))
        return 0
    figures: dict[str, Any] = {"conditions": {"gpus_per_host": 8, "leaves": LEAVES, "shapes": SHAPES}}
    for name in SIZES:
        command = [sys.executable, "-m", "tests.bench.placer", "--size", name]
        figures[name] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    figures["alike"], figures["alike_gangs"] = alike(1), alike(2)
    print(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
