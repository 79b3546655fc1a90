"""How hosts were drained, and what ended protected runs, from the facts of a simulated log alone."""

from collections.abc import Iterable
from typing import Any

from tenure.domain.host import HostState
from tenure.domain.ids import HostId, RunId
from tenure.domain.reasons import EndCause
from tenure.domain.severity import Severity
from tenure.domain.units import MINUTE, Millis
from tenure.events.fact import Recorded
from tenure.events.hosts import DrainCompleted, HostStateChanged
from tenure.events.placing import RunAssigned, RunEnded, RunStarted
from tenure.events.reports import HostSignal

OWN_ENDS = (EndCause.COMPLETED, EndCause.FAILED, EndCause.CANCELLED)


class _Drains:
    """What is known so far."""

    def __init__(self) -> None:
        self.assigned: dict[RunId, RunAssigned] = {}
        self.protected: dict[RunId, Millis] = {}
        self.fatal: dict[HostId, set[str]] = {}
        """What said so: an order or verdict, or a signal's code."""
        self.open: dict[HostId, Millis] = {}
        """Hosts that drain at boundaries, and when the last promise that was made there is kept."""
        self.in_time: list[bool] = []
        self.waits_ms: list[Millis] = []
        self.taken_back = self.at_once = self.unfounded = self.by_fatal = 0

    def host(self, fact: HostStateChanged) -> None:
        """A host's state: a drain begins, grows fatal, or is taken back."""
        causes = self.fatal.setdefault(fact.host, set())
        if fact.state is HostState.HEALTHY:
            causes.discard("host")
            if self.open.pop(fact.host, None) is not None:
                self.taken_back += 1
        elif fact.fatal or fact.state is HostState.LOST:
            causes.add("host")
            self.at_once += fact.state is HostState.DRAINING and fact.previous is not HostState.DRAINING
            self.open.pop(fact.host, None)
        elif fact.state is HostState.DRAINING and fact.host not in self.open:
            self.open[fact.host] = max([fact.at, *(self._kept_at(run, fact) for run in self._on(fact.host))])

    def signals(self, fact: HostSignal) -> None:
        """A device's fatal words, whether or not automation may act on them."""
        causes = self.fatal.setdefault(fact.host, set())
        for signal in fact.signals:
            if signal.over:
                causes.discard(signal.code)
            elif signal.severity is Severity.FATAL:
                causes.add(signal.code)

    def empty(self, fact: DrainCompleted) -> None:
        """A drain is done."""
        kept_at = self.open.pop(fact.host, None)
        if kept_at is not None:
            self.in_time.append(fact.at <= kept_at)
            self.waits_ms.append(fact.at - fact.started_at)

    def ended(self, fact: RunEnded) -> None:
        """A run is over; before its protection, somebody has to answer for it."""
        run = self.assigned.pop(fact.run, None)
        protected_until = self.protected.pop(fact.run, 0)
        if run is None or fact.at >= protected_until or fact.cause_of_end in OWN_ENDS:
            return
        if any(self.fatal.get(place.host) for place in run.placement):
            self.by_fatal += 1
        else:
            self.unfounded += 1

    def _on(self, host: HostId) -> list[RunAssigned]:
        return [run for run in self.assigned.values() if any(place.host == host for place in run.placement)]

    def _kept_at(self, run: RunAssigned, drain: HostStateChanged) -> Millis:
        """Until when a run may hold a draining host: its protection, then its grace."""
        started = self.protected.get(run.run, drain.at + run.min_runtime_ms)
        return max(started, drain.at) + run.grace_ms


def drained(recorded: Iterable[Recorded]) -> dict[str, Any]:
    """Drains by how they went, and protected runs that were ended by others, over the whole log.

    `drains_in_time`: of those at contract boundaries, the part that was empty when the last protection that was on
    the host at its beginning, and the grace after it, was over.
    """
    drains, until = _Drains(), 0
    for entry in recorded:
        fact, until = entry.fact, entry.fact.at
        if isinstance(fact, RunAssigned):
            drains.assigned[fact.run] = fact
        elif isinstance(fact, RunStarted):
            drains.protected[fact.run] = fact.protected_until
        elif isinstance(fact, RunEnded):
            drains.ended(fact)
        elif isinstance(fact, HostStateChanged):
            drains.host(fact)
        elif isinstance(fact, HostSignal):
            drains.signals(fact)
        elif isinstance(fact, DrainCompleted):
            drains.empty(fact)
    in_time = [*drains.in_time, *(False for kept_at in drains.open.values() if kept_at < until)]
    waits_ms = sorted(drains.waits_ms)
    return {
        "drains_at_once": drains.at_once,
        "drains_at_boundaries": len(in_time),
        "drains_in_time": round(sum(in_time) / len(in_time), 4) if in_time else None,
        "drain_p90_min": round(waits_ms[len(waits_ms) * 9 // 10] / MINUTE) if waits_ms else None,
        "drains_taken_back": drains.taken_back,
        "protected_ended_by_fatal_evidence": drains.by_fatal,
        "protected_ended_otherwise": drains.unfounded,
    }
