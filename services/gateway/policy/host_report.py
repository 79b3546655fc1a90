"""The numbers of the hosts: availability, how soon trouble is seen, drained and mended, and by whom."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from services.gateway.incidents import Incident
from services.gateway.state import State
from tenure.domain.reasons import Reason
from tenure.domain.units import GpuMillis, Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Lengths of time: how many there are, and their median, ninth decile and longest (nearest rank)."""

    count: int
    p50_ms: Millis
    p90_ms: Millis
    longest_ms: Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseTotal:
    """Incidents of one cause by how they ended."""

    reason: Reason
    automatic: int
    human: int
    still_open: int
    refunded_gpu_ms: GpuMillis


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """Over [since, until). Planned drains count in availability, not among the incidents' ends.

    `availability` is 1 - GPU-time out of service / GPU-time of all hosts since they registered. Hosts that count CPUs
    are among the hosts and incidents, not in what is counted in GPUs. `automatic_share` is that of the unplanned
    incidents that are over. None where there is nothing to divide by.
    """

    since: Millis
    until: Millis
    hosts: int
    gpus: int
    availability: float | None
    out_gpu_ms: GpuMillis
    refunded_gpu_ms: GpuMillis
    automatic_share: float | None
    detect: Spread
    drain: Spread
    repair: Spread
    causes: tuple[CauseTotal, ...]
    incidents: tuple[Incident, ...]


def host_report(state: State, *, since: Millis, until: Millis) -> HostReport:
    """The report on incidents that were open at any time in [since, until)."""
    found = [one for one in state.incidents.by_id.values() if one.began_at < until and _end(one, until) >= since]
    unplanned = [one for one in found if one.automatic]
    over = [one for one in unplanned if one.ended_at is not None]
    out = sum(one.gpus * max(0, _end(one, until) - max(one.out_from, since)) for one in found)
    sizes = [(entry.spec.only_gpus, max(0, until - max(since, entry.registered_at))) for entry in state.hosts.values()]
    whole = sum(gpus * there_ms for gpus, there_ms in sizes)
    return HostReport(
        since=since,
        until=until,
        hosts=len(state.hosts),
        gpus=sum(gpus for gpus, _ in sizes),
        availability=1 - out / whole if whole else None,
        out_gpu_ms=out,
        refunded_gpu_ms=sum(one.refunded_gpu_ms for one in found),
        automatic_share=sum(one.by is None for one in over) / len(over) if over else None,
        detect=spread(one.began_at - one.seen_at for one in unplanned),
        drain=spread(one.drained_at - one.began_at for one in found if one.drained_at is not None),
        repair=spread(one.ended_at - (one.drained_at or one.began_at) for one in over if one.ended_at is not None),
        causes=_causes(found),
        incidents=tuple(sorted(found, key=lambda one: (one.began_at, one.incident))),
    )


def spread(lengths: Iterable[Millis]) -> Spread:
    """Of any number of lengths of time; zeros when there is none."""
    ordered = sorted(lengths)
    if not ordered:
        return Spread(count=0, p50_ms=0, p90_ms=0, longest_ms=0)
    return Spread(count=len(ordered), p50_ms=_rank(ordered, 50), p90_ms=_rank(ordered, 90), longest_ms=ordered[-1])


def _rank(ordered: Sequence[Millis], percent: int) -> Millis:
    return ordered[-(-len(ordered) * percent // 100) - 1]


def _end(incident: Incident, until: Millis) -> Millis:
    return until if incident.ended_at is None else min(incident.ended_at, until)


def _causes(found: Sequence[Incident]) -> tuple[CauseTotal, ...]:
    by_reason: dict[Reason, list[Incident]] = {}
    for one in found:
        by_reason.setdefault(one.reason, []).append(one)
    totals = []
    for reason, incidents in sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0])):
        endings = [one.ending for one in incidents]
        totals.append(
            CauseTotal(
                reason=reason,
                automatic=endings.count("automatic"),
                human=endings.count("human"),
                still_open=endings.count("open"),
                refunded_gpu_ms=sum(one.refunded_gpu_ms for one in incidents),
            )
        )
    return tuple(totals)
