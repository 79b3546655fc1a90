"""How wrong forecasts are, and what they take: `python -m tests.bench.forecast` prints JSON.

    accuracy   contended-month: forecasts twice a day in its second week, against when the jobs then started
    speed      the first of these moments with more of the month's jobs, until 10,000 wait: the whole answer, and what
               would change one job's start

Seconds are those of a processor: it works alone, and others do not count.
An error is |p50 - start|, relative to the job's wait from submission to that start, or to what was left of it at the
moment of the forecast. Beside it two naive guesses: `naive`, the median wait of the budget's jobs in the week before;
`contracts`, the queue in order as if every run ended with its protection. Jobs that had not started three days after
the last forecast are counted, and have no error. `--only speed`, or `--until 9` and `--every 24`, make it shorter.
"""

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec

from simulator.collector import resting_collector
from simulator.live.alternatives import alternatives
from simulator.live.forecast import forecast
from simulator.live.future import LONG, USUAL
from simulator.live.state import Folding, State
from simulator.plan import Files, Plan, read_plan
from simulator.simulation import Simulation
from tenure.domain.ids import BudgetPath, FactId, JobId, Position
from tenure.domain.units import DAY, HOUR, MINUTE, Millis
from tenure.events.budgets import JobAdmitted
from tenure.events.fact import Recorded
from tenure.events.placing import RunAssigned
from tenure.runtime.forecasts import JobForecast, encode_answer

ROOT = Path(__file__).parents[2]
MONTH = "scenarios/contended-month"
FIRST: Millis = 8 * DAY
AFTERWARDS: Millis = 3 * DAY
WEEK: Millis = 7 * DAY
QUEUED = 10_000
LOOKS = 100
Figures = dict[str, Any]


class Guess(msgspec.Struct, frozen=True, kw_only=True):
    """What was said of one job at one moment, and what could have been said without a forecast."""

    job: JobId
    at: Millis
    submitted_at: Millis
    told: JobForecast
    naive: Millis
    contracts: Millis


class Month:
    """The month as far as it was simulated, and what a forecast knows of it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.simulation = Simulation(
            hosts=plan.hosts, tree=plan.tree, policy=plan.policy, work=plan.work, jobs=plan.jobs
        )
        world = self.simulation.world
        self.folding = Folding(world.policy)
        self.state: State = self.folding.initial()
        self._inbox, self._assigned = world.log.inbox(self.folding.reads), world.log.inbox((RunAssigned,))
        self.submitted = {job.job: job.submitted_at for job in plan.jobs}
        self.starts: dict[JobId, list[Millis]] = {}
        """Of each job all its starts."""

    def run(self, until: Millis) -> bytes:
        """Simulate until then; what a forecast knows then, dumped."""
        self.simulation.run(until)
        for entry in self._inbox:
            self.folding.evolve(self.state, entry)
        for entry in self._assigned:
            if isinstance(entry.fact, RunAssigned):
                self.starts.setdefault(entry.fact.job, []).append(entry.fact.at)
        self._inbox.clear()
        self._assigned.clear()
        return self.folding.dump(self.state)

    def naive(self, now: Millis) -> dict[BudgetPath, Millis]:
        """The median wait of each budget's jobs that started first in the week before."""
        waits: dict[BudgetPath, list[Millis]] = {}
        budgets = {job.job: job.spec.budget for job in self.plan.jobs}
        for job, starts in self.starts.items():
            if now - WEEK < starts[0] <= now:
                waits.setdefault(budgets[job], []).append(starts[0] - self.submitted[job])
        return {budget: round(statistics.median(known)) for budget, known in waits.items()}

    def contracts(self, now: Millis) -> Iterator[tuple[JobId, Millis]]:
        """Each queued job, when so many GPUs are past their protection as it and those before it ask for."""
        core = self.state.placer.core
        gpus = {run.run: sum(len(place.gpus) for place in run.placement) for run in core.runs.values()}
        freed = sorted((max(now, run.protected_until or now), gpus[run.run]) for run in core.runs.values())
        sums = list(accumulate(each for _, each in freed))
        queued = [job for job in core.jobs.values() if job.queued]
        turn = {job: number for number, job in enumerate(core.order)}
        asked = 0
        for job in sorted(queued, key=lambda each: (turn.get(each.job, len(turn)), each.submitted_at, each.job)):
            asked += job.spec.gpus
            yield job.job, next((at for (at, _), have in zip(freed, sums, strict=True) if have >= asked), now + 2 * DAY)


def accuracy(month: Month, *, until: Millis, every: Millis) -> Figures:
    """The errors, over all moments."""
    guesses: list[Guess] = []
    took: list[float] = []
    for at in range(FIRST, until + 1, every):
        payload = month.run(at)
        began = time.process_time()
        made = forecast(payload, month.folding, now=at)
        took.append(time.process_time() - began)
        naive, contracts = month.naive(at), dict(month.contracts(at))
        jobs = month.state.placer.core.jobs
        for told in made.jobs:
            job = jobs[told.job]
            usual = max(at, job.submitted_at + naive.get(job.spec.budget, 0))
            guesses.append(
                Guess(
                    job=told.job,
                    at=at,
                    submitted_at=job.submitted_at,
                    told=told,
                    naive=usual,
                    contracts=contracts[told.job],
                )
            )
        print(f"day {at / DAY:g}: {len(made.jobs)} queued, {took[-1]:.1f} s", file=sys.stderr, flush=True)
    month.run(until + AFTERWARDS)
    pairs = [(guess, start) for guess in guesses if (start := _next_start(month, guess)) is not None]
    figures: Figures = {"moments": len(took), "forecasts": len(guesses), "not_started": len(guesses) - len(pairs)}
    return figures | errors(pairs) | {"processor_seconds_median": round(statistics.median(took), 2)}


def _next_start(month: Month, guess: Guess) -> Millis | None:
    return next((start for start in month.starts.get(guess.job, ()) if start >= guess.at), None)


def errors(pairs: Sequence[tuple[Guess, Millis]]) -> Figures:
    """Median relative errors, and how often a start came by the instants that were told."""
    figures: Figures = {}
    for name, of in (
        ("forecast", lambda guess: guess.told.p50),
        ("naive", lambda guess: guess.naive),
        ("contracts", lambda guess: guess.contracts),
    ):
        off = [(abs(of(guess) - start), start - guess.submitted_at, start - guess.at) for guess, start in pairs]
        figures[f"{name}_error_of_wait"] = _median(each / max(wait, 1) for each, wait, _ in off)
        figures[f"{name}_error_of_rest"] = _median(each / max(rest, 1) for each, _, rest in off)
        figures[f"{name}_error_minutes"] = _median(each / MINUTE for each, _, _ in off)
    figures["times_naive"] = _ratio(figures["forecast_error_of_wait"], figures["naive_error_of_wait"])
    figures["started_by_p50"] = _share([start <= guess.told.p50 for guess, start in pairs])
    figures["started_by_p90"] = _share([start <= guess.told.p90 for guess, start in pairs])
    figures["followed"] = _share([guess.told.followed for guess, _ in pairs])
    return figures


def _median(values: Iterator[float]) -> float | None:
    known = list(values)
    return round(statistics.median(known), 3) if known else None


def _ratio(one: float | None, other: float | None) -> float | None:
    return round(one / other, 2) if one is not None and other else None


def _share(which: Sequence[bool]) -> float | None:
    return round(sum(which) / len(which), 3) if which else None


def speed(month: Month, *, now: Millis) -> Figures:
    """What an answer takes with 10,000 jobs waiting."""
    state = month.folding.load(month.folding.dump(month.state))
    position = month.state.position
    waiting = sum(job.queued for job in state.placer.core.jobs.values())
    for number, job in enumerate(month.plan.trace.jobs[-(QUEUED - waiting) :]):
        position = Position(position + 1)
        fact = JobAdmitted(
            id=FactId(f"more-{number}"),
            cluster="bench",
            at=now,
            job=JobId(f"more-{number:05}"),
            spec=job.spec,
            submitted_at=now,
        )
        month.folding.evolve(state, Recorded(position, fact))
    payload = month.folding.dump(state)
    began = time.process_time()
    made = forecast(payload, month.folding, now=now)
    took = time.process_time() - began
    looks: list[float] = []
    for waits in random.Random(1).sample(sorted(state.placer.waiting.line_of), LOOKS):
        began = time.process_time()
        copy = month.folding.placer.load(month.folding.placer.dump(state.placer))
        alternatives(copy, waits, now, policy=month.plan.policy)
        looks.append((time.process_time() - began) * 1_000)
    return {
        "queued": len(made.jobs),
        "processor_seconds": round(took, 2),
        "followed": _share([each.followed for each in made.jobs]),
        "followed_hours": round((made.followed_until - now) / HOUR, 1),
        "answer_kib": round(len(encode_answer(made)) / 1024),
        "changes_ms_p50": round(statistics.median(looks)),
        "changes_ms_p99": round(sorted(looks)[int(0.99 * len(looks)) - 1]),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.forecast", description="Errors of forecasts.")
    parser.add_argument("--until", type=float, default=14, metavar="DAY", help="the day of the last forecast (14)")
    parser.add_argument("--every", type=float, default=12, metavar="HOURS", help="between two forecasts (12)")
    parser.add_argument("--only", choices=("accuracy", "speed"), help="one part")
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared", help="where the scenarios are")
    asked = parser.parse_args(arguments)
    folder, until = asked.shared / MONTH, round(asked.until * DAY)
    if not (folder / "cluster.yaml").is_file():
        print(json.dumps({"conditions": {"skipped": f"no {MONTH} in the folder shared beside the project"}}))
        return 0
    files = Files(cluster=folder / "cluster.yaml", budgets=folder / "budgets.yaml", trace=folder / "trace.csv.gz")
    plan = read_plan(files, settings=(), days=(until + AFTERWARDS) / DAY, warmup=None, skip_bad=False)
    month, figures = Month(plan), dict[str, Figures]()
    with resting_collector():
        if asked.only != "accuracy":
            month.run(FIRST)
            figures["speed"] = speed(month, now=FIRST)
        if asked.only != "speed":
            figures["accuracy"] = accuracy(month, until=until, every=round(asked.every * HOUR))
    conditions = {
        "futures": USUAL.draws,
        "facts_of_each": USUAL.facts,
        "jobs_followed": USUAL.queue,
        "futures_of_a_long_queue": LONG.draws,
        "facts_of_each_of_a_long_queue": LONG.facts,
        "jobs_followed_of_a_long_queue": LONG.queue,
    }
    print(json.dumps({"conditions": conditions, **figures}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
