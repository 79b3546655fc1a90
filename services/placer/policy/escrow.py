"""P7 escrow: freed GPUs are held for the asker until its victims are all gone, or a deadline passes.

A host on which a victim still is then takes no runs until it is over: see `State.overdue`; health calls it suspect.
"""

from collections.abc import Iterator
from itertools import takewhile

from services.placer.core import Escrow
from services.placer.state import State
from tenure.domain.host import HostState
from tenure.domain.ids import HostId, JobId, RunId
from tenure.domain.policy import Policy
from tenure.domain.reasons import Reason, Why
from tenure.domain.units import Millis
from tenure.events.placing import PlacementDeferred

MAY_COME_BACK = (HostState.HEALTHY, HostState.SUSPECT)


def ready(state: State) -> Iterator[Escrow]:
    """Escrows whose GPUs are all free, in order of job id: their askers start now."""
    for job_id in sorted(state.core.escrows):
        escrow = state.core.escrows[job_id]
        if is_complete(escrow, state):
            yield escrow


def is_complete(escrow: Escrow, state: State) -> bool:
    """Whether every GPU of the escrow is free of runs, on a healthy host, and kept for nobody since earlier.

    It may be where it is promised to the asker, and somebody was let there whose contract will be over in time (P8).
    """
    mine = state.kept[escrow.job]
    if not all(state.takes_runs(host) and state.free(host) & mask == mask for host, mask in mine.items()):
        return False
    earlier = takewhile(lambda job: job != escrow.job, state.core.escrows)
    return not any(mask & state.kept[job].get(host, 0) for job in earlier for host, mask in mine.items())


def keeps_others(state: State, job: JobId) -> bool:
    """Whether GPUs are held for the job elsewhere than where it was promised some."""
    escrow, promised = state.core.escrows.get(job), state.core.reservations.get(job)
    return escrow is not None and promised is not None and escrow.placement != promised.placement


def expired(state: State, now: Millis) -> Iterator[PlacementDeferred]:
    """Escrows that are given up: the deadline passed, or a host of theirs is drained or lost."""
    for job_id in sorted(state.core.escrows):
        escrow = state.core.escrows[job_id]
        hosts = {place.host for place in escrow.placement}
        unfit = sorted(host for host in hosts if state.core.hosts[host].state not in MAY_COME_BACK)
        if not unfit and (now < escrow.deadline or is_complete(escrow, state)):
            continue
        still_there = [run for run in escrow.victims if run in state.core.runs]
        numbers = {
            "deadline_ms": escrow.deadline,
            "now_ms": now,
            "victims": len(escrow.victims),
            "victims_still_there": len(still_there),
            "host": unfit[0] if unfit else None,
        }
        why = Why(rule="P7", reason=Reason.DEFER_ESCROW_EXPIRED, numbers=numbers)
        overdue = _overdue(state, still_there) if now >= escrow.deadline else {}
        yield PlacementDeferred(at=now, job=job_id, why=why, overdue=overdue)


def _overdue(state: State, victims: list[RunId]) -> dict[HostId, tuple[RunId, ...]]:
    """By host the victims of which replicas are still there, in order of name. Who was said to be is not said again."""
    found: dict[HostId, dict[RunId, None]] = {}
    for run_id in sorted(victims):
        run = state.core.runs[run_id]
        for place in run.placement:
            lost = state.core.hosts[place.host].state is HostState.LOST
            if place.replica not in run.exited and not lost and place.host not in run.overdue:
                found.setdefault(place.host, {})[run_id] = None
    return {host: tuple(found[host]) for host in sorted(found)}


def deadline(victims_grace_ms: Millis, now: Millis, *, policy: Policy) -> Millis:
    """Until when freed GPUs are held: the victims' longest grace and some slack."""
    return now + victims_grace_ms + policy.escrow_slack_ms
