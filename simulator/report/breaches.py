"""Breaches of I1-I10 that facts show, each in one line. A quick version of `tests/checks/invariants.py` that goes on.

What it cannot see: I6 (it folds nothing twice).
"""

from collections.abc import Callable, Iterable
from typing import Any

from tenure.domain.host import HostState
from tenure.domain.ids import HostId, JobId, RunId
from tenure.domain.job import JobSpec, gpus_by_host
from tenure.domain.reasons import EndCause, Reason
from tenure.domain.units import Millis
from tenure.events.budgets import JobAdmitted, RunCharged
from tenure.events.catalogue import Kind
from tenure.events.fact import Recorded
from tenure.events.hosts import HostStateChanged
from tenure.events.intake import JobCancelRequested
from tenure.events.placing import (
    JobFinished,
    JobRequeued,
    ReservationMade,
    RunAssigned,
    RunEnded,
    RunPreemptionRequested,
    RunStarted,
    RunStopRequested,
)


class _Watch:
    """What is known so far, and the breaches found."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.states: dict[HostId, HostState] = {}
        self.open_until: dict[HostId, Millis] = {}
        self.held: dict[HostId, int] = {}
        """The GPUs held on a host, a bit each."""
        self.masks: dict[tuple[int, ...], int] = {}
        self.specs: dict[JobId, JobSpec] = {}
        self.cancelled: set[JobId] = set()
        self.running: dict[JobId, RunAssigned] = {}
        self.protected: dict[RunId, Millis] = {}
        self.at_risk: set[RunId] = set()
        """Runs that were started without protection, whatever their contract asks for (the baseline's B4)."""
        self.reserved: dict[JobId, dict[HostId, tuple[int, ...]]] = {}
        """What was promised to a gang (P8)."""
        self.told: set[RunId] = set()
        self.over: set[JobId] = set()
        self.between: dict[JobId, RunId] = {}
        """Jobs whose run ended and that were neither requeued nor finished yet."""
        self.longest: dict[RunId, int] = {}
        """The most that an ended allocated run can have held, in GPU-milliseconds, until it is charged."""

    def say(self, breach: str) -> None:
        self.found.append(breach)

    def mask(self, gpus: tuple[int, ...]) -> int:
        mask = self.masks.get(gpus)
        if mask is None:
            mask = self.masks[gpus] = sum({1 << gpu for gpu in gpus})
        return mask


def find_breaches(recorded: Iterable[Recorded]) -> list[str]:
    """All breaches, in order of the log."""
    watch = _Watch()
    fold = _FOLD.get
    for entry in recorded:
        fact = entry.fact
        look = fold(type(fact))
        if look is not None:
            look(watch, fact)
    for job, run in watch.between.items():
        watch.say(f"I4: {job} disappeared after {run}")
    return watch.found


def _host_state(watch: _Watch, fact: HostStateChanged) -> None:
    watch.states[fact.host] = fact.state
    watch.open_until[fact.host] = fact.deadline or 0 if fact.accepts and fact.state is HostState.DRAINING else 0


def _ends_before_window(watch: _Watch, fact: RunAssigned, host: HostId) -> bool:
    """P9: before a maintenance window a draining host takes contracts that end in time."""
    return fact.at + fact.min_runtime_ms <= watch.open_until.get(host, 0)


def _admitted(watch: _Watch, fact: JobAdmitted) -> None:
    if fact.job in watch.specs:
        watch.say(f"I4: {fact.job} was admitted twice")
    watch.specs[fact.job] = fact.spec


def _cancel(watch: _Watch, fact: JobCancelRequested) -> None:
    watch.cancelled.add(fact.job)


def _assigned(watch: _Watch, fact: RunAssigned) -> None:
    spec = watch.specs.get(fact.job)
    if spec is None or fact.job in watch.over or fact.job in watch.running or fact.job in watch.between:
        watch.say(f"I4: {fact.run} starts although {fact.job} is not queued")
    elif len(fact.placement) != spec.replicas or any(
        len(place.gpus) != spec.gpus_per_replica for place in fact.placement
    ):
        watch.say(f"I2: {fact.run} is not whole")
    held, states, masks = watch.held, watch.states, watch.masks
    for place in fact.placement:
        host = place.host
        mask = masks.get(place.gpus) or watch.mask(place.gpus)
        taken = held.get(host, 0)
        if taken & mask:
            watch.say(f"I1: {fact.run} is given GPUs of {host} that are held")
        held[host] = taken | mask
        if states.get(host) is not HostState.HEALTHY and not _ends_before_window(watch, fact, host):
            watch.say(f"I7: {fact.run} starts on {host}, which is {states.get(host)}")
    watch.running[fact.job] = fact
    if fact.why.reason is Reason.START_AT_RISK:
        watch.at_risk.add(fact.run)


def _started(watch: _Watch, fact: RunStarted) -> None:
    watch.protected[fact.run] = fact.protected_until
    spec = watch.specs.get(fact.job)
    if spec is None:
        return
    if sum(map(len, fact.hosts.values())) != spec.gpus:
        watch.say(f"I2: {fact.run} started in parts")
    if fact.protected_until != fact.at + (0 if fact.run in watch.at_risk else spec.min_runtime_ms):
        watch.say(f"I3: {fact.run} is not protected for its minimum runtime")
    if fact.charged != spec.allocated:
        watch.say(f"I5: {fact.run} is charged: {fact.charged}, allocated: {spec.allocated}")


def _preemption(watch: _Watch, fact: RunPreemptionRequested) -> None:
    run, victim = fact.run, watch.specs.get(fact.job)
    watch.told.add(run)
    if victim is None:
        return
    until = watch.protected.get(run, fact.at if run in watch.at_risk else None)
    if victim.allocated and fact.why.reason is not Reason.DISRUPT_HOST_FATAL and (until is None or fact.at < until):
        watch.say(f"I3: {run} is told to end at {fact.at}, protected until {until}")
    asker = watch.specs.get(JobId(fact.by)) if fact.escrow else None
    if asker is None:
        return
    if not asker.allocated:
        watch.say(f"I8: {fact.by} is unallocated and displaces {run}")
    elif victim.allocated:
        _right(watch, fact, asker, victim)


def _reserved(watch: _Watch, fact: ReservationMade) -> None:
    watch.reserved[fact.job] = gpus_by_host(fact.placement)


def _right(watch: _Watch, fact: RunPreemptionRequested, asker: JobSpec, victim: JobSpec) -> None:
    """I9: by which right an allocated job displaces an allocated run."""
    run = fact.run
    if fact.why.reason is Reason.DISRUPT_LOWER_RATIO:
        numbers = fact.why.numbers
        if not _number(numbers.get("ratio")) + _number(numbers.get("margin")) < _number(numbers.get("victim_ratio")):
            watch.say(f"I9: the budget of {fact.by} is not served less than that of {run}")
    elif fact.why.reason is Reason.DISRUPT_AT_RISK:
        if run not in watch.at_risk:
            watch.say(f"I9: {fact.by} displaces {run}, which is not at risk")
    elif fact.why.reason is Reason.DISRUPT_PROMISED:
        promised, held = watch.reserved.get(JobId(fact.by), {}), gpus_by_host(watch.running[fact.job].placement)
        if not any(set(promised.get(host, ())) & set(gpus) for host, gpus in held.items()):
            watch.say(f"I9: {run} holds nothing that was promised to {fact.by}")
    elif asker.budget != victim.budget or asker.priority <= victim.priority:
        watch.say(f"I9: {fact.by} displaces {run} by {fact.why.reason}")


def _number(value: object) -> float:
    """A number of a reason; infinity is written as text."""
    return float(value) if isinstance(value, int | float | str) else 0.0


def _stop(watch: _Watch, fact: RunStopRequested) -> None:
    watch.told.add(fact.run)
    if fact.cause_of_end not in (EndCause.CANCELLED, EndCause.HOST_LOST, EndCause.FAILED):
        watch.say(f"I3: {fact.run} is stopped as {fact.cause_of_end}")
    if fact.cause_of_end is EndCause.CANCELLED and fact.job not in watch.cancelled:
        watch.say(f"I3: {fact.run} is stopped as cancelled by nobody")


def _ended(watch: _Watch, fact: RunEnded) -> None:
    run = watch.running.pop(fact.job, None)
    if run is None or run.run != fact.run:
        watch.say(f"I4: {fact.run} ends and was not there")
        return
    for place in run.placement:
        watch.held[place.host] &= ~watch.masks[place.gpus]
    watch.between[fact.job] = fact.run
    if not fact.why.rule or not fact.why.numbers:
        watch.say(f"I10: {fact.run} ends without a rule and its numbers")
    early = fact.cause_of_end in (EndCause.PREEMPTED, EndCause.DRAINED, EndCause.CANCELLED)
    if early and fact.run not in watch.told:
        watch.say(f"I10: {fact.run} ends as {fact.cause_of_end}, which nobody asked for")
    if run.allocated:
        gpus = sum(len(place.gpus) for place in run.placement)
        watch.longest[fact.run] = gpus * (fact.at - run.at)
    watch.protected.pop(fact.run, None)


def _charged(watch: _Watch, fact: RunCharged) -> None:
    longest = watch.longest.pop(fact.run, None)
    if longest is None:
        watch.say(f"I5: {fact.run} is charged twice, or is unallocated, or has not ended")
    elif min(fact.charged_gpu_ms, fact.refunded_gpu_ms) < 0 or fact.charged_gpu_ms + fact.refunded_gpu_ms > longest:
        watch.say(f"I5: {fact.run} is charged {fact.charged_gpu_ms} + {fact.refunded_gpu_ms} of at most {longest}")


def _requeued(watch: _Watch, fact: JobRequeued) -> None:
    if watch.between.pop(fact.job, None) is None:
        watch.say(f"I4: {fact.job} is requeued although no run of it ended")


def _finished(watch: _Watch, fact: JobFinished) -> None:
    if fact.job in watch.over or fact.job in watch.running:
        watch.say(f"I4: {fact.job} ends twice, or while a run of it is there")
    watch.over.add(fact.job)
    watch.between.pop(fact.job, None)


_FOLD: dict[Kind, Callable[[_Watch, Any], None]] = {
    HostStateChanged: _host_state,
    JobAdmitted: _admitted,
    JobCancelRequested: _cancel,
    RunAssigned: _assigned,
    RunStarted: _started,
    RunPreemptionRequested: _preemption,
    ReservationMade: _reserved,
    RunStopRequested: _stop,
    RunEnded: _ended,
    RunCharged: _charged,
    JobRequeued: _requeued,
    JobFinished: _finished,
}
