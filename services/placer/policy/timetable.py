"""P8: when and where a blocked gang can start at the latest, from the ends of the protections in its way.

Of every run on a host it is known when the gang may have its GPUs: at once (unallocated), when its protection ends and
it has had its grace period, or never. By what right is decided now and not asked again: P5 with the ratios of now, or
with those to come if nobody starts (see `outlook`). The earliest instant at which all replicas fit is the latest start;
the hosts are those of the fewest blocks, if the gang cares, and then those that disturb the least.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from services.placer.blocks import Block, replicas_in
from services.placer.core import Job, masks_of
from services.placer.loose import Holding
from services.placer.policy.may_disrupt import is_lower
from services.placer.policy.outlook import Outlook
from services.placer.policy.pack import pack_into
from services.placer.policy.victims import asking
from services.placer.policy.weigh import promised
from services.placer.room import Pool
from services.placer.state import State
from tenure.domain.ids import BudgetPath, HostId, JobId, RunId
from tenure.domain.job import JobSpec, Placement, Topology
from tenure.domain.tree import lineage, parting
from tenure.domain.units import GpuMillis, Millis

Gain = tuple[Millis, HostId, int, RunId]
"""From this instant on the gang may have these GPUs of the host, which the run holds now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timetable:
    """Where the gang starts, when at the latest, and the allocated runs that have to end for it."""

    placement: Placement
    latest_start: Millis
    waits_for: tuple[RunId, ...]


def find_timetable(
    state: State, job: Job, now: Millis, *, outlook: Outlook, before: Millis | None = None
) -> Timetable | None:
    """The earliest timetable of any pool, ties by name; None if not enough hosts can be promised to the gang.

    If it has one already: as if it had none. With `before` only a timetable whose latest start is earlier.
    """
    given = _Given(state, job, now, outlook=outlook, before=before)
    if state.room.free + given.most(state) < job.spec.gpus:
        return None
    found = [table for _, pool in state.room.pools_for(job.spec) if (table := _in_pool(state, pool, job, given, now))]
    best = min(found, key=lambda table: table.latest_start, default=None)
    return None if best is None or (before is not None and best.latest_start >= before) else best


class _Given:
    """When the asker may have what a run holds."""

    def __init__(self, state: State, job: Job, now: Millis, *, outlook: Outlook, before: Millis | None) -> None:
        self._now, self._by, self._outlook = now, asking(job.spec), outlook
        self.before = float("inf") if before is None else before
        made = state.core.reservations.get(job.job)
        self._own = 0 if made is None else promised(state, job, made.placement, policy=outlook.policy)
        """What the standings count for the reservation that it has."""
        self._lower_from: dict[tuple[BudgetPath, BudgetPath], Millis | None] = {}

    def from_on(self, budget: BudgetPath, priority: int) -> Millis | None:
        """From when on P5 gives allocated runs past their protection to the asker, if nobody starts until then.

        None if not in sight, or too late.
        """
        sides = parting(self._by.budget, budget)
        if sides is None:
            return self._now if self._by.priority > priority else None
        if sides not in self._lower_from:
            self._lower_from[sides] = self._find_lower(*sides)
        return self._lower_from[sides]

    def most(self, state: State) -> int:
        """At most so many GPUs of runs may the asker have, ever."""
        unallocated = state.loose.bunches.get(None)
        of_others = [gpus for budget, gpus in self._outlook.held.items() if self._is_open(budget)]
        return sum(of_others, 0 if unallocated is None else unallocated.gpus)

    def _is_open(self, budget: BudgetPath) -> bool:
        return parting(self._by.budget, budget) is None or self.from_on(budget, self._by.priority) is not None

    def _find_lower(self, asking: BudgetPath, holding: BudgetPath) -> Millis | None:
        ratio, policy = self._outlook.ratio, self._outlook.policy
        line = lineage(self._by.budget)
        less, least = (self._own if path in line else 0 for path in (asking, holding))
        for at in self._outlook.instants:
            if at >= self.before:
                return None
            if is_lower(ratio(asking, at, less=less), ratio(holding, at, less=least), policy=policy):
                return at
        return None


def _in_pool(state: State, pool: Pool, job: Job, given: _Given, now: Millis) -> Timetable | None:
    """Let the GPUs come in, in order of time, until all replicas fit: in one block, if they have to lie in one."""
    spec, taken = job.spec, reserved_masks(state, but=job.job)
    gains = _gains(state, pool, given, taken, now)
    if sum([mask.bit_count() for _, _, mask, _ in gains]) + pool.free < spec.gpus:
        return None
    masks = {host: mask & ~taken.get(host, 0) for host, mask in pool.masks.items()}
    gpus = spec.gpus_per_replica
    sites = pool.sites(spec.topology, spec.replicas, gpus)
    site_of = {host: number for number, site in enumerate(sites) for host in pool.hosts_in(site)}
    fits = [0] * len(sites)
    for host, mask in masks.items():
        if host in site_of:
            fits[site_of[host]] += mask.bit_count() // gpus
    latest = now
    for at, host, gained, _ in sorted(gains):
        if max(fits, default=0) >= spec.replicas:
            break
        before = masks[host]
        masks[host] = before | gained
        if host in site_of:
            fits[site_of[host]] += masks[host].bit_count() // gpus - before.bit_count() // gpus
        latest = at
    fitting = [site for site, number in zip(sites, fits, strict=True) if number >= spec.replicas]
    if not fitting:
        return None
    placement = pack_into(_least_disturbing(state, Pool.of(masks, pool.layout), fitting, spec, now), spec)
    assert placement is not None, "the room was counted to hold the gang"
    if latest > now:
        latest = max(latest, _last_grace_ends(state, placement, now))
    return Timetable(placement=placement, latest_start=latest, waits_for=in_the_way(state, placement))


def _last_grace_ends(state: State, placement: Placement, now: Millis) -> Millis:
    """When the last run of a placement that is unallocated, and so may be told now, has had its grace period."""
    ends = now
    for host, wanted in masks_of(placement).items():
        for run in state.runs_on.get(host, ()):
            spec = state.core.jobs[state.core.runs[run].job].spec
            if state.masks[run][host] & wanted and not spec.allocated:
                ends = max(ends, now + spec.grace_ms)
    return ends


def _gains(state: State, pool: Pool, given: _Given, taken: dict[HostId, int], now: Millis) -> list[Gain]:
    """What the runs in this pool hold, each with the instant from which the gang may have it.

    Not of those that were told to end: their GPUs may be kept for somebody. They are free soon, and then they count.
    """
    gains: list[Gain] = []
    masks, here = state.masks, pool.masks
    for run, at in _had_from(state, given, now):
        for host, mask in masks[run].items():
            if host in here:
                left = mask & ~taken.get(host, 0)
                if left:
                    gains.append((at, host, left, run))
    return gains


def _had_from(state: State, given: _Given, now: Millis) -> Iterator[tuple[RunId, Millis]]:
    """The runs that the gang may have, each from when on."""
    runs, jobs, before = state.core.runs, state.core.jobs, given.before
    for key, bunch in state.loose.bunches.items():
        right = now if key is None else given.from_on(key.budget, key.priority)
        if right is None:
            continue
        for run_id in bunch.runs:
            at = right if key is None else right + jobs[runs[run_id].job].spec.grace_ms
            if at < before:
                yield run_id, at
    rights: dict[Holding, Millis | None] = {}
    for run_id, (until, _, grace_ms, holding) in state.firm.items():
        if until >= before:
            continue
        if holding not in rights:
            rights[holding] = given.from_on(holding.budget, holding.priority)
        right = rights[holding]
        if right is not None:
            at = (until if until > right else right) + grace_ms
            if at < before:
                yield run_id, at


def _least_disturbing(state: State, pool: Pool, sites: list[Block], spec: JobSpec, now: Millis) -> Pool:
    """The hosts that hold the gang with the least work lost for good, then the fewest GPUs of allocated runs.

    One of these blocks has all of them; where one is preferred and the pool would do, one of those that hold it.
    """
    gpus, masks = spec.gpus_per_replica, pool.masks
    firm = _firm(state, masks, now)
    if spec.topology is Topology.PREFER_BLOCK:
        blocks = pool.one_block(spec.replicas, gpus)
        sites = [block for block in blocks if replicas_in(pool.tally(block).counts, gpus) >= spec.replicas] or sites
    best: tuple[int, int, str] | None = None
    chosen: dict[HostId, int] = {}
    for site in sites:
        left, lost, held = spec.replicas, 0, 0
        here: dict[HostId, int] = {}
        able = [host for host in pool.hosts_in(site) if masks[host].bit_count() >= gpus]
        for host in sorted(able, key=lambda h: (firm[h], h)):
            if left <= 0:
                break
            here[host] = masks[host]
            lost, held = lost + firm[host][0], held + firm[host][1]
            left -= masks[host].bit_count() // gpus
        if best is None or (lost, held, site.path) < best:
            best, chosen = (lost, held, site.path), here
    return Pool.of(dict(sorted(chosen.items())), pool.layout)


def _firm(state: State, masks: dict[HostId, int], now: Millis) -> dict[HostId, tuple[GpuMillis, int]]:
    """By host the work of allocated runs on these GPUs that would be lost for good, and the GPUs that they hold."""
    firm = dict.fromkeys(masks, (0, 0))
    for run in state.core.runs.values():
        victim = state.core.jobs[run.job].spec
        if not victim.allocated:
            continue
        gone = 0 if victim.resumable else victim.gpus * max(0, now - run.safe_until)
        for host, mask in state.masks[run.run].items():
            if host in firm and mask & masks[host]:
                lost, held = firm[host]
                firm[host] = lost + gone, held + (mask & masks[host]).bit_count()
    return firm


def reserved_masks(state: State, *, but: JobId) -> dict[HostId, int]:
    """What the reservations of all others keep, by host."""
    masks: dict[HostId, int] = {}
    for job, kept in state.reserved.items():
        for host, mask in kept.items() if job != but else ():
            masks[host] = masks.get(host, 0) | mask
    return masks


def in_the_way(state: State, placement: Placement) -> tuple[RunId, ...]:
    """The allocated runs that hold something of a placement, in order of name."""
    found: dict[RunId, None] = {}
    for host, wanted in masks_of(placement).items():
        for run in state.runs_on.get(host, ()):
            if state.masks[run][host] & wanted and state.core.jobs[state.core.runs[run].job].spec.allocated:
                found[run] = None
    return tuple(sorted(found))
