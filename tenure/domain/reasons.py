"""Why something was decided: an enum member, the rule it follows (P1-P11) and the numbers that were compared.

Every member has a scenario in `tests/scenario` that shows it; an architecture test checks that.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Number = int | float | str | bool | None


class Reason(StrEnum):
    """Everything a decision can cite. The prefix says what kind of decision it is."""

    # a run starts
    START_IN_ORDER = "start_in_order"
    START_ESCROW_COMPLETE = "start_escrow_complete"
    START_UNALLOCATED_FILL = "start_unallocated_fill"
    START_AT_RISK = "start_at_risk"
    # a run may be disrupted (P5) ...
    DISRUPT_UNALLOCATED = "disrupt_unallocated"
    DISRUPT_HOST_DRAINS = "disrupt_host_drains"
    DISRUPT_HOST_FATAL = "disrupt_host_fatal"
    DISRUPT_LOWER_RATIO = "disrupt_lower_ratio"
    DISRUPT_HIGHER_PRIORITY = "disrupt_higher_priority"
    DISRUPT_AT_RISK = "disrupt_at_risk"
    DISRUPT_PROMISED = "disrupt_promised"
    # ... or not
    KEEP_NOT_STARTED = "keep_not_started"
    KEEP_PROTECTED = "keep_protected"
    KEEP_ASKER_UNALLOCATED = "keep_asker_unallocated"
    KEEP_RATIO_NOT_LOWER = "keep_ratio_not_lower"
    KEEP_PRIORITY_NOT_HIGHER = "keep_priority_not_higher"
    # a run is stopped for a reason other than preemption
    STOP_CANCELLED = "stop_cancelled"
    STOP_GANG_BROKEN = "stop_gang_broken"
    STOP_HOST_LOST = "stop_host_lost"
    # a run ended by itself
    END_COMPLETED = "end_completed"
    END_FAILED = "end_failed"
    # a job waits
    DEFER_NO_ROOM = "defer_no_room"
    DEFER_FRAGMENTED = "defer_fragmented"
    DEFER_NO_BLOCK = "defer_no_block"
    DEFER_RESERVED = "defer_reserved"
    DEFER_VICTIMS_STOPPING = "defer_victims_stopping"
    DEFER_ESCROW_EXPIRED = "defer_escrow_expired"
    DEFER_NO_SUCH_HOSTS = "defer_no_such_hosts"
    DEFER_NO_TIMETABLE = "defer_no_timetable"
    # a blocked gang has a timetable, or has none any more
    RESERVE_EARLIEST = "reserve_earliest"
    RESERVE_HOST_GONE = "reserve_host_gone"
    # a job goes back to the queue, or does not enter it
    REQUEUE_PREEMPTED = "requeue_preempted"
    REQUEUE_HOST_LOST = "requeue_host_lost"
    REQUEUE_LAUNCH_FAILED = "requeue_launch_failed"
    REJECT_ADMISSION = "reject_admission"
    # a charge
    CHARGE_RUN = "charge_run"
    CHARGE_REFUNDED = "charge_refunded"
    # a host changes state
    HOST_REGISTERED = "host_registered"
    HOST_SILENT = "host_silent"
    HOST_SILENT_TOO_LONG = "host_silent_too_long"
    HOST_HEARD_AGAIN = "host_heard_again"
    HOST_OVERDUE = "host_overdue"
    HOST_RELEASED = "host_released"
    HOST_DRAIN_REQUESTED = "host_drain_requested"
    HOST_EMPTY = "host_empty"
    HOST_RESUMED = "host_resumed"
    HOST_REPAIRED = "host_repaired"
    # ... by evidence
    HOST_SIGNAL_FATAL = "host_signal_fatal"
    HOST_SIGNALS = "host_signals"
    HOST_GPUS_MISSING = "host_gpus_missing"
    HOST_JOBS_FAIL = "host_jobs_fail"
    HOST_LAUNCHES_FAIL = "host_launches_fail"
    HOST_NAMED_TWICE = "host_named_twice"
    HOST_HELD_BACK = "host_held_back"
    HOST_DOUBTED = "host_doubted"
    HOST_CLEARED = "host_cleared"
    # ... on its way back
    HOST_REPAIR_BEGUN = "host_repair_begun"
    HOST_REPAIR_FAILED = "host_repair_failed"
    HOST_TESTED = "host_tested"
    HOST_BREAKS_AGAIN = "host_breaks_again"


SUSPECT_BUT_HEARD = frozenset({Reason.HOST_OVERDUE, Reason.HOST_DOUBTED})
"""Why a host is suspect that is heard: its runs are charged as everybody's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """The reason of a decision, with the rule it follows and the numbers compared (units in their names)."""

    rule: str
    reason: Reason
    numbers: Mapping[str, Number] = field(default_factory=dict)


class EndCause(StrEnum):
    """How a run ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    PREEMPTED = "preempted"
    DRAINED = "drained"
    HOST_LOST = "host_lost"
    CANCELLED = "cancelled"


class JobState(StrEnum):
    """Where a job is. The last five are final: a job enters exactly one of them, once (I4)."""

    SUBMITTED = "submitted"
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    COMPLETED = "completed"
    FAILED = "failed"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"
    REJECTED = "rejected"

    @property
    def final(self) -> bool:
        """Nothing happens to the job any more."""
        return self in FINAL_STATES


FINAL_STATES = frozenset(
    {JobState.COMPLETED, JobState.FAILED, JobState.PREEMPTED, JobState.CANCELLED, JobState.REJECTED}
)
