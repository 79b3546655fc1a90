"""What stands before a queued job: jobs and runs by name with both sides' numbers, promises, what is free, what is out.

All of it from recorded facts. Ratios are those of the latest order; the placer adds what it has started since.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from services.gateway.entries import HostEntry, JobEntry, ReservedEntry, RunEntry
from services.gateway.policy.sides import Side, Sides, sides_of, standing_of
from services.gateway.policy.usable import Place, Usable, free_on, places_of, usable_by
from services.gateway.state import State
from tenure.domain.host import HostState
from tenure.domain.ids import HostId, JobId
from tenure.domain.job import JobSpec, Wanted
from tenure.domain.policy import Policy
from tenure.domain.reasons import JobState, Reason
from tenure.domain.units import Millis

NAMED_MAX = 20
"""Jobs, runs, promises and hosts that are told by name; all are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBefore:
    """A job whose turn comes earlier, and what put it there (see `JobBefore` in the proto)."""

    entry: JobEntry
    rank: int
    sides: Sides
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBefore:
    """A run on hosts that the job could use. `kept`: why it need not go for the job, None: nothing keeps it."""

    entry: JobEntry
    run: RunEntry
    kept: Reason | None
    sides: Sides | None
    given_when_over: bool
    """Once its protection is over P5 gives it to the job, if the ratios stay as they are."""
    drained_at: Millis | None = None
    """A host of it drains: it has to be gone then (P9), whoever asks. None: none does."""

    @property
    def goes_at(self) -> Millis | None:
        """When it has to go, if ratios stay as they are: for the job, or for a drain; None: it need not."""
        if self.given_when_over:
            return self.run.contract_ends_at
        return self.drained_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What is free on the open hosts of one kind."""

    cluster: str
    gpu_type: str
    hosts: int
    gpus: int
    free: int
    hosts_with_free: int
    largest_hole: int
    replicas_fit: int
    """Of a gang for one block: into the block of these hosts that takes most of it."""
    in_escrow: int
    reserved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """All of it, named and counted; `listed` False: the order does not name the job, only others that are like it."""

    rank: int
    queued: int
    jobs: list[JobBefore]
    jobs_count: int
    jobs_gpus: int
    runs: list[RunBefore]
    """Every one, the first that may have to go in front."""
    promised: list[tuple[JobEntry, ReservedEntry]]
    room: list[Room]
    out: list[HostEntry]
    standing: tuple[Side, ...]
    usable: Usable
    places: dict[HostId, Place]
    """See `places_of`."""
    free: dict[HostId, int]

    @property
    def runs_gpus(self) -> int:
        """GPUs that the runs hold, on any host."""
        return sum(before.run.gpus for before in self.runs)


def stands_before(state: State, asker: JobEntry, *, now: Millis, policy: Policy) -> Before:
    """`policy` counts while the log has none. Costs O(hosts + runs + queued jobs)."""
    usable = usable_by(state, asker)
    free, places = free_on(usable), places_of(asker.spec, usable)
    jobs = _jobs_before(state, asker)
    draining = {name: entry for name, entry in state.hosts.items() if entry.state is HostState.DRAINING}
    policy = state.policy or policy
    runs = (_run_before(state, asker, *pair, now, policy, draining) for pair in usable.runs)
    return Before(
        rank=state.rank(asker.job),
        queued=len(state.live[JobState.QUEUED]),
        jobs=[_job_before(state, asker, entry, rank) for entry, rank in jobs[:NAMED_MAX]],
        jobs_count=len(jobs),
        jobs_gpus=sum(entry.spec.gpus for entry, _ in jobs),
        runs=sorted(runs, key=_first_to_go),
        promised=usable.promised,
        room=_rooms(usable, free, places, gpus=asker.spec.gpus_per_replica),
        out=sorted(_out(usable), key=lambda entry: (-entry.state_since, entry.spec.host)),
        standing=standing_of(state, asker.spec.budget),
        usable=usable,
        places=places,
        free=free,
    )


def _jobs_before(state: State, asker: JobEntry) -> list[tuple[JobEntry, int]]:
    """The queued ones whose turn is earlier and that may lie where the asker may, with their ranks.

    An asker that is not listed comes after those like it that are, and after those like it that came before it.
    """
    if state.ranking is None:
        return []
    order, place, queued = state.ranking.fact.order, state.rank(asker.job), state.live[JobState.QUEUED]
    if place:
        found = [(job, rank) for rank, job in enumerate(order[: place - 1], start=1)]
    else:
        alike = _alike(state, asker)
        last = next((rank for rank in range(len(order), 0, -1) if order[rank - 1] in alike), 0)
        found = [(job, rank) for rank, job in enumerate(order[:last], start=1)]
        listed = set(order[:last])
        found += [(job, 0) for job in alike if job not in listed]
    shared = _sharing_hosts(state, asker)
    jobs = state.jobs
    return [(jobs[job], rank) for job, rank in found if job in queued and shared(jobs[job].spec.wanted)]


def _sharing_hosts(state: State, asker: JobEntry) -> Callable[[Wanted], bool]:
    """Whether jobs may lie in a pool in which the asker may: worked out once for all that want the same."""
    pools = {(host.spec.cluster, host.spec.gpu_type): None for host in state.hosts.values()}
    own = [pool for pool in pools if asker.spec.wanted.accepts(pool)]
    known: dict[Wanted, bool] = {}

    def shared(wanted: Wanted) -> bool:
        if wanted not in known:
            known[wanted] = any(wanted.accepts(pool) for pool in own)
        return known[wanted]

    return shared


def _alike(state: State, asker: JobEntry) -> dict[JobId, None]:
    """The queued jobs that the order has in one line with the asker and that came before it, first to last."""
    jobs, own, budget = state.jobs, _line(asker.spec), asker.spec.budget
    queued = (jobs[job] for job in state.live[JobState.QUEUED])
    line = [entry for entry in queued if entry.spec.budget == budget and _line(entry.spec) == own]
    came = (asker.submitted_at, asker.job)
    before = sorted((entry.submitted_at, entry.job) for entry in line)
    return {job: None for submitted_at, job in before if (submitted_at, job) < came}


def _line(spec: JobSpec) -> tuple[object, ...]:
    shape = (spec.replicas, spec.gpus_per_replica, spec.topology, spec.min_runtime_ms, spec.priority)
    return (*shape, spec.gpu_type, spec.cluster, spec.hosts, spec.hosts_excluded)


def _job_before(state: State, asker: JobEntry, entry: JobEntry, rank: int) -> JobBefore:
    sides = sides_of(state, asker.spec.budget, entry.spec.budget)
    return JobBefore(entry=entry, rank=rank, sides=sides, because=_because(state, asker, entry, sides))


def _because(state: State, asker: JobEntry, entry: JobEntry, sides: Sides) -> str:
    own, other = asker.spec, entry.spec
    if other.allocated and not own.allocated:
        return "allocated"
    if not sides.same_budget:
        if not own.allocated:
            return "less_unallocated_use"
        return "lower_ratio" if sides.other.weight < sides.own.weight else "earlier_pick"
    leaf = state.tree.by_path.get(own.budget)
    if own.allocated and leaf is not None and leaf.users_equal and own.user != other.user:
        return "user_used_less"
    if other.priority > own.priority:
        return "higher_priority"
    if entry.submitted_at > asker.submitted_at:
        return "smaller_commitment"
    return "waited_longer" if other.commitment_gpu_ms > own.commitment_gpu_ms else "submitted_earlier"


def _run_before(
    state: State,
    asker: JobEntry,
    entry: JobEntry,
    run: RunEntry,
    now: Millis,
    policy: Policy,
    draining: dict[HostId, HostEntry],
) -> RunBefore:
    """P5 and P9, as far as they are known here."""
    compared = asker.spec.allocated and run.allocated
    sides = sides_of(state, asker.spec.budget, entry.spec.budget) if compared else None
    kept_by: Reason | None = None
    if not asker.spec.allocated:
        kept_by = Reason.KEEP_ASKER_UNALLOCATED
    elif sides is not None and sides.same_budget:
        if asker.spec.priority <= entry.spec.priority:
            kept_by = Reason.KEEP_PRIORITY_NOT_HIGHER
    elif sides is not None and sides.own.weight + policy.ratio_margin >= sides.other.weight:
        kept_by = Reason.KEEP_RATIO_NOT_LOWER
    kept, drained_at = kept_by, _drained_at(run, draining, now=now)
    starting = run.allocated and run.protected_until is None
    if run.stopping or (drained_at is not None and drained_at <= now and not starting):
        kept = None
    elif compared and starting:
        kept = Reason.KEEP_NOT_STARTED
    elif compared and run.protected_until is not None and now < run.protected_until:
        kept = Reason.KEEP_PROTECTED
    return RunBefore(
        entry=entry, run=run, kept=kept, sides=sides, given_when_over=kept_by is None, drained_at=drained_at
    )


def _drained_at(run: RunEntry, draining: dict[HostId, HostEntry], *, now: Millis) -> Millis | None:
    """P9: now, or at the end of its protection, and before a maintenance window not until that begins."""
    hosts = [draining[place.host] for place in run.placement if place.host in draining] if draining else []
    if not hosts:
        return None
    over = max(now, run.contract_ends_at) if run.allocated else now
    return min(
        now if host.drain_fatal else max(over, (host.drain_deadline or 0) if host.drain_accepts else 0)
        for host in hosts
    )


def _first_to_go(before: RunBefore) -> tuple[bool, bool, Millis, str]:
    """Those that nothing keeps, then by when they have to go, those that need not last, by their protection."""
    until = before.run.contract_ends_at if before.run.allocated else 0
    goes_at = before.goes_at
    return before.kept is not None, goes_at is None, until if goes_at is None else max(until, goes_at), before.run.run


def _rooms(usable: Usable, free: dict[HostId, int], places: dict[HostId, Place], *, gpus: int) -> list[Room]:
    fit: Counter[Place] = Counter()
    for name, place in places.items():
        fit[place] += free[name] // gpus
    most: dict[tuple[str, str], int] = {}
    for (cluster, gpu_type, _), replicas in fit.items():
        most[cluster, gpu_type] = max(replicas, most.get((cluster, gpu_type), 0))
    pools: dict[tuple[str, str], list[HostEntry]] = {}
    for entry in usable.open.values():
        pools.setdefault((entry.spec.cluster, entry.spec.gpu_type), []).append(entry)
    return [
        Room(
            cluster=cluster,
            gpu_type=gpu_type,
            hosts=len(hosts),
            gpus=sum(entry.spec.gpus for entry in hosts),
            free=sum(free[entry.spec.host] for entry in hosts),
            hosts_with_free=sum(1 for entry in hosts if free[entry.spec.host]),
            largest_hole=max(free[entry.spec.host] for entry in hosts),
            replicas_fit=most.get((cluster, gpu_type), 0),
            in_escrow=sum(len(usable.escrow.get(entry.spec.host, ())) for entry in hosts),
            reserved=sum(len(usable.reserved.get(entry.spec.host, ())) for entry in hosts),
        )
        for (cluster, gpu_type), hosts in sorted(pools.items())
    ]


def _out(usable: Usable) -> Iterator[HostEntry]:
    return (entry for name, entry in usable.hosts.items() if name not in usable.open)


def is_drain(entry: HostEntry) -> bool:
    """Whether a drain took the host out, and not silence."""
    return entry.state not in (HostState.HEALTHY, HostState.SUSPECT, HostState.LOST)
