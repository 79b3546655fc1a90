"""The plan of one decision: in order (B1) start what fits, displace whom B5 allows, pass over who must wait (B6)."""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from services.placer.policy import escrow
from services.placer.policy.assign import PORT_COUNT, PORT_FIRST, assign
from services.placer.policy.settle import FACTS_MAX
from simulator.baseline.queue import Line
from simulator.baseline.room import Reach, Victims
from simulator.baseline.state import State
from simulator.baseline.yielding import Tier
from tenure.domain.ids import BudgetPath, JobId
from tenure.domain.job import JobSpec, Placement, only_host
from tenure.domain.policy import Policy
from tenure.domain.reasons import Number, Reason, Why
from tenure.domain.units import Millis
from tenure.events.fact import Fact
from tenure.events.placing import PlacementDeferred, RunPreemptionRequested

Turn = tuple[int, Millis, JobId, int, Line]
"""The safest tier first, then the original submit time, then the id; where in its line the job stands."""


def plan_starts(state: State, now: Millis, *, policy: Policy) -> list[Fact]:
    """Starts, preemptions, and why the others wait (said once a job, when it comes to stand in the queue).

    Less than `FACTS_MAX` facts: nobody else can start until something else happens.
    """
    lines = state.queue.lines.values() if state.roomier else state.queue.fresh_lines()
    if not lines and not state.placed.core.escrows:
        return []
    with state.placed.room.trial():
        plan = _Plan(state, now, policy)
        for freed in escrow.ready(state.placed):
            plan.start_freed(freed.job, freed.placement)
        plan.serve_in_order(lines)
    return plan.facts


class _Plan:
    """What one decision starts and stops."""

    def __init__(self, state: State, now: Millis, policy: Policy) -> None:
        self.facts: list[Fact] = []
        self.state, self.now, self.policy = state, now, policy
        self.reach = Reach(state)
        self.promised: dict[BudgetPath, int] = {}
        """Protected GPUs of askers whose room is being made, and of what this decision starts."""
        core = state.placed.core
        self.asking = {job_id: self.promise(core.jobs[job_id].spec) for job_id in core.escrows}
        """How safe the jobs will be for which room is being made: who asked first (order of the log) comes first."""

    def serve_in_order(self, lines: Iterable[Line]) -> None:
        """Give every job its turn, but for those that stand behind one that cannot start and is like them."""
        turns: list[Turn] = []
        for line in lines:
            tier = self.tier_for(line.spec)
            if line.untold or line.gpus <= self.reach.gpus(tier):
                turns.append(_turn(line, 0, tier))
        heapify(turns)
        while turns and len(self.facts) < FACTS_MAX:
            before, _, job, index, line = heappop(turns)
            tier = self.tier_for(line.spec)
            if -before != tier:  # others of its team were faster
                heappush(turns, _turn(line, index, tier))
            elif not self.serve(job, line, tier):
                self.tell_why(line, index)
            elif index + 1 < len(line.places):
                heappush(turns, _turn(line, index + 1, tier))

    def promise(self, spec: JobSpec) -> Tier:
        """The tier in which such a job starts now, its GPUs counted."""
        tier = self.tier_for(spec)
        if tier is Tier.PROTECTED:
            self.promised[spec.budget] = self.promised.get(spec.budget, 0) + spec.gpus
        return tier

    def tier_for(self, spec: JobSpec) -> Tier:
        """B2-B4: protected while the team's limit lasts, at risk beyond it; without a contract it is fill."""
        if not spec.allocated:
            return Tier.FILL
        return Tier.PROTECTED if self.team_room(spec.budget) >= spec.gpus else Tier.AT_RISK

    def team_room(self, team: BudgetPath) -> int:
        """How many more protected GPUs the team may hold."""
        state = self.state
        return state.limits.get(team, 0) - state.protected_gpus.get(team, 0) - self.promised.get(team, 0)

    def serve(self, job_id: JobId, line: Line, tier: Tier) -> bool:
        """Start the job, or have room made for it. False: it has to wait, and so have all that are like it."""
        spec = line.spec
        placement = self.reach.fit(spec)
        if placement is not None:
            self.reach.take(placement)
            self.promise(spec)
            self.start(job_id, placement, tier)
            return True
        if line.gpus > self.reach.gpus(tier) or job_id in self.state.placed.waited_for:
            return False
        found = self.reach.displace(spec, tier)
        if found is None:
            return False
        self.reach.tell(found)
        self.promise(spec)
        self.preempt(job_id, found)
        return True

    def start_freed(self, job_id: JobId, placement: Placement) -> None:
        """The runs that were in its way are gone."""
        self.start(job_id, placement, self.asking[job_id], freed=True)

    def start(self, job_id: JobId, placement: Placement, tier: Tier, *, freed: bool = False) -> None:
        """Give the job these GPUs. Nothing listens on the port of a simulated rendezvous."""
        state, job = self.state, self.state.placed.core.jobs[job_id]
        port = PORT_FIRST + (state.position + len(self.facts)) % PORT_COUNT
        numbers = {
            "gpus": job.spec.gpus,
            "hosts": len({place.host for place in placement}),
            "waited_ms": self.now - job.submitted_at,
            **self.team_numbers(job.spec),
        }
        if tier is Tier.AT_RISK:
            why = Why(rule="B4", reason=Reason.START_AT_RISK, numbers=numbers)
        elif freed:
            why = Why(rule="B5", reason=Reason.START_ESCROW_COMPLETE, numbers=numbers)
        elif tier is Tier.PROTECTED:
            why = Why(rule="B1", reason=Reason.START_IN_ORDER, numbers=numbers)
        else:
            why = Why(rule="B1", reason=Reason.START_UNALLOCATED_FILL, numbers=numbers)
        self.facts.append(assign(state.placed, job, placement, self.now, port=port, why=why))

    def preempt(self, job_id: JobId, found: Victims) -> None:
        """Tell every victim, and hold the whole placement for the asker."""
        core = self.state.placed.core
        placement, victims = found
        grace_ms = max(core.jobs[run.job].spec.grace_ms for run in victims)
        until = escrow.deadline(grace_ms, self.now, policy=self.policy)
        for run in victims:
            fill = not core.jobs[run.job].spec.allocated
            reason = Reason.DISRUPT_UNALLOCATED if fill else Reason.DISRUPT_AT_RISK
            numbers = {"victim_budget": core.jobs[run.job].spec.budget, **self.team_numbers(core.jobs[job_id].spec)}
            why = Why(rule="B5", reason=reason, numbers=numbers)
            self.facts.append(
                RunPreemptionRequested(
                    at=self.now,
                    run=run.run,
                    job=run.job,
                    only_on=only_host(run.placement),
                    by=job_id,
                    why=why,
                    escrow=placement,
                    deadline=until,
                )
            )
        numbers = {"gpus_asked": core.jobs[job_id].spec.gpus, "victims": len(victims), "deadline_ms": until}
        why = Why(rule="B5", reason=Reason.DEFER_VICTIMS_STOPPING, numbers=numbers)
        self.facts.append(PlacementDeferred(at=self.now, job=job_id, why=why))

    def team_numbers(self, spec: JobSpec) -> dict[str, Number]:
        """What B2 compared: nothing for a job without a contract."""
        if not spec.allocated:
            return {}
        held = self.state.protected_gpus.get(spec.budget, 0)
        return {"team": spec.budget, "team_limit": self.state.limits.get(spec.budget, 0), "team_protected": held}

    def tell_why(self, line: Line, index: int) -> None:
        """Why the jobs from here on wait, of each that was not told."""
        if not line.untold:
            return
        why = self.reason_to_wait(line)
        for job in self.state.queue.untold(line, since=index)[: FACTS_MAX - len(self.facts)]:
            self.facts.append(PlacementDeferred(at=self.now, job=job, why=why))

    def reason_to_wait(self, line: Line) -> Why:
        """No such hosts, no room, or room in pieces."""
        spec = line.spec
        pools = self.state.placed.room.pools_for(spec)
        free = sum([pool.free for _, pool in pools])
        numbers = {"gpus_asked": spec.gpus, "gpus_free": free, **self.team_numbers(spec)}
        if not pools:
            return Why(rule="B6", reason=Reason.DEFER_NO_SUCH_HOSTS, numbers=numbers)
        fragmented = free >= spec.gpus
        return Why(rule="B6", reason=Reason.DEFER_FRAGMENTED if fragmented else Reason.DEFER_NO_ROOM, numbers=numbers)


def _turn(line: Line, index: int, tier: Tier) -> Turn:
    """When it is the turn of a job of the line."""
    place = line.places[index]
    return -tier, place.submitted_at, place.job, index, line
