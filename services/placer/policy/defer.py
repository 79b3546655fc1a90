"""Why a job waits, said when the reason changes and not too often, with the numbers that a person would ask for."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from services.placer.alike import Alike, Line, alike_of
from services.placer.blocks import replicas_in
from services.placer.core import Job
from services.placer.policy.may_disrupt import may_have
from services.placer.policy.settle import FACTS_MAX
from services.placer.policy.victims import asking
from services.placer.room import Pool, must_be_one_block
from services.placer.standings import Standings
from services.placer.state import State
from tenure.domain.ids import BudgetPath, JobId
from tenure.domain.job import HostChoice, Wanted
from tenure.domain.policy import Policy
from tenure.domain.reasons import Number, Reason, Why
from tenure.domain.units import MINUTE, Millis
from tenure.events.placing import PlacementDeferred

SAY_AGAIN_AFTER: Millis = MINUTE
"""A reason that flips to and fro is said at most this often; a first reason at once."""
NEXT_IN_LINE = 10
"""Between no room and room in pieces a cluster goes to and fro all the time: only so many of those whose turn is next
are told, or a long queue would fill the log."""
FEW = 4


def tell(state: State, now: Millis, *, standings: Standings, policy: Policy) -> list[PlacementDeferred]:
    """The reasons that were not said yet, of listed jobs, and those that have turned. To be asked when nothing starts.

    Sets in `state.reasons` what it looked at, and when to ask again.
    """
    telling = _Telling(state, now, standings, policy)
    facts = list(islice(telling.first_reasons(), FACTS_MAX)) or list(islice(telling.turned_reasons(), FACTS_MAX))
    if not facts:
        telling.note()
    return facts


class _Telling:
    """One look at the reasons. Jobs of a class wait for the same reason, which is found once."""

    def __init__(self, state: State, now: Millis, standings: Standings, policy: Policy) -> None:
        self._state, self._now, self._standings, self._policy = state, now, standings, policy
        self._whys: dict[Alike, Why] = {}
        self._kept: dict[tuple[BudgetPath, int, bool], dict[Reason, int]] = {}
        self._picture = Picture(state)
        self._room = tuple([pool.free for pool in state.room.pools.values()])
        self._again_at: Millis | None = None

    def first_reasons(self) -> Iterator[PlacementDeferred]:
        """Of jobs that are listed and were never told."""
        state, order = self._state, self._state.core.order
        if not state.unsaid or state.reasons.order is order:
            return
        few = len(state.unsaid) <= FEW
        untold = [job for job in (state.unsaid if few else order) if job in (order if few else state.unsaid)]
        for job in sorted(untold):  # as many as are listed, however many wait
            yield self._fact(job)

    def turned_reasons(self) -> Iterator[PlacementDeferred]:
        """Of jobs that were told another one. None has turned while the same GPUs are free."""
        state, now, again_at = self._state, self._now, self._state.reasons.again_at
        if self._room == state.reasons.room and (again_at is None or now < again_at):
            self._again_at = again_at
            return
        turned: list[JobId] = []
        for job, line in self._to_ask():
            said = state.core.said.get(job)
            if said is None or said.reason in (reason_of(state, line.alike), Reason.DEFER_NO_TIMETABLE):
                continue
            if now - said.at >= SAY_AGAIN_AFTER:
                turned.append(job)
            else:
                again_at = said.at + SAY_AGAIN_AFTER
                self._again_at = again_at if self._again_at is None else min(again_at, self._again_at)
        for job in sorted(turned):
            yield self._fact(job)

    def _to_ask(self) -> Iterator[tuple[JobId, Line]]:
        """Those whose turn is next; everybody when hosts have come or gone."""
        waiting, order = self._state.waiting, self._state.core.order
        listed = ((job, waiting.line_of[job]) for job in order if job in waiting.line_of)
        known = self._state.reasons.room
        return listed if known is None or len(known) != len(self._room) else islice(listed, NEXT_IN_LINE)

    def note(self) -> None:
        """All was told: remember for what."""
        reasons = self._state.reasons
        reasons.order, reasons.room, reasons.again_at = self._state.core.order, self._room, self._again_at

    def _fact(self, job_id: JobId) -> PlacementDeferred:
        job = self._state.core.jobs[job_id]
        alike = alike_of(job.spec)
        why = self._whys.get(alike)
        if why is None:
            why = self._whys[alike] = reason_to_wait(
                self._state, alike, kept=self._kept_from(job), picture=self._picture
            )
        return PlacementDeferred(at=self._now, job=job_id, why=why)

    def _kept_from(self, job: Job) -> dict[Reason, int]:
        """What P5 keeps from a job: the same from all that are one asker to it."""
        by = job.spec.budget, job.spec.priority, job.spec.allocated
        if by not in self._kept:
            self._kept[by] = kept_runs(self._state, job, standings=self._standings, policy=self._policy)
        return self._kept[by]


def reason_of(state: State, alike: Alike) -> Reason:
    """No such hosts, no room, room in pieces, room in more than one block, or room that is reserved."""
    pools = [pool for _, pool in state.room.pools_for(alike)]
    return _reason(state, pools, sum([pool.free for pool in pools]), alike)


def _reason(state: State, pools: list[Pool], free: int, alike: Alike) -> Reason:
    if not pools:
        return Reason.DEFER_NO_SUCH_HOSTS
    shape = (alike.topology, alike.replicas, alike.gpus_per_replica)
    if state.core.reservations and any(pool.fits_together(*shape) for pool in pools):
        return Reason.DEFER_RESERVED  # who fits and is not kept out has been started
    if must_be_one_block(alike.topology, alike.replicas) and _only_in_blocks(pools, alike):
        return Reason.DEFER_NO_BLOCK
    return Reason.DEFER_FRAGMENTED if free >= alike.gpus else Reason.DEFER_NO_ROOM


def _only_in_blocks(pools: list[Pool], alike: Alike) -> bool:
    """Whether the gang would fit if it need not lie in one block."""
    replicas, gpus = alike.replicas, alike.gpus_per_replica
    return any(pool.fits(gpus) >= replicas for pool in pools) and not any(
        pool.fits_together(alike.topology, replicas, gpus) for pool in pools
    )


def _fit_one_block(pools: list[Pool], alike: Alike) -> dict[str, int | str]:
    """The roomiest of the blocks in one of which the gang has to lie, and how many of its replicas fit there."""
    replicas, gpus = alike.replicas, alike.gpus_per_replica
    if not must_be_one_block(alike.topology, replicas):
        return {}
    blocks = [
        (replicas_in(pool.tally(block).counts, gpus), block.path)
        for pool in pools
        for block in pool.one_block(replicas, gpus)
    ]
    if not blocks:
        return {"replicas_fit_one_block": 0}
    fit, path = min(blocks, key=lambda block: (-block[0], block[1]))
    return {"replicas_fit_one_block": fit, "roomiest_block": path}


def _hosts_by_name(alike: Alike) -> dict[str, int]:
    """How many hosts the job names: the only ones for it, and ones that it may not use."""
    choice = alike.choice
    if choice is None:
        return {}
    numbers = {"hosts_named": len(choice.only), "hosts_excluded": len(choice.excluded)}
    return {name: number for name, number in numbers.items() if number}


class Picture:
    """What is free, as the reasons of one decision tell it: worked out once for all that may run on the same hosts."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._known: dict[tuple[Wanted, HostChoice | None], _Pools] = {}
        self.next_protection_ends = state.loose.next_end(state.firm)

    def of(self, alike: Alike) -> "_Pools":
        """The pools in which the class may run."""
        key = (alike.wanted, alike.choice)
        known = self._known.get(key)
        if known is None:
            pools = [pool for _, pool in self._state.room.pools_for(alike)]
            releasing = [_releasing(self._state, pool) for pool in pools]
            known = self._known[key] = _Pools(
                pools=pools,
                free=sum(pool.free for pool in pools),
                not_full=sum(sum(pool.counts[1:]) for pool in pools),
                largest_hole=max((pool.largest_hole for pool in pools), default=0),
                releasing=sum(releasing),
                most=max((pool.free + soon for pool, soon in zip(pools, releasing, strict=True)), default=0),
            )
        return known


class _Pools(NamedTuple):
    """What there is in some pools."""

    pools: list[Pool]
    free: int
    not_full: int
    """Hosts with something free."""
    largest_hole: int
    releasing: int
    most: int
    """Free or being released in the pool where that is most."""


def _releasing(state: State, pool: Pool) -> int:
    """GPUs of the pool that runs which were told to end hold, and that are not kept for an asker already."""
    held = [(host, mask) for run in state.stopping for host, mask in state.masks[run].items() if host in pool.masks]
    return sum([(mask & ~state.escrowed.get(host, 0)).bit_count() for host, mask in held])


def reason_to_wait(state: State, alike: Alike, *, kept: dict[Reason, int], picture: Picture | None = None) -> Why:
    """The reason with what was asked, what is free, the next protection to end, and what P5 keeps for which reason.

    Short is what is asked less what is free or being released, in the pool where that is least.
    """
    picture = picture or Picture(state)
    there = picture.of(alike)
    numbers: dict[str, Number] = {
        "gpus_asked": alike.gpus,
        "gpus_short": max(0, alike.gpus - there.most),
        "gpus_releasing": there.releasing,
        "replicas": alike.replicas,
        "replicas_fit": max((pool.fits(alike.gpus_per_replica) for pool in there.pools), default=None),
        "gpus_free": there.free,
        "hosts_with_gpus_free": there.not_full,
        "largest_hole": there.largest_hole,
        "next_protection_ends_ms": picture.next_protection_ends,
        **_fit_one_block(there.pools, alike),
        **_hosts_by_name(alike),
        **{reason.value: number for reason, number in kept.items()},
    }
    return Why(rule="P6", reason=_reason(state, there.pools, there.free, alike), numbers=numbers)


def kept_runs(state: State, job: Job, *, standings: Standings, policy: Policy) -> dict[Reason, int]:
    """How many runs P5 keeps from the job, by reason."""
    kept: Counter[Reason] = Counter()
    by = asking(job.spec)
    if not by.allocated:
        kept[Reason.KEEP_ASKER_UNALLOCATED] = len(state.firm) + len(state.unstarted) + len(state.loose.key_of)
        return _in_order(kept)
    kept[Reason.KEEP_PROTECTED] = len(state.firm)
    kept[Reason.KEEP_NOT_STARTED] = len(state.unstarted)
    for key, bunch in state.loose.bunches.items():
        if key is not None and not may_have(by, key, standings=standings, policy=policy):
            same = key.budget == by.budget
            kept[Reason.KEEP_PRIORITY_NOT_HIGHER if same else Reason.KEEP_RATIO_NOT_LOWER] += len(bunch.runs)
    return _in_order(kept)


def _in_order(kept: Counter[Reason]) -> dict[Reason, int]:
    return {reason: kept[reason] for reason in sorted(kept) if kept[reason]}
