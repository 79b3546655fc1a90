"""kill -9 at random moments on real parts: `python -m tests.bench.crashes [--points N] [--seed N]`.

Every role is a process of its own, with a nats-server and ClickHouse of their own; small real jobs are submitted all
the while. At each point one process, by lot, is killed and started again at once. What is counted at the end is counted
in the log, in what clients were told, and in marks that the jobs' processes left.
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
BETWEEN_S = (0.5, 5.0)
"""From one start again to the next kill, by lot: some come while the last victim is still reading the log."""


def main() -> int:
    """Kill, start again, count, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=POINTS, help="how often something is killed")
    parser.add_argument("--seed", type=int, default=SEED, help="of what is killed when, and of the load")
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="tenure-crashes-") as folder, lab(Path(folder)) as each:
        began = time.monotonic()
        with each.load(seed=arguments.seed) as load:
            killed = [kill_one(each, load, chance) for _ in range(arguments.points)]
        figures = counted(each, load)
    conditions = {"seconds": round(time.monotonic() - began), "hosts": "8 x 4 virtual GPUs, two agents"}
    by_process = dict(sorted(Counter(killed).items()))
    print(json.dumps({"points": {"killed": len(killed), **figures}, "of_which": by_process, "conditions": conditions}))
    return 0


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
