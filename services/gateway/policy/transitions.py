"""How a job moves between its states: the whole machine as a table.

submitted -> queued -> starting -> running -> stopping -> over
     |         ^ |         |          |          | |
  rejected     | +--------------------------------+    (stopping: its run ends or has ended)
               +---------------------------------+     (requeued)
"""

from tenure.domain.ids import JobId
from tenure.domain.reasons import JobState
from tenure.events.budgets import JobAdmitted, JobRejected
from tenure.events.catalogue import Kind
from tenure.events.placing import (
    JobRequeued,
    PlacementDeferred,
    RunAssigned,
    RunEnded,
    RunPreemptionRequested,
    RunStarted,
    RunStopRequested,
)

_S = JobState
TRANSITIONS: dict[tuple[JobState, Kind], JobState] = {
    (_S.SUBMITTED, JobAdmitted): _S.QUEUED,
    (_S.SUBMITTED, JobRejected): _S.REJECTED,
    (_S.QUEUED, PlacementDeferred): _S.QUEUED,
    (_S.QUEUED, RunAssigned): _S.STARTING,
    (_S.STARTING, RunStarted): _S.RUNNING,
    (_S.STARTING, RunPreemptionRequested): _S.STOPPING,
    (_S.STARTING, RunStopRequested): _S.STOPPING,
    (_S.STARTING, RunEnded): _S.STOPPING,
    (_S.RUNNING, RunPreemptionRequested): _S.STOPPING,
    (_S.RUNNING, RunStopRequested): _S.STOPPING,
    (_S.RUNNING, RunEnded): _S.STOPPING,
    (_S.STOPPING, RunStarted): _S.STOPPING,  # asked to stop before all replicas had reported their start
    (_S.STOPPING, RunPreemptionRequested): _S.STOPPING,
    (_S.STOPPING, RunStopRequested): _S.STOPPING,  # cancelled while it was being preempted
    (_S.STOPPING, RunEnded): _S.STOPPING,
    (_S.STOPPING, JobRequeued): _S.QUEUED,
}
"""`JobFinished` names its state itself; it may follow `FINISH_FROM`."""

FINISH_FROM = (_S.QUEUED, _S.STOPPING)


class IllegalTransitionError(Exception):
    """The log holds a fact that cannot follow what the job went through before: a role is broken."""


def next_state(state: JobState, kind: Kind, *, job: JobId) -> JobState:
    """The state after a fact of this kind. Raises `IllegalTransitionError`."""
    after = TRANSITIONS.get((state, kind))
    if after is None:
        raise IllegalTransitionError(f"{job} is {state}: {kind.__name__} cannot follow")
    return after


def finished_state(state: JobState, final: JobState, *, job: JobId) -> JobState:
    """The state after `JobFinished`, which says how: over once, and for good (I4). Raises `IllegalTransitionError`."""
    if state not in FINISH_FROM or not final.final:
        raise IllegalTransitionError(f"{job} is {state}: it cannot finish as {final}")
    return final
