"""Every kind of fact. A kind's name is its class name: the tag in the encoding and the last word of its subject."""

from tenure.events.budgets import BudgetTreeChanged, JobAdmitted, JobRejected, RunCharged
from tenure.events.fact import Fact
from tenure.events.hosts import CapacityChanged, DrainCompleted, HostStateChanged, RepairRequested
from tenure.events.intake import DrainRequested, JobCancelRequested, JobSubmitted, RepairCompleted, ResumeRequested
from tenure.events.leading import BudgetLeadTaken, HealthLeadTaken, PlacerLeadTaken, RankerLeadTaken
from tenure.events.placing import (
    JobFinished,
    JobRequeued,
    PlacementDeferred,
    ReservationDropped,
    ReservationMade,
    RunAssigned,
    RunEnded,
    RunPreemptionRequested,
    RunStarted,
    RunStopRequested,
)
from tenure.events.policy import PolicyChanged
from tenure.events.ranking import RankingPublished
from tenure.events.reports import (
    CheckpointReported,
    Heartbeat,
    HostRegistered,
    HostSignal,
    ReplicasExited,
    ReplicasStarted,
)

AnyFact = (
    BudgetTreeChanged
    | JobAdmitted
    | JobRejected
    | RunCharged
    | PolicyChanged
    | DrainRequested
    | JobCancelRequested
    | JobSubmitted
    | RepairCompleted
    | ResumeRequested
    | CapacityChanged
    | DrainCompleted
    | HostStateChanged
    | RepairRequested
    | JobFinished
    | JobRequeued
    | PlacementDeferred
    | ReservationDropped
    | ReservationMade
    | RunAssigned
    | RunEnded
    | RunPreemptionRequested
    | RunStarted
    | RunStopRequested
    | RankingPublished
    | CheckpointReported
    | Heartbeat
    | HostRegistered
    | HostSignal
    | ReplicasExited
    | ReplicasStarted
    | BudgetLeadTaken
    | RankerLeadTaken
    | PlacerLeadTaken
    | HealthLeadTaken
)

Kind = type[Fact]
KINDS: dict[str, Kind] = {kind.__name__: kind for kind in AnyFact.__args__}
"""Each kind by its name."""
