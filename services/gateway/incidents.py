"""Incidents of hosts, from the facts of health and what people asked for: what `tenure host report` counts.

An incident begins when a host leaves service and ends with its return. A drain that people asked
for is one too, planned.
"""

from collections.abc import Iterable

import msgspec

from tenure.domain.host import HostState
from tenure.domain.ids import HostId, RunId, UserName
from tenure.domain.reasons import EndCause, Reason
from tenure.domain.units import GpuMillis, Millis
from tenure.events.budgets import RunCharged
from tenure.events.hosts import HostStateChanged
from tenure.events.intake import RepairCompleted, ResumeRequested
from tenure.events.placing import RunEnded

KEPT = 10_000
"""Incidents that are kept, the latest."""
LOSSES_KEPT = 10_000
_SILENT = "silent_ms"
_LASTED = "lasted_ms"


class Incident(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One absence of a host from service. `by` and `comment` are a person's; without one automation ended it.

    `seen_at`: the first sign of trouble, as far as the evidence says.
    """

    incident: str
    host: HostId
    gpus: int
    """0 of a host that counts CPUs."""
    reason: Reason
    automatic: bool
    seen_at: Millis
    began_at: Millis
    out_from: Millis
    """Its GPUs are not available from then on: before a maintenance window begins they still are."""
    drained_at: Millis | None = None
    ended_at: Millis | None = None
    state: HostState
    by: UserName | None = None
    comment: str = ""
    refunded_gpu_ms: GpuMillis = 0

    @property
    def ending(self) -> str:
        """How it ended: `automatic`, `human`, or not yet: `open`."""
        if self.ended_at is None:
            return "open"
        return "automatic" if self.by is None else "human"


class Incidents:
    """The latest incidents, oldest first, and the one of each host."""

    def __init__(self, known: Iterable[Incident] = (), lost: Iterable[tuple[RunId, HostId]] = ()) -> None:
        self.by_id: dict[str, Incident] = {each.incident: each for each in known}
        self.of_host: dict[HostId, Incident] = {each.host: each for each in self.by_id.values()}
        self.lost_on: dict[RunId, HostId] = dict(lost)
        """Runs that ended with a host and whose books are not closed yet."""

    def host_changed(self, fact: HostStateChanged, *, gpus: int, comment: str) -> None:
        """A host went to another state. `comment`: what is said of it."""
        if not fact.incident:
            return
        incident = self.by_id.get(fact.incident)
        if incident is None:
            incident = self._begin(fact, gpus=gpus)
            incident.comment = comment
        incident.state = fact.state
        if fact.state is HostState.DRAINING and not fact.accepts:
            incident.out_from = min(incident.out_from, fact.at)
        if fact.state in (HostState.DRAINED, HostState.LOST) and incident.drained_at is None:
            incident.drained_at = fact.at
        if fact.state is HostState.HEALTHY:
            incident.ended_at = fact.at

    def _begin(self, fact: HostStateChanged, *, gpus: int) -> Incident:
        numbers = fact.why.numbers
        before = numbers.get(_LASTED) or numbers.get(_SILENT) or 0
        incident = Incident(
            incident=fact.incident,
            host=fact.host,
            gpus=gpus,
            reason=fact.why.reason,
            automatic=fact.why.reason is not Reason.HOST_DRAIN_REQUESTED,
            seen_at=fact.at - (int(before) if isinstance(before, int | float) else 0),
            began_at=fact.at,
            out_from=fact.deadline if fact.accepts and fact.deadline is not None else fact.at,
            state=fact.state,
        )
        self.by_id[fact.incident] = self.of_host[fact.host] = incident
        if len(self.by_id) > KEPT:
            oldest = self.by_id.pop(next(iter(self.by_id)))
            if self.of_host.get(oldest.host) is oldest:
                del self.of_host[oldest.host]
        return incident

    def back_asked(self, fact: ResumeRequested | RepairCompleted) -> None:
        """A person answers for the host. The repair plug's word is none of a person."""
        incident = self.of_host.get(fact.host)
        by_plug = isinstance(fact, RepairCompleted) and bool(fact.incident)
        if incident is None or incident.ended_at is not None:
            return
        incident.comment = fact.comment or incident.comment
        if not by_plug:
            incident.by = fact.by

    def run_ended(self, fact: RunEnded) -> None:
        """A run was lost with a host."""
        if fact.cause_of_end is EndCause.HOST_LOST and fact.by is not None:
            self.lost_on[fact.run] = HostId(fact.by)
            if len(self.lost_on) > LOSSES_KEPT:
                del self.lost_on[next(iter(self.lost_on))]

    def run_charged(self, fact: RunCharged) -> None:
        """What the loss cost is given back to its budget (P2)."""
        host = self.lost_on.pop(fact.run, None)
        incident = None if host is None else self.of_host.get(host)
        if incident is not None and incident.gpus:
            incident.refunded_gpu_ms += fact.refunded_gpu_ms
