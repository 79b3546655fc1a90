"""A long queue made short before it is simulated: of each budget the jobs that come first, as if the others had left.

A decision costs what the queue is long, and only the first of thousands can start in the time that is followed. Jobs
are taken in turns, one of each budget (allocated and unallocated apart), in the order that was published last.
"""

from collections.abc import Iterator
from itertools import zip_longest

import msgspec

from services.placer.core import Core, Job
from simulator.live.state import Dumped, Folding
from tenure.domain.ids import BudgetPath, FactId, JobId, Position
from tenure.domain.reasons import JobState, Reason, Why
from tenure.domain.units import Millis
from tenure.events.fact import Recorded
from tenure.events.placing import JobFinished

GONE = Why(rule="P10", reason=Reason.STOP_CANCELLED, numbers={})


def queue_of(core: Core) -> list[Job]:
    """The jobs that wait to be started."""
    return [job for job in core.jobs.values() if job.queued and job.cancelled_by is None]


def thin(dumped: Dumped, folding: Folding, *, most: int, now: Millis) -> tuple[Dumped, list[Job]]:
    """The same present with at most so many jobs in its queue, and the jobs that were taken out of it.

    Who has a reservation, or GPUs being freed for it, stays.
    """
    ranker, placer = folding.ranker.load(dumped.ranker), folding.placer.load(dumped.placer)
    core, queue = placer.core, queue_of(placer.core)
    if len(queue) <= most:
        return dumped, []
    kept = dict.fromkeys((*core.reservations, *core.escrows))
    for first in _in_turns(core, queue):
        if len(kept) >= most:
            break
        kept[first] = None
    gone = [job for job in queue if job.job not in kept]
    position = dumped.position
    for job in gone:
        position = Position(position + 1)
        fact = JobFinished(id=FactId(f"gone-{job.job}"), at=now, job=job.job, state=JobState.CANCELLED, why=GONE)
        folding.ranker.evolve(ranker, Recorded(position, fact))
        folding.placer.evolve(placer, Recorded(position, fact))
    thinned = msgspec.structs.replace(
        dumped, position=position, ranker=folding.ranker.dump(ranker), placer=folding.placer.dump(placer)
    )
    return thinned, gone


def _in_turns(core: Core, queue: list[Job]) -> Iterator[JobId]:
    """The first of each budget, then the second of each, and so on."""
    turn = {job: number for number, job in enumerate(core.order)}
    lines: dict[tuple[BudgetPath, bool], list[JobId]] = {}
    for job in sorted(queue, key=lambda each: (turn.get(each.job, len(turn)), each.submitted_at, each.job)):
        lines.setdefault((job.spec.budget, job.spec.allocated), []).append(job.job)
    for row in zip_longest(*[lines[key] for key in sorted(lines)]):
        yield from (job for job in row if job is not None)
