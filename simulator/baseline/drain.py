"""B7, hosts that drain: what gives way leaves at once, what opted out runs to its end; on a fatal host all end now.

Nothing starts on a host that is not healthy. That a drain waits for a job that opted out, for days if need be, is what
people on call negotiate about.
"""

from collections.abc import Iterator

from simulator.baseline.state import State
from simulator.baseline.yielding import Tier
from tenure.domain.ids import HostId, RunId
from tenure.domain.job import only_host
from tenure.domain.reasons import Reason, Why
from tenure.domain.units import Millis
from tenure.events.placing import RunPreemptionRequested


def drain(state: State, now: Millis) -> Iterator[RunPreemptionRequested]:
    """What must leave draining hosts now, each run once."""
    core = state.placed.core
    told: set[RunId] = set()
    for host in sorted(state.placed.draining):
        for run_id in state.placed.runs_on.get(host, ()):
            run = core.runs[run_id]
            if run.stop is not None or run_id in told:
                continue
            tier = state.tier_of(run, core.jobs[run.job])
            why = _why(tier, host, now, fatal=core.hosts[host].fatal, team=core.jobs[run.job].spec.budget)
            if why is not None:
                told.add(run_id)
                where = only_host(run.placement)
                yield RunPreemptionRequested(at=now, run=run.run, job=run.job, only_on=where, by=host, why=why)


def _why(tier: Tier, host: HostId, now: Millis, *, fatal: bool, team: str) -> Why | None:
    if fatal:
        return Why(rule="B7", reason=Reason.DISRUPT_HOST_FATAL, numbers={"host": host, "now_ms": now})
    if tier is Tier.PROTECTED:
        return None
    reason = Reason.DISRUPT_UNALLOCATED if tier is Tier.FILL else Reason.DISRUPT_AT_RISK
    return Why(rule="B7", reason=reason, numbers={"host": host, "victim_budget": team, "now_ms": now})
