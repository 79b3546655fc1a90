"""P9 in the placer: runs on a draining host end, each as soon as the one gate lets them."""

from collections.abc import Iterator

from services.placer.policy.may_disrupt import DrainingHost, may_disrupt
from services.placer.policy.settle import FACTS_MAX
from services.placer.policy.standings import Standings
from services.placer.state import State
from tenure.domain.host import HostState
from tenure.domain.policy import Policy
from tenure.domain.units import Millis
from tenure.events.placing import RunPreemptionRequested


def drain(state: State, now: Millis, *, standings: Standings, policy: Policy) -> Iterator[RunPreemptionRequested]:
    """Preemptions for draining hosts: unallocated runs at once, allocated ones when their minimum is reached."""
    told = 0
    draining = [host for host in state.core.hosts.values() if host.state is HostState.DRAINING]
    if not draining:
        return
    for run in state.core.runs.values():
        if told >= FACTS_MAX:
            return
        if run.stop is not None:
            continue
        for host in draining:
            if host.spec.host not in run.hosts:
                continue
            by = DrainingHost(host=host.spec.host, fatal=host.fatal)
            verdict = may_disrupt(run, state.core.jobs[run.job], by, now, standings=standings, policy=policy)
            if verdict.allowed:
                told += 1
                yield RunPreemptionRequested(at=now, run=run.run, job=run.job, by=host.spec.host, why=verdict.why)
                break
