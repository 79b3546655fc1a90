"""P6 for what fits one host: where unallocated runs give way. Decided host by host, not run by run, so that small work
gathers on hosts that are broken into already, and whole hosts stay whole for who needs them.
"""

from collections.abc import Mapping
from typing import NamedTuple

from services.placer.core import Run
from services.placer.room import Pool
from services.placer.state import State
from tenure.domain.ids import HostId
from tenure.domain.policy import Policy
from tenure.domain.units import GpuMillis, Millis


class Way(NamedTuple):
    """Unallocated runs of one host whose end makes room there. The smallest is best: the first difference decides."""

    lost_for_good: GpuMillis
    """Work of runs that cannot resume."""
    collateral: int
    """GPUs that are freed and not needed."""
    available: int
    """GPUs of the host that could be had in all: the fewer, the less is broken into."""
    at_risk: GpuMillis
    host: HostId
    runs: tuple[tuple[GpuMillis, Run], ...]
    """Each with its GPU-time at risk."""
    looked: Mapping[str, int]
    """On how many hosts was looked, and how many there were, if that was not all of them."""


HOSTS_MAX = 2_000
"""So many hosts are looked at, the fullest first."""


class _Found(NamedTuple):
    """A run that may end: compared as it is taken, the resumable first, then few large ones."""

    unresumable: bool
    helps: int
    """Minus the GPUs it frees on the host."""
    at_risk: GpuMillis
    run: Run


def best_way(
    state: State,
    pool: Pool,
    gpus: int,
    now: Millis,
    *,
    blocked: Mapping[HostId, int],
    policy: Policy,
    hosts_max: int = HOSTS_MAX,
) -> Way | None:
    """Where in the pool `gpus` on one host are had for the end of unallocated runs alone; None if nowhere.

    `blocked`: by host GPUs that may not be used, whoever holds them (P8). `hosts_max`: as `HOSTS_MAX`.
    """
    unallocated = state.loose.bunches.get(None)
    hosts: dict[int, list[HostId]] = {}
    for host, held in unallocated.masks.items() if unallocated is not None else ():
        if host in pool.masks:
            available = ((pool.masks[host] | held) & ~blocked.get(host, 0)).bit_count()
            if available >= gpus:
                hosts.setdefault(available, []).append(host)
    there_are, looked_at = sum(map(len, hosts.values())), 0
    best: Way | None = None
    for available in sorted(hosts):
        for host in hosts[available] if there_are <= hosts_max else sorted(hosts[available])[: hosts_max - looked_at]:
            looked_at += 1
            usable = ~blocked.get(host, 0)
            missing = gpus - (pool.masks[host] & usable).bit_count()
            taken = _few(_found(state, host, usable, now, policy=policy), missing)
            way = Way(
                lost_for_good=sum(found.at_risk for found in taken if found.unresumable),
                collateral=sum(state.core.jobs[found.run.job].spec.gpus for found in taken) - missing,
                available=available,
                at_risk=sum(found.at_risk for found in taken),
                host=host,
                runs=tuple((found.at_risk, found.run) for found in taken),
                looked={},
            )
            if best is None or way[:5] < best[:5]:
                best = way
        if best is not None and not best.lost_for_good and not best.collateral:
            return best  # on no other host is there a better one
    looked = {"hosts_looked_at": looked_at, "hosts_to_look_at": there_are}
    return best if best is None or looked_at == there_are else best._replace(looked=looked)


def _found(state: State, host: HostId, usable: int, now: Millis, *, policy: Policy) -> list[_Found]:
    """The unallocated runs that hold something usable there, as they are taken."""
    found = []
    for run_id in state.runs_on[host]:
        helps = (state.masks[run_id][host] & usable).bit_count()
        if helps and state.loose.is_unallocated(run_id):
            run = state.core.runs[run_id]
            spec = state.core.jobs[run.job].spec
            lost_ms = max(0, now - run.safe_until)
            at_risk = spec.gpus * (min(lost_ms, policy.resume_cost_ms) if spec.resumable else lost_ms)
            found.append(_Found(not spec.resumable, -helps, at_risk, run))
    return sorted(found, key=lambda one: (*one[:3], one.run.run))


def _few(found: list[_Found], missing: int) -> list[_Found]:
    """Of these, which together are enough, as few as possible and none that is not needed."""
    taken: list[_Found] = []
    left = list(found)
    while missing > 0:
        enough = [one for one in left if one.unresumable == left[0].unresumable and -one.helps >= missing]
        one = min(enough, key=lambda one: (-one.helps, one.at_risk, one.run.run), default=left[0])
        left.remove(one)
        taken.append(one)
        missing += one.helps
    spare = -missing
    for one in reversed(taken):
        if -one.helps <= spare:
            spare += one.helps
            taken.remove(one)
    return taken
