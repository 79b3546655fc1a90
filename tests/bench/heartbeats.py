"""What heartbeats cost the deciders, and when silence is seen: `python -m tests.bench.heartbeats` prints JSON.

1,000 agents of a host each beat at the default interval, spread over it, for five virtual minutes; one falls silent
after 200 s. Process time of folding and deciding in health, budget, ranker and placer. The log's client, which reads
and decodes, comes on top of it, and the gateway's view; neither is measured here.
"""

import json
import sys
import time
from typing import Any

import msgspec

from services.budget import decider as budget
from services.health import decider as health
from services.placer import decider as placer
from services.ranker import decider as ranker
from simulator.actor import Actor
from tenure.domain.host import HostState
from tenure.domain.ids import FactId
from tenure.domain.policy import Policy
from tenure.domain.units import SECOND, Millis
from tenure.events.fact import Fact
from tenure.events.hosts import HostStateChanged
from tenure.events.reports import Heartbeat, HostBeat, HostRegistered
from tenure.log.memory import MemoryLog
from tenure.runtime.cluster_file import parse_hosts

CLUSTER = "sim"
HOSTS = 1_000
BATCHES = 20
"""Instants in an interval, at which a part of the hosts beats."""
LASTS, SILENT_AT = 300 * SECOND, 200 * SECOND


class _Roles:
    """The deciders on a memory log, and the process time each took."""

    def __init__(self, policy: Policy) -> None:
        self.log = MemoryLog()
        made = (health.role(policy), budget.role(policy), ranker.role(policy), placer.role(policy))
        self.actors: list[Actor[Any]] = [Actor(role, self.log, cluster=CLUSTER) for role in made]
        self.spent_s = dict.fromkeys((actor.role.name for actor in self.actors), 0.0)
        self.said = 0

    def say(self, fact: Fact) -> None:
        self.said += 1
        self.log.append_now([msgspec.structs.replace(fact, id=FactId(f"beat-{self.said}"), cluster=CLUSTER)])

    def settle(self, now: Millis) -> None:
        while True:
            said = 0
            for actor in self.actors:
                if actor.inbox or (actor.wake_at is not None and actor.wake_at <= now):
                    began = time.process_time()
                    said += actor.act(now)
                    self.spent_s[actor.role.name] += time.process_time() - began
            if not said:
                return


def measure() -> dict[str, Any]:
    """The figures of five virtual minutes."""
    policy, hosts = Policy(), parse_hosts(f"{HOSTS}x8")
    roles = _Roles(policy)
    for spec in hosts:
        roles.say(HostRegistered(at=0, agent=spec.host, hosts=(spec,)))
    roles.settle(0)
    roles.spent_s = dict.fromkeys(roles.spent_s, 0.0)
    step, last_beat, detected_at = policy.heartbeat_ms // BATCHES, 0, None
    for batch in range(1, LASTS // step + 1):
        now = batch * step
        for spec in hosts[batch % BATCHES :: BATCHES]:
            if spec is hosts[0] and now > SILENT_AT:
                continue
            last_beat = now if spec is hosts[0] else last_beat
            roles.say(Heartbeat(at=now, agent=spec.host, hosts=(HostBeat(host=spec.host, gpus=8),)))
        known = len(roles.log.recorded)
        roles.settle(now)
        changed = [
            entry.fact.at
            for entry in roles.log.recorded[known:]
            if isinstance(entry.fact, HostStateChanged) and entry.fact.state is HostState.SUSPECT
        ]
        detected_at = changed[0] if changed and detected_at is None else detected_at
    cores = {name: round(100 * 1_000 * spent / LASTS, 3) for name, spent in roles.spent_s.items()}
    return {
        "conditions": {"hosts": HOSTS, "heartbeat_ms": policy.heartbeat_ms},
        "percent_of_a_core": {**cores, "all": round(sum(cores.values()), 3)},
        "silence": {"seen_after_s": None if detected_at is None else (detected_at - last_beat) / SECOND},
    }


def main() -> int:
    """Print the figures."""
    print(json.dumps(measure(), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
