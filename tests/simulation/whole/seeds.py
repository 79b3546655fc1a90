"""One seed, or many: run, check, tell the story of a failure.

python -m tests.simulation.whole.seeds --seed 17          the story of one seed
python -m tests.simulation.whole.seeds --seeds 10000      many, in as many processes as there are processors
"""

import argparse
import asyncio
import logging
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from tenure.events.fact import Recorded
from tenure.events.ranking import RankingPublished
from tenure.events.reports import Heartbeat
from tenure.runtime import loop as live_loop
from tests.simulation.whole.checking import check_fold, check_run
from tests.simulation.whole.plan import DECIDERS, make_plan
from tests.simulation.whole.system import System
from tests.simulation.whole.virtual_time import BEGAN, Restless, VirtualLoop, instant

KEPT = Path(__file__).parent.parent / "seeds.txt"
TOLD = 25
"""So many facts of the jobs in question are told."""
PART = 25
"""Seeds between two lines of progress."""


@dataclass(kw_only=True)
class Outcome:
    """What became of a seed. `problem` is None if all is well."""

    seed: int
    problem: str | None = None
    story: list[str] = field(default_factory=list)
    recorded: list[Recorded] = field(default_factory=list)
    jobs_acknowledged: int = 0
    turns: int = 0

    def __str__(self) -> str:
        """The story, for people."""
        if self.problem is None:
            return f"seed {self.seed}: well; {len(self.recorded)} facts, {self.jobs_acknowledged} jobs"
        told = [f"seed {self.seed}: {self.problem}", "what went wrong on purpose:", *self.story]
        told += ["what the log has around it:", *_around(self.recorded, self.problem)]
        return "\n".join([*told, f"to see it again: make sim-soak SEED={self.seed}"])


def run_seed(seed: int) -> Outcome:
    """The whole run of one seed; the same every time."""
    outcome = Outcome(seed=seed)
    with tempfile.TemporaryDirectory(prefix="tenure-seed-", dir=_memory()) as folder, _small_snapshots(), _quiet():
        loop = VirtualLoop()
        system = System(make_plan(seed), Path(folder))
        try:
            loop.run_until_complete(_run(system))
        except Restless as restless:
            outcome.problem = str(restless)
        finally:
            turns = loop.turns
            _end(loop)
    outcome.turns = turns
    outcome.story, outcome.jobs_acknowledged = system.story, len(system.acknowledged)
    outcome.recorded = system.log.recorded
    found = [_broken(name, error) for name, error in system.broken.items()]
    try:
        check_run(outcome.recorded, acknowledged=system.acknowledged, refused=system.refused, calm=system.plan.calm)
    except AssertionError as problem:
        found.append(str(problem))
    found += [problem for problem in (system.fold_problem, outcome.problem) if problem is not None]
    outcome.problem = "; ".join(found) or None
    return outcome


def _broken(name: str, error: BaseException) -> str:
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{name} breaks: {type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"


async def _run(system: System) -> None:
    await system.run()
    system.fold_problem = _fold_problem(system)


def _fold_problem(system: System) -> str | None:
    """I6, while the processes and their states are there."""
    try:
        for name in DECIDERS:
            loop = system.processes[name].loop
            assert loop is not None or system.broken, f"{name} does not run"
            if loop is not None:
                check_fold(loop.role, system.log.recorded, loop.state, now=instant())
    except AssertionError as problem:
        return str(problem)
    return None


def _end(loop: VirtualLoop) -> None:
    loop.forgive()
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


@contextmanager
def _small_snapshots() -> Iterator[None]:
    """A snapshot every few facts, and never one for the time that has really passed."""
    with patch.object(live_loop, "SNAPSHOT_EVERY", 60), patch.object(live_loop, "SNAPSHOT_AFTER_S", -1.0):
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _memory() -> str | None:
    """A folder in memory where there is one: what is synced there costs nothing."""
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() else None


def _around(recorded: Sequence[Recorded], problem: str) -> list[str]:
    """The last facts of the jobs, runs and hosts that the problem names, else of all."""
    names = set(re.findall(r"\bj[0-9a-z]{14}\b|\bh\d{3}\b", problem))
    jobs = {name for name in names if name.startswith("j")} or names
    facts = [entry for entry in recorded if not isinstance(entry.fact, Heartbeat | RankingPublished)]
    named = [entry for entry in facts if any(name in str(entry.fact) for name in jobs)] or facts
    return [_line(entry) for entry in named[-TOLD:]]


def _line(entry: Recorded) -> str:
    fact: dict[str, Any] = msgspec.to_builtins(entry.fact)
    shown = {key: value for key, value in fact.items() if key not in ("id", "cluster", "at", "spec", "launch")}
    text = ", ".join(f"{key} {value}" for key, value in shown.items() if value not in (None, [], {}, "", ()))
    return f"{(entry.fact.at - BEGAN) / 1000:9.2f} s  {entry.position} {type(entry.fact).__name__}: {text[:260]}"


def kept_seeds() -> list[int]:
    """The seeds of `seeds.txt`, each of which once found something."""
    text = KEPT.read_text().splitlines()
    return [int(line.split()[0]) for line in text if line.strip() and not line.startswith("#")]


def problems_of(seeds: range) -> dict[int, str]:
    """The stories of those that are not well."""
    outcomes = map(run_seed, seeds)
    return {outcome.seed: str(outcome) for outcome in outcomes if outcome.problem is not None}


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0 if every seed is well."""
    parser = argparse.ArgumentParser(description="Runs the whole system with faults, a seed a run.")
    parser.add_argument("--seed", type=int, help="only this one, with its story")
    parser.add_argument("--seeds", type=int, default=1000, help="how many, from --first on")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=None, help="as many as there are processors if not given")
    arguments = parser.parse_args(argv)
    if arguments.seed is not None:
        outcome = run_seed(arguments.seed)
        print("\n".join([*outcome.story, str(outcome)]) if outcome.problem is None else outcome)
        return 0 if outcome.problem is None else 1
    return _soak(range(arguments.first, arguments.first + arguments.seeds), processes=arguments.processes)


def _soak(seeds: range, *, processes: int | None) -> int:
    """Run them all; tell each failure when it is found, and keep its seed."""
    began, done = time.monotonic(), 0
    failed: list[int] = []
    with ProcessPoolExecutor(processes) as pool:
        parts = [seeds[first : first + PART] for first in range(0, len(seeds), PART)]
        for running in as_completed({pool.submit(problems_of, part): None for part in parts}):
            for seed, story in running.result().items():
                failed.append(seed)
                print(story, flush=True)
            done = min(done + PART, len(seeds))
            rate = done / (time.monotonic() - began)
            print(
                f"{done} of {len(seeds)} seeds, {len(failed)} failed, {rate:.1f} a second, "
                f"{(len(seeds) - done) / rate:.0f} s to go",
                flush=True,
            )
    fresh = sorted(set(failed) - set(kept_seeds()))
    if fresh:
        with KEPT.open("a") as kept:
            kept.writelines(f"{seed}\n" for seed in fresh)
        print(f"kept in {KEPT.name}: {fresh}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
