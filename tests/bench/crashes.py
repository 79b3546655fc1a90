"""kill -9 at random moments on real parts: `python -m tests.bench.crashes [--points N] [--seed N] [--only GROUP]`.

Every role is a process of its own, with a nats-server and ClickHouse of their own; small real jobs are submitted all
the while. At each point one process, by lot, is killed and started again at once. What is counted at the end is counted
in the log, in what clients were told, and in marks that the jobs' processes left. Then, on a system of its own,
ClickHouse is away for more than a minute: the facts wait in the log and arrive once.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tenure.events.placing import RunAssigned
from tests.integration.faults.aftermath import check_aftermath, contracts_broken, doubled, hosts_lost, lost, settled
from tests.integration.faults.lab import Lab, lab
from tests.integration.faults.load import Load

POINTS, SEED = 100, 20_261_130
AWAY_S, AWAY_GAP_S = 75, 0.2
BETWEEN_S = (0.5, 5.0)
"""From one start again to the next kill, by lot: some come while the last victim is still reading the log."""


def main() -> int:
    """Kill, start again, count, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=POINTS, help="how often something is killed")
    parser.add_argument("--seed", type=int, default=SEED, help="of what is killed when, and of the load")
    parser.add_argument("--only", choices=("points", "database_away"), help="default: both")
    arguments = parser.parse_args()
    figures: dict[str, object] = {}
    with tempfile.TemporaryDirectory(prefix="tenure-crashes-") as folder:
        if arguments.only != "database_away":
            figures |= killed(Path(folder) / "points", points=arguments.points, seed=arguments.seed)
        if arguments.only != "points":
            figures["database_away"] = database_away(Path(folder) / "away", seed=arguments.seed)
    print(json.dumps({**figures, "conditions": {"hosts": "8 x 4 virtual GPUs, two agents"}}))
    return 0


def killed(folder: Path, *, points: int, seed: int) -> dict[str, object]:
    """So many points."""
    chance = random.Random(seed)
    with lab(folder) as each:
        began = time.monotonic()
        with each.load(seed=seed) as load:
            victims = [kill_one(each, load, chance) for _ in range(points)]
        took_s = round(time.monotonic() - began)
        return {
            "points": {"killed": points, "seconds": took_s, **counted(each, load)},
            "of_which": dict(sorted(Counter(victims).items())),
        }


def database_away(folder: Path, *, seed: int) -> dict[str, object]:
    """ClickHouse is killed and comes back `AWAY_S` later; then it has every fact once, by the check of what is left."""
    with lab(folder) as each:
        with each.load(seed=seed, gap_s=AWAY_GAP_S) as load:
            load.more(10)
            before = each.roles.recorded()[-1].position
            each.kill("clickhouse")
            time.sleep(AWAY_S)
            waiting = each.roles.recorded()[-1].position - before
            each.again("clickhouse")
            load.more(10)
        return {"away_s": AWAY_S, "facts_that_waited": waiting, **counted(each, load)}


def kill_one(each: Lab, load: Load, chance: random.Random) -> str:
    """One point: wait a while, kill a process, start it again."""
    time.sleep(chance.uniform(*BETWEEN_S))
    victim = chance.choice(each.victims)
    each.kill(victim)
    each.again(victim)
    print(f"{victim} at {len(load.acknowledged)} jobs", file=sys.stderr)
    return victim


def counted(each: Lab, load: Load) -> dict[str, int]:
    """What is left when every job is over; then all invariants, the export, the books and the database are checked."""
    recorded = settled(each)
    facts = [entry.fact for entry in recorded]
    figures = {
        "acknowledged": len(load.acknowledged),
        "acknowledged_lost": len(lost(facts, load)),
        "runs": sum(isinstance(fact, RunAssigned) for fact in facts),
        "doubled": len(doubled(facts, load)),
        "contracts_broken": len(contracts_broken(facts, load)),
        "hosts_lost": len(hosts_lost(facts)),
        "submissions_sent_again": len(load.trouble),
        "facts": len(recorded),
    }
    print(json.dumps(figures), file=sys.stderr)
    check_aftermath(each, load)
    return figures


if __name__ == "__main__":
    sys.exit(main())
