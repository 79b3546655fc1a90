"""A history, or a what-if, in the services' own hands: jobs come in as a trace says, hosts fail as a list says.

trace, faults, edits of the tree -> World (deciders, virtual agents, virtual clock) -> the log
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from simulator.agents import Behaviour, Work
from simulator.collector import resting_collector
from simulator.faults import Fault
from simulator.workload import TraceJob
from simulator.world import FAIR, Before, Roles, World
from tenure.domain.host import HostSpec
from tenure.domain.policy import Policy
from tenure.domain.tree import BudgetTree
from tenure.domain.units import DAY, HOUR, Millis
from tenure.events.fact import Recorded

__all__ = ["FAIR", "Roles", "Simulation", "Work"]


class Simulation:
    """One history. The same arguments give the same log, fact by fact. Instants are ms since its beginning."""

    def __init__(
        self,
        *,
        hosts: Sequence[HostSpec],
        tree: BudgetTree | None,
        policy: Policy,
        jobs: Sequence[TraceJob],
        work: Work | None = None,
        faults: Sequence[Fault] = (),
        edits: Sequence[tuple[Millis, BudgetTree]] = (),
        roles: Roles = FAIR,
        before: Before | None = None,
    ) -> None:
        """`jobs` in order of `submitted_at`; `edits` are later trees and when they take effect.

        With `before` it takes over from there; `tree` is then a new one, or None for the one that there is.
        """
        self.world = World(
            hosts=hosts, tree=tree, policy=without_silence(policy), roles=roles, work=work or Work(), before=before
        )
        self._jobs = jobs
        self._next = 0
        for fault in faults:
            self.world.at(fault.down_at, partial(self.world.lose, fault.host, kind=fault.kind))
            if fault.up_at is not None:
                self.world.at(fault.up_at, partial(self.world.repair, fault.host, kind=fault.kind))
        for at, edited in edits:
            self.world.at(at, partial(self.world.change_tree, edited))
        self._plan_next()

    def run(self, until: Millis, *, progress: Callable[[Millis], None] | None = None) -> list[Recorded]:
        """Everything up to and including `until`. `progress` hears of each hour that is behind us.

        The collector of cycles rests meanwhile.
        """
        with resting_collector():
            while self.world.now < until:
                self.world.run(min(until, self.world.now + HOUR))
                if progress is not None:
                    progress(self.world.now)
        return self.world.recorded

    def _plan_next(self) -> None:
        """The next jobs of the trace: one action for all of an instant, planned when the one before has happened."""
        if self._next < len(self._jobs):
            self.world.at(self._jobs[self._next].submitted_at, self._submit)

    def _submit(self) -> None:
        jobs, now = self._jobs, self.world.now
        while self._next < len(jobs) and jobs[self._next].submitted_at <= now:
            job = jobs[self._next]
            self.world.submit(job.job, job.spec, job.behaviour or Behaviour(runs_for_ms=job.runs_for_ms))
            self._next += 1
        self._plan_next()


def without_silence(policy: Policy) -> Policy:
    """Hosts fail by the list of faults, and then at once: nobody waits for heartbeats, so they may be rare."""
    return replace(
        policy, heartbeat_ms=DAY, suspect_after_ms=3 * DAY, lost_after_ms=4 * DAY, block_lost_after_ms=4 * DAY
    )
