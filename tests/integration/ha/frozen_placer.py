"""`python -m tests.integration.ha.frozen_placer placer ...`: a placer that suspends itself with starts in its hand.

Between deciding and appending it writes the ids of the facts that it is about to append into `DATA/in-hand` and sends
itself SIGSTOP, once, at its first start after `DATA/freeze` exists.
"""

import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from services.placer import shell
from services.placer.decider import role
from services.placer.state import State
from tenure.domain.policy import Policy
from tenure.domain.units import Millis
from tenure.events.placing import RunAssigned
from tenure.runtime.role import Decision, Role
from tenure.runtime.stamp import stamped


def freezing(policy: Policy, *, data: Path) -> Role[State]:
    """The placer's role, but for that."""
    ours = role(policy)

    def decide(state: State, now: Millis) -> Decision:
        decision = ours.decide(state, now)
        if (data / "freeze").exists() and any(isinstance(fact, RunAssigned) for fact in decision.facts):
            (data / "freeze").unlink()
            ids = [fact.id for fact in stamped(decision, role=ours.name, cluster="")]
            (data / "in-hand.new").write_text(json.dumps(ids))
            (data / "in-hand.new").rename(data / "in-hand")
            os.kill(os.getpid(), signal.SIGSTOP)
        return decision

    return replace(ours, decide=decide)


def main(arguments: Sequence[str]) -> int:
    """As `python -m services`."""
    assert arguments[0] == "placer"
    data = Path(arguments[arguments.index("--data") + 1])
    shell.role = lambda policy: freezing(policy, data=data)  # type: ignore[attr-defined]
    return shell.main(arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
