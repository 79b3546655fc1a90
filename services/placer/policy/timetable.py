"""P8: when and where a blocked gang can start at the latest, from the ends of the protections in its way.

Of every run on a host it is known when the gang may have its GPUs: at once (unallocated), when its protection ends and
it has had its grace period, or never. By what right is decided now and not asked again: P5 with the ratios of now, or
with those to come if nobody starts (see `outlook`). The earliest instant at which all replicas fit is the latest start;
the hosts are those of the fewest blocks, if the gang cares, and then those that disturb the least.
"""

from dataclasses import dataclass

from services.placer.blocks import Block, replicas_in
from services.placer.core import Job, Run, masks_of
from services.placer.policy.may_disrupt import is_lower
from services.placer.policy.outlook import Outlook
from services.placer.policy.pack import pack_into
from services.placer.policy.victims import asking
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
    found = [table for _, pool in state.room.pools_for(job.spec) if (table := _in_pool(state, pool, job, given, now))]
    return min(found, key=lambda table: table.latest_start, default=None)


class _Given:
    """When the asker may have what a run holds."""

    def __init__(self, state: State, job: Job, now: Millis, *, outlook: Outlook, before: Millis | None) -> None:
        self._state, self._now, self._by, self._outlook = state, now, asking(job.spec), outlook
        self._before = float("inf") if before is None else before
        self._own = job.spec.commitment_gpu_ms if job.job in state.core.reservations else 0
        """What the standings count for the reservation that it has."""
        self._lower_from: dict[tuple[BudgetPath, BudgetPath], Millis | None] = {}

    def at(self, run: Run) -> Millis | None:
        """The instant, or None for never, and for too late."""
        if run.stop is not None:
            return None  # its GPUs may be kept for somebody: they are free soon, and then they count
        spec = self._state.core.jobs[run.job].spec
        if not spec.allocated:
            return self._now
        if run.protected_until is None or run.protected_until >= self._before:
            return None
        right = self._right(spec)
        if right is None:
            return None
        at = max(run.protected_until, right) + spec.grace_ms
        return at if at < self._before else None

    def _right(self, victim: JobSpec) -> Millis | None:
        """From when on P5 gives such a run to the asker, if nobody starts until then; None if not in sight."""
        sides = parting(self._by.budget, victim.budget)
        if sides is None:
            return self._now if self._by.priority > victim.priority else None
        if sides not in self._lower_from:
            self._lower_from[sides] = next((at for at in self._outlook.instants if self._is_lower(sides, at)), None)
        return self._lower_from[sides]

    def _is_lower(self, sides: tuple[BudgetPath, BudgetPath], at: Millis) -> bool:
        standings, own = self._outlook.at(at), self._own
        asking, holding = (standings.ratio(path, less=own if path in lineage(self._by.budget) else 0) for path in sides)
        return at < self._before and is_lower(asking, holding, policy=self._outlook.policy)


def _in_pool(state: State, pool: Pool, job: Job, given: _Given, now: Millis) -> Timetable | None:
    """Let the GPUs come in, in order of time, until all replicas fit: in one block, if they have to lie in one."""
    spec, taken = job.spec, reserved_masks(state, but=job.job)
    masks = {host: mask & ~taken.get(host, 0) for host, mask in pool.masks.items()}
    gpus = spec.gpus_per_replica
    sites = pool.sites(spec.topology, spec.replicas, gpus)
    site_of = {host: number for number, site in enumerate(sites) for host in site.every_host()}
    fits = [0] * len(sites)
    for host, mask in masks.items():
        if host in site_of:
            fits[site_of[host]] += mask.bit_count() // gpus
    latest = now
    for at, host, gained, _ in sorted(_gains(state, pool, given, taken)):
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
    return Timetable(placement=placement, latest_start=latest, waits_for=in_the_way(state, placement))


def _gains(state: State, pool: Pool, given: _Given, taken: dict[HostId, int]) -> list[Gain]:
    """What the runs in this pool hold, each with the instant from which the gang may have it."""
    gains: list[Gain] = []
    for run in state.core.runs.values():
        at = given.at(run)
        if at is None:
            continue
        for host, mask in state.masks[run.run].items():
            if host in pool.masks and mask & ~taken.get(host, 0):
                gains.append((at, host, mask & ~taken.get(host, 0), run.run))
    return gains


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
        able = (host for host in site.every_host() if masks.get(host, 0).bit_count() >= gpus)
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
