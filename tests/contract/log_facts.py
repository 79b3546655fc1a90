"""Facts for tests of the log: one maker a lane, numbered so that order and loss are easy to see."""

from tenure.domain.ids import FactId, HostId, JobId, RunId, UserName
from tenure.domain.reasons import EndCause, Reason, Why
from tenure.events.fact import Fact
from tenure.events.hosts import DrainCompleted
from tenure.events.intake import JobCancelRequested
from tenure.events.placing import RunStopRequested
from tenure.events.reports import CheckpointReported, Heartbeat

CLUSTER = "h100"


def intake(number: int, *, by: str = "ana", id: str | None = None) -> Fact:
    """A fact of the intake lane."""
    fact_id = FactId(id if id is not None else f"intake-{by}-{number}")
    return JobCancelRequested(at=number, id=fact_id, cluster=CLUSTER, job=JobId(f"j{number}"), by=UserName(by))


def runs(number: int, *, by: str = "placer") -> Fact:
    """A fact of the lane `place.runs`."""
    return RunStopRequested(
        at=number,
        id=FactId(f"runs-{by}-{number}"),
        cluster=CLUSTER,
        run=RunId(f"j{number}.1"),
        job=JobId(f"j{number}"),
        by=by,
        cause_of_end=EndCause.CANCELLED,
        why=Why(rule="P5", reason=Reason.STOP_CANCELLED),
    )


def hosts(number: int, *, by: str = "health") -> Fact:
    """A fact of the lane `place.hosts`."""
    return DrainCompleted(
        at=number, id=FactId(f"hosts-{by}-{number}"), cluster=CLUSTER, host=HostId(f"h{number}"), started_at=0
    )


def report(number: int, *, by: str = "agent") -> Fact:
    """A fact of the report lane."""
    return CheckpointReported(
        at=number,
        id=FactId(f"report-{by}-{number}"),
        cluster=CLUSTER,
        run=RunId(f"j{number}.1"),
        job=JobId(f"j{number}"),
        host=HostId("h0"),
    )


def heartbeat(number: int, *, by: str = "agent") -> Fact:
    """A heartbeat: the only kind that the log forgets."""
    return Heartbeat(at=number, id=FactId(f"beat-{by}-{number}"), cluster=CLUSTER, agent=by, hosts=())
