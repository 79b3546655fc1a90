"""How long it takes until another leads: two of each role that decides, as real processes on a durable log.

Again and again the leader of budget, ranker or placer, in turn, gets a signal, and in the same moment a job is
submitted. What counts is the whole path: from the signal until that job runs on its host, through the other process.

- `killed`: SIGKILL. Started again afterwards, it follows.
- `suspended`: SIGSTOP. Woken when the job runs, it must step back: that it wrote nothing more is tested in
  `tests/integration/ha`.
- `stopped`: SIGTERM.

The log is checked afterwards: no job lost, none started twice. With few trials p99 is the slowest of them.
"""

import asyncio
import json
import math
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import cycle, product
from pathlib import Path
from typing import Any

from tenure.log.access import Access
from tenure.log.lease import TTL_S
from tenure.runtime.nats_server import NatsServer
from tenure.sdk.client import Client
from tests.checks.invariants import check_log
from tests.e2e.system import read_log
from tests.integration.ha.pairs import CLUSTER, Pairs, one_gpu

ROLES = ("placer", "budget", "ranker")
HITS = {"killed": signal.SIGKILL, "suspended": signal.SIGSTOP, "stopped": signal.SIGTERM}
RUN_S = 180.0
"""Trials begin for so long, at least one of each."""


def runs_after(pairs: Pairs, client: Client, since: float) -> float:
    """Submit a job; how long after an instant (`time.monotonic`) it runs, in seconds. It is gone afterwards."""
    job = client.submit(one_gpu("exec sleep 1000"))
    pairs.until(lambda: client.job(job).state == "running" or None, what=f"{job} to run")
    took_s = time.monotonic() - since
    client.cancel(job, user="bench")
    return took_s


def trial(pairs: Pairs, client: Client, role: str, number: signal.Signals) -> float:
    """Seconds from the signal to the next job's run."""
    pairs.start_pairs(role)
    first = pairs.until(lambda: pairs.leader(role), what=f"a leader of {role}")
    took_s = runs_after(pairs, client, pairs.send(first, number))
    if number is signal.SIGSTOP:
        pairs.send(first, signal.SIGCONT)
    elif number is signal.SIGTERM:
        pairs.until(lambda: pairs.processes[first].poll() is not None or None, what=f"{first} to end")
    return took_s


def summary(took_s: Sequence[float]) -> dict[str, float]:
    """The median, the 99th percentile (nearest rank), the slowest."""
    ordered = sorted(took_s)

    def rank(part: float) -> float:
        return round(ordered[max(0, math.ceil(part * len(ordered)) - 1)], 2)

    return {"trials": len(ordered), "p50_s": rank(0.5), "p99_s": rank(0.99), "max_s": rank(1.0)}


def measure(folder: Path) -> dict[str, Any]:
    """Every figure."""
    server = NatsServer(folder / "nats")
    server.start()
    pairs = Pairs(folder, lambda _: Access(url=server.url))
    try:
        pairs.start("gateway", "--listen", "127.0.0.1:0")
        pairs.start("agent", "--hosts", "2x8")
        pairs.start("health")
        pairs.start_pairs(*ROLES)
        client = pairs.client()
        pairs.until(lambda: all(host.state == "healthy" for host in client.hosts().hosts) or None, what="hosts")
        undisturbed_s = runs_after(pairs, client, time.monotonic())
        took_s: dict[str, list[float]] = {name: [] for name in HITS}
        over_at = time.monotonic() + RUN_S
        for role, name in cycle(product(ROLES, HITS)):
            if time.monotonic() > over_at and all(took_s.values()):
                break
            took_s[name].append(trial(pairs, client, role, HITS[name]))
        check_log(asyncio.run(read_log(server.url, CLUSTER)))
    finally:
        pairs.close()
        server.stop()
    conditions = {"lease_s": TTL_S, "roles": ", ".join(ROLES), "undisturbed_s": round(undisturbed_s, 2)}
    return {"conditions": conditions, **{name: summary(taken) for name, taken in took_s.items()}}


def main() -> int:
    """Print the figures."""
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as folder:
        print(json.dumps(measure(Path(folder)), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
