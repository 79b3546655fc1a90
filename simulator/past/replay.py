"""A past that goes on from an instant in the deciders' hands, as it was or under other rules."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from simulator.past.begin import state_at
from simulator.past.outages import Ask, Order, orders_of
from simulator.past.story import Past, PastJob
from simulator.past.worked import behaviours_of
from simulator.simulation import Simulation, Work, without_silence
from simulator.workload import TraceJob
from simulator.world import Before, World
from tenure.domain.host import HostSpec
from tenure.domain.ids import HostId
from tenure.domain.job import JobSpec
from tenure.domain.policy import Policy
from tenure.domain.tree import BudgetTree
from tenure.domain.units import Millis
from tenure.events.fact import Recorded
from tenure.runtime.options import build_policy


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What is to be other than it was. Nothing: the past is replayed unchanged."""

    tree: BudgetTree | None = None
    """In force from the beginning to the end."""
    settings: Mapping[str, object] | None = None
    """Knobs of the policy as people write them, over whatever the log had."""
    hosts: tuple[HostSpec, ...] | None = None
    """The hosts from the beginning to the end."""

    @property
    def any(self) -> bool:
        """Whether anything is."""
        return self.tree is not None or bool(self.settings) or self.hosts is not None

    @property
    def caps(self) -> bool:
        """Whether jobs may ask for other contracts than they could."""
        return any(knob in (self.settings or ()) for knob in ("min_runtime_cap", "clusters"))

    def policy(self, was: Policy) -> Policy:
        """The policy in place of one of the log. Raises `Refusal`."""
        return build_policy(self.settings, over=was) if self.settings else was


class Replay:
    """One run from `start` to `end`, in epoch milliseconds like the log."""

    def __init__(self, past: Past, *, start: Millis, end: Millis, changes: Changes, work: Work) -> None:
        self.past, self.start, self.end = past, start, end
        self._changes = changes
        self.whole = start <= past.first
        """It begins where the log does, with nothing before."""
        was = policy_at(past, start)
        self.policy = changes.policy(was)
        self.behaviours = behaviours_of(past.jobs, until=end, work=work)
        before, cut = self._before(work)
        self.gone: list[HostId] = []
        """Hosts that are there no more."""
        hosts = changes.hosts or {host.host: host for _, host in past.hosts}.values()
        self._pools = {(host.cluster, host.gpu_type) for host in hosts}
        self.contracts_cut = 0
        """Jobs that asked for a longer minimum runtime than they may now."""
        self._simulation = Simulation(
            hosts=self._hosts(),
            tree=self._tree(),
            policy=was if past.policies and not self.whole else self.policy,
            work=work,
            jobs=list(self._submissions(cut)),
            before=before,
        )
        self._script(self._simulation.world, cut)

    def run(self, *, progress: Callable[[Millis], None] | None = None) -> list[Recorded]:
        """The whole log, what was before included."""
        return self._simulation.run(self.end, progress=progress)

    def _before(self, work: Work) -> tuple[Before, int]:
        if self.whole:
            return Before(at=self.start, facts=(), running=(), behaviours={}, done_ms={}), 0
        policies = [policy.lookback_ms for _, policy in self.past.policies]
        lookback = max([self.policy.lookback_ms, *policies])
        before = state_at(self.past, at=self.start, lookback_ms=lookback, behaviours=self.behaviours, work=work)
        return before, self.past.cut(self.start)

    def _hosts(self) -> tuple[HostSpec, ...]:
        """Those that are there at the beginning: they say so once more."""
        if self.whole:
            at_first = self.past.hosts_before(self.start + 1)
            return tuple(at_first.values()) if self._changes.hosts is None else self._changes.hosts
        return tuple(self.past.hosts_before(self.start).values())

    def _tree(self) -> BudgetTree | None:
        """The tree to begin with, where it is not the one that the facts before have."""
        if self._changes.tree is not None:
            return self._changes.tree
        return self.past.trees[0][1] if self.whole else None

    def _submissions(self, cut: int) -> Iterable[TraceJob]:
        """The jobs that come in from now on, in the order in which they did."""
        for job in sorted(self._later(cut), key=lambda job: (job.submitted_at, job.admitted_in)):
            behaviour = self.behaviours.by_job[job.job]
            yield TraceJob(
                job=job.job,
                submitted_at=max(job.submitted_at, self.start),
                spec=self._signed(job),
                runs_for_ms=behaviour.runs_for_ms,
                kind="",
                behaviour=behaviour,
            )

    def _signed(self, job: PastJob) -> JobSpec:
        """What the job asks for: under a lower cap its owner would have asked for less, not for what is refused."""
        if not self._changes.caps:
            return job.spec
        policy, spec = self._changes.policy(policy_at(self.past, job.submitted_at)), job.spec
        clusters = {pool[0] for pool in self._pools if spec.wanted.accepts(pool)}  # as admission looks at it
        cap = min([policy.of_cluster(name).min_runtime_cap_ms for name in clusters], default=policy.min_runtime_cap_ms)
        if spec.min_runtime_ms <= cap:
            return spec
        self.contracts_cut += 1
        return replace(spec, min_runtime_ms=cap)

    def _later(self, cut: int) -> Iterable[PastJob]:
        return (job for job in self.past.jobs.values() if job.admitted_in >= cut and job.submitted_at < self.end)

    def _script(self, world: World, cut: int) -> None:
        """What people and machines did meanwhile, at its time."""
        if not self.whole and self.past.policies and self._changes.settings:
            world.change_policy(without_silence(self.policy))
        self._change_hosts(world)
        for at, policy in self.past.policies:
            if at >= self.start:
                world.at(at, partial(world.change_policy, without_silence(self._changes.policy(policy))))
        if self._changes.tree is None:
            for at, tree in self.past.trees[self.whole :]:
                if at >= self.start:
                    world.at(at, partial(world.change_tree, tree))
        admitted_before = {job.job for job in self.past.jobs.values() if job.admitted_in < cut}
        for job in self.past.jobs.values():
            cancelled_at = job.cancelled_at
            over = job.job in admitted_before and cancelled_at is not None and cancelled_at < self.start
            if cancelled_at is not None and not over:
                world.at(cancelled_at, partial(world.cancel, job.job))

    def _change_hosts(self, world: World) -> None:
        """Hosts that come and go, or the other cluster's."""
        there = {spec.host: spec for spec in self._hosts()}
        wanted = self._changes.hosts
        if wanted is None:
            for at, spec in self.past.hosts:
                if at >= self.start and there.get(spec.host) != spec:
                    world.at(at, partial(world.join, (spec,)))
            known = None
        else:
            stay = frozenset(spec.host for spec in wanted if there.get(spec.host) == spec)
            for host in there:
                if host not in stay:
                    world.lose(host)
            self.gone = [host for host in there if host not in {spec.host for spec in wanted}]
            fresh = tuple(spec for spec in wanted if spec.host not in stay)
            if fresh:
                world.join(fresh)
            for spec in fresh:
                if spec.host in there:  # the same name, another machine
                    world.resume(spec.host)
            latest = {spec.host: spec for _, spec in self.past.hosts}
            known = stay | {spec.host for spec in wanted if latest.get(spec.host) == spec}
        for order in orders_of(self.past.host_states):
            if order.told_at >= self.start and (known is None or order.host in known):
                world.at(max(order.at, self.start), partial(_obey, world, order))


def policy_at(past: Past, at: Millis) -> Policy:
    """The policy that counted at an instant: the first one for all that came before it."""
    known = [policy for since, policy in past.policies if since <= at]
    return known[-1] if known else past.policies[0][1] if past.policies else Policy()


def _obey(world: World, order: Order) -> None:
    match order.ask:
        case Ask.LOSE:
            world.lose(order.host)
        case Ask.DRAIN:
            world.drain(order.host, empty_at=order.empty_at)
        case Ask.RETURN if order.was_lost:
            world.repair(order.host)
        case Ask.RETURN:
            world.resume(order.host)
