"""Every knob of the policy and its default, in one place. Roles and the simulator are given the same value.

A knob's name ends in its unit here (`lookback_ms`); where people set it (`--set lookback=7d`, a configuration file),
durations are written without it: see `tenure.runtime.options`.
"""

from dataclasses import dataclass

from tenure.domain.units import DAY, HOUR, MINUTE, SECOND, Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The knobs of P1-P11. Lengths of time in milliseconds."""

    lookback_ms: Millis = 7 * DAY
    """Length of the sliding window over which fair share is delivered (P1-P3)."""
    min_runtime_cap_ms: Millis = 8 * HOUR
    """The longest protection a job may ask for; also the most that a host fault refunds (P2)."""
    ratio_margin: float = 0.02
    """How much lower the asker's ratio must be before it may preempt (P5)."""
    setback_per_gpu_hour_ms: Millis = MINUTE
    """Inside a leaf, a job stands behind jobs submitted up to this much later per GPU-hour it commits (P4) ..."""
    setback_max_ms: Millis = 12 * HOUR
    """... but never behind ones submitted later than this: every wait inside a leaf is bounded."""
    grace_max_ms: Millis = 10 * MINUTE
    """The longest a job may ask for between SIGTERM and SIGKILL (P10)."""
    victim_ratio_step: float = 0.02
    """Among runs that P5 gives away, budgets count as equally over-served when their ratios lie in one step (P6)."""
    resume_cost_ms: Millis = 2 * MINUTE
    """What stopping a resumable run is taken to cost, at most, when victims are chosen: it saves when told to (P6)."""
    escrow_slack_ms: Millis = 10 * SECOND
    """Freed GPUs are held for the asker until the victims' longest grace and this much more is over (P7)."""
    reservation_depth: int = 32
    """So many blocked gangs, the first in the order, have a reservation with a latest start (P8)."""
    promise_horizon_ms: Millis = 12 * HOUR
    """A gang is promised runs that P5 will give it within this time if nobody starts meanwhile (P8)."""
    heartbeat_ms: Millis = 5 * SECOND
    """How often an agent reports what its hosts hold."""
    suspect_after_ms: Millis = 20 * SECOND
    """A host silent for so long takes no new runs and is charged no further."""
    lost_after_ms: Millis = 5 * MINUTE
    """A host silent for so long is lost: its runs end as `host_lost`."""
    signal_confirm_ms: Millis = MINUTE
    """A signal that asks for a drain must have lasted so long, or two sources agree (P9). A fatal one acts at once."""
    host_clear_ms: Millis = 30 * MINUTE
    """A host drained for signals that are over for so long takes runs again; each incident of the day doubles it."""
    automation_share: float = 0.1
    """Automation holds at most this part of a cluster, of a block and of a GPU type at once; one host it may always."""
    incidents_max: int = 3
    """So many incidents of a host within a day, and it waits for a person instead of another repair."""
    job_failures: int = 3
    """So many runs that fail first on one host, of several jobs that fail nowhere else, are evidence against it."""
    repair_limit_ms: Millis = 2 * HOUR
    """A repair or an acceptance test that has not answered by then has failed."""
    submissions_per_user: int = 10_000
    """So many submissions of one user within ten seconds, a batch counting as one; more are told to come later."""
    queued_per_user: int = 100_000
    """So many jobs of one user may wait at a time."""
    submissions_at_once: int = 2_000
    """So many submissions of all users may be on their way into the log; more are told to come in a moment."""
