"""One future of the live system: its present state under a virtual clock, decided by the services' own deciders.

Assumed, as nobody knows better: hosts stay as they are, the tree and the policy too; jobs last as jobs like them did;
what comes in meanwhile is like what came in a week, or a day, before.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from services.placer.core import Core as PlacerCore
from services.placer.core import Job as PlacerJob
from services.placer.core import Run
from services.placer.state import State as PlacerState
from simulator.actor import Actor
from simulator.agents import FREE, Behaviour, Running, VirtualAgents
from simulator.clockwork import Clockwork
from simulator.live.book import FULL, Arrival, Book
from simulator.live.lengths import Lengths, quantile_of
from simulator.live.state import Dumped, Folding
from simulator.live.thinning import queue_of
from tenure.domain.ids import BudgetPath, FactId, JobId
from tenure.domain.job import JobSpec
from tenure.domain.reasons import Reason, Why
from tenure.domain.units import DAY, HOUR, MINUTE, SECOND, Millis
from tenure.events.budgets import JobAdmitted
from tenure.events.placing import PlacementDeferred, RunAssigned
from tenure.log.memory import MemoryLog

CLUSTER = "forecast"
STOPS_AFTER: Millis = 5 * SECOND
"""What a run takes to be gone that was told to."""
FIRST_LOOK: Millis = 5 * MINUTE
"""After so long it is looked whether all that was asked for has started; then after twice as long, and so on ..."""
LAST_LOOK: Millis = 6 * HOUR
"""... at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """When a future is not followed any further: after this span, or so many facts beside reasons to wait.

    `queue`: so many jobs are followed; `draws`: in how many futures, by which `seed`.
    """

    horizon_ms: Millis = 7 * DAY
    facts: int = 3_000
    queue: int = 1_000
    draws: int = 5
    seed: int = 0


USUAL = Bounds()
LONG = Bounds(facts=1_500, queue=500, draws=3)
"""For queues that are longer than `USUAL` follows: a decision costs what the queue is long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A job that had not started where a future ended. `length_ms`: how long it would hold its GPUs."""

    job: JobId
    spec: JobSpec
    submitted_at: Millis
    length_ms: Millis


@dataclass(slots=True, kw_only=True)
class Drawn:
    """One future. `starts`: when each job that was queued started first; `ended_at`: so far it was followed.

    `given`: by budget the GPU-time of what started of it.
    """

    ended_at: Millis
    starts: dict[JobId, Millis] = field(default_factory=dict)
    left: list[Left] = field(default_factory=list)
    given: dict[BudgetPath, int] = field(default_factory=dict)


class Future(Clockwork):
    """The roles with what they know now, the runs that are there, and the jobs that will come."""

    def __init__(self, dumped: Dumped, folding: Folding, *, now: Millis, lengths: Lengths, draw: int, bounds: Bounds):
        self._lengths, self._draw, self._bounds = lengths, draw, bounds
        self._lasts: dict[JobId, Millis] = {}
        log = MemoryLog(after=dumped.position)
        agents = VirtualAgents((), log, cluster=CLUSTER, heartbeat_ms=None, work=FREE)
        placer: PlacerState = folding.placer.load(dumped.placer)
        ranker = Actor(folding.ranker, log, cluster=CLUSTER, state=folding.ranker.load(dumped.ranker))
        super().__init__(log, agents, [ranker, Actor(folding.placer, log, cluster=CLUSTER, state=placer)], now=now)
        self.placer, self._assigned = placer, log.inbox((RunAssigned,))
        self._reasons = log.inbox((PlacementDeferred,))
        self._book, self.asked = dumped.book, queue_of(placer.core)
        self._take_over(placer.core)
        self._coming = arrivals(dumped.book, now=now, day_before=draw % 2 == 1, horizon_ms=bounds.horizon_ms)
        self._next, self._came = next(self._coming, None), 0
        self._expect_next()

    def follow(self) -> Drawn:
        """Let time pass until all that is queued now has started, or a bound is met."""
        waiting, drawn = {job.job: job for job in self.asked}, Drawn(ended_at=self.now)
        end, step = self.now + self._bounds.horizon_ms, FIRST_LOOK
        while waiting and self.now < end and len(self.recorded) - len(self._reasons) < self._bounds.facts:
            self.run(min(end, self.now + step))
            step = min(2 * step, LAST_LOOK)
            for entry in self._assigned:
                fact = entry.fact
                assert isinstance(fact, RunAssigned), "the inbox is of these"
                job = waiting.pop(fact.job, None)
                if job is not None:
                    drawn.starts[fact.job] = fact.at
                    given = job.spec.gpus * self._lasts[fact.job]
                    drawn.given[fact.budget] = drawn.given.get(fact.budget, 0) + given
            self._assigned.clear()
        drawn.ended_at = self.now
        drawn.left = [self.left(job) for job in waiting.values()]
        return drawn

    def left(self, job: PlacerJob) -> Left:
        """A queued job that did not start here."""
        if job.job not in self._lasts:
            held_ms = self._held_ms(job)
            self._behaviour(job.job, job.spec, had_ms=held_ms, held_ms=held_ms)
        return Left(job=job.job, spec=job.spec, submitted_at=job.submitted_at, length_ms=self._lasts[job.job])

    def _held_ms(self, job: PlacerJob) -> Millis:
        """What earlier runs of a resumable job had."""
        doing = self._book.jobs.get(job.job)
        return doing.held_ms if doing is not None and job.spec.resumable else 0

    def _take_over(self, core: PlacerCore) -> None:
        running, done_ms = list[Running](), dict[JobId, Millis]()
        for job in core.jobs.values():
            held_ms = self._held_ms(job)
            run = None if job.run is None else core.runs[job.run]
            started_at = None if run is None else run.started_at
            had_ms = held_ms + (max(0, self.now - started_at) if started_at is not None else 0)
            behaviour = self._behaviour(job.job, job.spec, had_ms=had_ms, held_ms=held_ms)
            self.agents.behaviours[job.job] = behaviour
            if held_ms:
                done_ms[job.job] = held_ms
            if run is not None:
                running.append(
                    Running(
                        assigned=_assigned(run, job.spec),
                        started_at=started_at,
                        told_to_stop=run.stop is not None or bool(run.exited),
                        exited=tuple(run.exited),
                    )
                )
        self.agents.inherit(running, done_ms=done_ms, now=self.now)

    def _behaviour(self, job: JobId, spec: JobSpec, *, had_ms: Millis, held_ms: Millis) -> Behaviour:
        quantile = quantile_of(job, draw=self._draw, draws=self._bounds.draws, seed=self._bounds.seed)
        whole = self._lengths.of(spec, had_ms=had_ms, quantile=quantile)
        self._lasts[job] = whole - held_ms
        return Behaviour(runs_for_ms=whole, stops_after_ms=STOPS_AFTER)

    def _expect_next(self) -> None:
        """One action for the next instant at which something comes in."""
        if self._next is not None:
            self.at(self._next.at, self._admit)

    def _admit(self) -> None:
        facts = []
        while self._next is not None and self._next.at <= self.now:
            spec, self._next = self._next.spec, next(self._coming, None)
            self._came += 1
            job = JobId(f"coming-{self._came}")
            self.agents.behaviours[job] = self._behaviour(job, spec, had_ms=0, held_ms=0)
            facts.append(
                JobAdmitted(
                    id=FactId(f"{job}-in"), cluster=CLUSTER, at=self.now, job=job, spec=spec, submitted_at=self.now
                )
            )
        self.log.append_now(facts)
        self._expect_next()


def arrivals(book: Book, *, now: Millis, day_before: bool, horizon_ms: Millis) -> Iterator[Arrival]:
    """What will come in, in order of time: what came in a week before, or the day before, again and again.

    Of a log with so many jobs that not even a day of them is kept: what is kept. Nothing where the log is younger, or
    what is kept came at once: that says nothing of what will.
    """
    known = 0 if book.since is None else now - book.since
    period = DAY if day_before or known < 7 * DAY else 7 * DAY
    if known < period:
        if len(book.arrivals) < FULL or known < HOUR:
            return
        period = known
    last = sorted((each for each in book.arrivals if now - period < each.at <= now), key=lambda each: each.at)
    for number in range(1, -(-horizon_ms // period) + 1):
        for each in last:
            if (at := each.at + number * period) > now + horizon_ms:
                return
            yield Arrival(at=at, spec=each.spec)


def _assigned(run: Run, spec: JobSpec) -> RunAssigned:
    """What was said of a run when it was given its GPUs, as far as its hosts need it to go on."""
    return RunAssigned(
        at=run.assigned_at,
        run=run.run,
        job=run.job,
        number=run.number,
        budget=spec.budget,
        user=spec.user,
        placement=run.placement,
        launch=spec.launch,
        min_runtime_ms=spec.min_runtime_ms,
        resumable=spec.resumable,
        grace_ms=spec.grace_ms,
        resume_count=0,
        master_address="",
        master_port=run.master_port,
        why=Why(rule="P4", reason=Reason.START_IN_ORDER, numbers={}),
    )


def by_job(drawn: Sequence[Drawn], ends: Sequence[Mapping[JobId, Millis]]) -> dict[JobId, list[Millis]]:
    """The start of each job in every future, those that were not followed so far from `ends`."""
    found: dict[JobId, list[Millis]] = {}
    for one, beyond in zip(drawn, ends, strict=True):
        for job, at in {**one.starts, **beyond}.items():
            found.setdefault(job, []).append(at)
    return found
