"""What the baseline's placer knows: all that the service's placer folds, the tree, and which runs are at risk.

Everything else here is an index that is rebuilt from those three.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from services.placer import state as placer
from services.placer.core import Job, Run
from simulator.baseline.limits import team_limits
from simulator.baseline.queue import Alike, Queue
from simulator.baseline.yielding import Tier, Yielding
from tenure.domain.ids import BudgetPath, FactId, HostId, JobId, Position, RunId
from tenure.domain.tree import BudgetTree
from tenure.domain.units import Millis


class Planned(NamedTuple):
    """What a decision dealt with to the end. That counts once its last fact is in the log; else it must look again."""

    last: FactId
    roomier: bool
    fresh: Mapping[Alike, None]


class State:
    """The folded state with its indexes. One owner, one thread; `evolve` changes it in place."""

    def __init__(self, *, placed: placer.State, tree: BudgetTree, at_risk: Iterable[RunId]) -> None:
        self.placed = placed
        self.tree = tree
        self.at_risk: dict[RunId, None] = dict.fromkeys(at_risk)
        """Runs of HIGH jobs that were started beyond their team's limit."""
        self.changed = True
        """Scratch of `decide`: something was folded since there was nothing to decide."""
        self.roomier = True
        """Scratch: GPUs or a team's limit may have room that they had not when the queue was last looked at."""
        self.planned: Planned | None = None
        """Scratch: a plan whose facts are not folded yet."""
        self.limits: Mapping[BudgetPath, int] = {}
        self.protected_gpus: dict[BudgetPath, int] = {}
        """Held by runs that opted out, for each team."""
        self.yielding = {Tier.FILL: Yielding(), Tier.AT_RISK: Yielding()}
        self.queue = Queue()
        self.held: dict[JobId, Millis] = {}
        """Jobs whose launch was given up, and until when they wait for another."""
        self._rebuild()

    @property
    def position(self) -> Position:
        """How far the log has been folded."""
        return self.placed.position

    @position.setter
    def position(self, value: Position) -> None:
        self.placed.position = value

    def tier_of(self, run: Run, job: Job) -> Tier:
        """How safe a run is."""
        if not job.spec.allocated:
            return Tier.FILL
        return Tier.AT_RISK if run.run in self.at_risk else Tier.PROTECTED

    def set_limits(self) -> None:
        """The limits of the present tree on the GPUs that were ever registered."""
        self.limits = team_limits(self.tree, gpus=sum(host.spec.gpus for host in self.placed.core.hosts.values()))

    def began(self, run: Run, job: Job) -> None:
        """The run holds its GPUs from now on."""
        tier = self.tier_of(run, job)
        if tier is Tier.PROTECTED:
            team = job.spec.budget
            self.protected_gpus[team] = self.protected_gpus.get(team, 0) + job.spec.gpus
        elif run.stop is None:
            self.yielding[tier].add(run, job.spec, self.placed.masks[run.run])

    def over(self, run: Run, job: Job, *, masks: Mapping[HostId, int]) -> None:
        """The run does not hold its GPUs any more."""
        tier = self.tier_of(run, job)
        if tier is Tier.PROTECTED:
            self.protected_gpus[job.spec.budget] -= job.spec.gpus
        else:
            self.yielding[tier].drop(run.run, masks)
            self.at_risk.pop(run.run, None)

    def told_to_stop(self, run: Run, job: Job) -> None:
        """The run is on its way out: nobody else may ask for it."""
        tier = self.tier_of(run, job)
        if tier is not Tier.PROTECTED:
            self.yielding[tier].drop(run.run, self.placed.masks[run.run])

    def looked(self, planned: Planned | None) -> None:
        """A decision dealt with all that had changed; `planned` if it wrote something."""
        self.planned = planned
        self.changed = self.roomier = False
        self.queue.fresh = {}

    def look_again(self) -> None:
        """What was planned was not written (another role was faster): all that it looked at is to be looked at."""
        if self.planned is not None:
            self.changed = True
            self.roomier = self.roomier or self.planned.roomier
            self.queue.fresh = {**self.planned.fresh, **self.queue.fresh}
            self.planned = None

    def wait(self, job: JobId) -> None:
        """The job stands in the queue from now on, unless it is over, running or being made room for."""
        core = self.placed.core
        known = core.jobs.get(job)
        if known is None or not known.queued or job in core.escrows or job in self.queue:
            return
        if known.held_until is None:
            self.queue.add(job, known.spec, known.submitted_at, told=job in core.said)
        else:
            self.held[job] = known.held_until

    def let_go(self, now: Millis) -> None:
        """Jobs that were held long enough stand in the queue."""
        core = self.placed.core
        for job in [job for job, until in self.held.items() if until <= now]:
            del self.held[job]
            known = core.jobs.get(job)
            if known is not None and known.queued and job not in core.escrows and job not in self.queue:
                self.queue.add(job, known.spec, known.submitted_at, told=job in core.said)
                self.changed = True

    def _rebuild(self) -> None:
        core = self.placed.core
        self.set_limits()
        for run in core.runs.values():
            self.began(run, core.jobs[run.job])
        for job_id in core.jobs:
            self.wait(job_id)


class _Saved(msgspec.Struct, frozen=True, kw_only=True):
    placed: bytes
    tree: BudgetTree
    at_risk: tuple[RunId, ...]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Saved)


def initial() -> State:
    """Nothing known."""
    return State(placed=placer.initial(), tree=BudgetTree(), at_risk=())


def dump(state: State) -> bytes:
    """The state as bytes, without its indexes."""
    saved = _Saved(placed=placer.dump(state.placed), tree=state.tree, at_risk=tuple(state.at_risk))
    return _encoder.encode(saved)


def load(payload: bytes) -> State:
    """The inverse of `dump`. Raises ValueError on damage."""
    saved = _decoder.decode(payload)
    return State(placed=placer.load(saved.placed), tree=saved.tree, at_risk=saved.at_risk)
