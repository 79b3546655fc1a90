"""When each queued job will start: several futures of the present, and of each job the middle and a late one."""

from collections import Counter
from collections.abc import Sequence
from math import ceil

from services.placer.core import Job
from simulator.collector import resting_collector
from simulator.live.beyond import beyond
from simulator.live.future import LONG, USUAL, Bounds, Drawn, Future, by_job
from simulator.live.lengths import Lengths
from simulator.live.state import Dumped, Folding, read
from simulator.live.thinning import queue_of, thin
from tenure.domain.host import HostState
from tenure.domain.ids import JobId
from tenure.domain.units import Millis
from tenure.runtime.forecasts import Forecast, JobForecast

LATER_FOLLOWED, LATER_BY_RATE = 1.25, 3.0
"""A few futures are more alike than what may come, and rates most of all. So p90 is put off, by so many times what is
left until then: measured on contended-month, where nine of ten jobs had started by so much."""


def forecast(payload: bytes, folding: Folding, *, now: Millis, bounds: Bounds | None = None) -> Forecast:
    """The forecast of a dumped state. The same arguments give the same forecast. Raises ValueError on damage.

    `bounds` None: those that the queue's length asks for.
    """
    whole = read(payload)
    core = folding.placer.load(whole.placer).core
    bounds = bounds or (USUAL if len(queue_of(core)) <= USUAL.queue else LONG)
    with resting_collector():
        dumped, gone = thin(whole, folding, most=bounds.queue, now=now)
        drawn = futures(dumped, gone, folding, now=now, bounds=bounds)
    gpus = sum(host.spec.gpus for host in core.hosts.values() if host.state is HostState.HEALTHY) or 1
    starts = by_job(drawn, [beyond(one, began_at=now, gpus=gpus) for one in drawn])
    followed = Counter(job for one in drawn for job in one.starts)
    promised = {job: reservation.latest_start for job, reservation in core.reservations.items()}
    jobs = [
        told(job, instants, followed=2 * followed[job] >= len(drawn), now=now, promised=promised.get(job))
        for job, instants in starts.items()
    ]
    return Forecast(
        made_at=now,
        position=whole.position,
        draws=bounds.draws,
        followed_until=min((one.ended_at for one in drawn), default=now),
        jobs_finished=dumped.book.finished,
        jobs=tuple(sorted(jobs, key=lambda each: (each.p50, each.job))),
    )


def told(
    job: JobId, instants: Sequence[Millis], *, followed: bool, now: Millis, promised: Millis | None = None
) -> JobForecast:
    """What is said of a job that starts at these instants in as many futures.

    `promised`: its latest start (P8). A promise is kept, so nothing later is said, while it is still to come.
    """
    late = now + round((at_quantile(instants, 0.9) - now) * (LATER_FOLLOWED if followed else LATER_BY_RATE))
    end = promised if promised is not None and promised > now else max(*instants, late)
    return JobForecast(
        job=job,
        earliest=min(*instants, end),
        p50=min(at_quantile(instants, 0.5), end),
        p90=min(late, end),
        latest=end,
        followed=followed,
    )


def futures(dumped: Dumped, gone: Sequence[Job], folding: Folding, *, now: Millis, bounds: Bounds) -> list[Drawn]:
    """Several futures of one present. `gone`: the jobs that were taken out of its queue, and start after all else."""
    lengths, drawn = Lengths(dumped.book, now=now), list[Drawn]()
    for draw in range(bounds.draws):
        future = Future(dumped, folding, now=now, lengths=lengths, draw=draw, bounds=bounds)
        drawn.append(future.follow())
        drawn[-1].left += [future.left(job) for job in gone]
    return drawn


def at_quantile(instants: Sequence[Millis], quantile: float) -> Millis:
    """The smallest instant by which at least so much of them has come."""
    return sorted(instants)[ceil(quantile * len(instants)) - 1]
