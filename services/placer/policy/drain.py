"""P9 in the placer: runs on a draining host end, each as soon as the one gate lets them."""

from collections.abc import Iterator

from services.placer.policy.may_disrupt import DrainingHost, may_disrupt
from services.placer.policy.settle import FACTS_MAX
from services.placer.standings import Standings
from services.placer.state import State
from tenure.domain.ids import RunId
from tenure.domain.policy import Policy
from tenure.domain.units import Millis
from tenure.events.placing import RunPreemptionRequested


def drain(state: State, now: Millis, *, standings: Standings, policy: Policy) -> Iterator[RunPreemptionRequested]:
    """Preemptions for draining hosts: unallocated runs at once, allocated ones when their minimum is reached."""
    told: dict[RunId, None] = {}
    for name in sorted(state.draining):
        by = DrainingHost(host=name, fatal=state.core.hosts[name].fatal)
        for run_id in state.runs_on.get(name, ()):
            run = state.core.runs[run_id]
            if run.stop is not None or run_id in told:
                continue
            verdict = may_disrupt(run, state.core.jobs[run.job], by, now, standings=standings, policy=policy)
            if verdict.allowed:
                told[run_id] = None
                yield RunPreemptionRequested(at=now, run=run_id, job=run.job, by=name, why=verdict.why)
                if len(told) >= FACTS_MAX:
                    return
