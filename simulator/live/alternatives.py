"""What would change a queued job's start: other requests in its place, each put to the placer's own functions.

What is told of each is when it would start by what is known now: at once where it fits, or when its victims are gone,
or by the timetable that the placer would give it (P8). Nothing is simulated: nobody is counted on to end early.
"""

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from services.placer.core import Job
from services.placer.decider import current_openings
from services.placer.policy.outlook import Outlook as Ratios
from services.placer.policy.starts import could_start
from services.placer.policy.timetable import find_timetable
from services.placer.state import State
from tenure.domain.host import CPU
from tenure.domain.ids import JobId
from tenure.domain.job import ANY, JobSpec, Topology
from tenure.domain.policy import Policy
from tenure.domain.units import MINUTE, Millis, format_duration
from tenure.runtime.forecasts import Change

WORTH_IT: Millis = MINUTE
"""A change that brings the start forward by less is none."""
SHORTEST: Millis = 15 * MINUTE
"""No shorter minimum runtime is proposed, but none at all."""
Request = tuple[str, str, str, JobSpec]
"""The change in words, the field and its value as the command line takes it, and what is asked for then."""


def alternatives(state: State, job_id: JobId, now: Millis, *, policy: Policy) -> tuple[Change, ...]:
    """The changes of a queued job, of each kind the smallest that helps; where none helps, that none does.

    `state` is a copy that nobody else looks at. Raises ValueError for a job that does not wait.
    """
    job = state.core.jobs.get(job_id)
    if job is None or not job.queued or job.cancelled_by is not None:
        raise ValueError(f"{job_id} does not wait: there is nothing to change")
    policy = state.core.policy or policy
    state.release_held(now)
    state.expire(now)
    own = state.core.reservations.get(job_id)
    as_it_is = _starts(state, job, job.spec, now, policy=policy) if own is None else own.latest_start
    found: dict[str, Change] = {}
    for change, field, value, spec in _requests(state, job.spec):
        known = found.get(field)
        if known is not None and known.starts_at == now:
            continue  # a smaller change does already
        starts_at = _starts(state, job, spec, now, policy=policy)
        before = as_it_is if known is None or known.starts_at is None else known.starts_at
        if starts_at is not None and before is not None and starts_at > before - WORTH_IT:
            starts_at = None
        if known is None or starts_at is not None:
            found[field] = Change(change=change, field=field, value=value, starts_at=starts_at)
    return tuple(found.values())


def _starts(state: State, job: Job, spec: JobSpec, now: Millis, *, policy: Policy) -> Millis | None:
    """When the job would start with another request, as far as can be told; None if it cannot."""
    asked = msgspec.structs.replace(job, spec=spec)
    openings = current_openings(state, policy)
    at = could_start(state, asked, now, openings=openings, policy=policy)
    if at is not None:
        return now if at - now <= WORTH_IT else at
    ratios = Ratios(state, now, standings=openings.standings, policy=policy)
    table = find_timetable(state, asked, now, outlook=ratios) if spec.allocated else None
    return None if table is None else table.latest_start


def _requests(state: State, spec: JobSpec) -> Iterator[Request]:
    """What else could be asked for, of each field the smallest change first."""
    yield from _fewer(spec)
    yield from _elsewhere(state, spec)
    yield from _shorter(spec)


def _fewer(spec: JobSpec) -> Iterator[Request]:
    unit = "CPU" if spec.gpu_type == CPU else "GPU"
    for replicas in _halves(spec.replicas):
        words = f"{_many(replicas, 'replica')} instead of {spec.replicas}"
        yield words, "replicas", str(replicas), replace(spec, replicas=replicas)
    for gpus in _halves(spec.gpus_per_replica):
        words = f"{_many(gpus, unit)} {'' if spec.replicas == 1 else 'a replica '}instead of {spec.gpus_per_replica}"
        yield words, "gpus_per_replica", str(gpus), replace(spec, gpus_per_replica=gpus)


def _elsewhere(state: State, spec: JobSpec) -> Iterator[Request]:
    """Other types, clusters, blocks and hosts than it asks for."""
    if spec.gpu_type is not None and spec.gpu_type != CPU:
        others = {gpu_type for _, gpu_type in state.layouts.of_pool} - {spec.gpu_type, CPU}
        for other in sorted(others):
            yield f"accept {other}", "gpu_type", other, replace(spec, gpu_type=other)
    if spec.cluster is not None:
        yield f"any cluster instead of {spec.cluster}", "cluster", ANY, replace(spec, cluster=None)
    if spec.topology is Topology.ONE_BLOCK:
        words = "anywhere instead of in one block"
        yield words, "topology", Topology.ANY.value, replace(spec, topology=Topology.ANY)
    if spec.hosts or spec.hosts_excluded:
        yield "any hosts instead of those named", "hosts", "", replace(spec, hosts=(), hosts_excluded=())


def _shorter(spec: JobSpec) -> Iterator[Request]:
    """A shorter contract: it keeps out of the way of reservations; and none, which starts wherever there is room."""
    asked, length = spec.min_runtime_ms, spec.min_runtime_ms // 2
    while length >= SHORTEST:
        rounded = length // MINUTE * MINUTE
        words = f"min-runtime {format_duration(rounded)} instead of {format_duration(asked)}"
        yield words, "min_runtime_ms", format_duration(rounded), replace(spec, min_runtime_ms=rounded)
        length //= 2
    if asked:
        words = f"no min-runtime (unallocated: free, never protected) instead of {format_duration(asked)}"
        yield words, "min_runtime_ms", "0", replace(spec, min_runtime_ms=0)


def _halves(number: int) -> Iterator[int]:
    while number > 1:
        number //= 2
        yield number


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
