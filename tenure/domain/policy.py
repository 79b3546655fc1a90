"""Every knob of the policy, its default and its range, in one place. Roles and the simulator are given the same value.

A knob's name ends in its unit here (`lookback_ms`); where people set it (`--set lookback=7d`, a configuration file),
durations are written without it: see `tenure.runtime.settings`. What a running system decides by is a fact of its log,
`PolicyChanged`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, get_type_hints

from tenure.domain.refusal import Refusal
from tenure.domain.units import DAY, HOUR, MINUTE, SECOND, Millis, format_duration

UNIT = "_ms"
"""What the names of lengths of time end in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """What is known of a knob beside its default: in words what it does, and its range, both ends included.

    `fixed`: why it cannot change while the system runs; empty for a knob that can.
    """

    what: str
    least: float
    most: float
    fixed: str = ""


_FAR, _MANY = 400 * DAY, 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The knobs of P1-P11. Lengths of time in milliseconds."""

    lookback_ms: Annotated[
        Millis,
        Knob(what="length of the sliding window over which fair share is delivered (P1-P3)", least=MINUTE, most=_FAR),
    ] = 7 * DAY
    min_runtime_cap_ms: Annotated[
        Millis,
        Knob(
            what="the longest protection a job may ask for; also the most that a host fault refunds (P2)",
            least=SECOND,
            most=_FAR,
        ),
    ] = 8 * HOUR
    ratio_margin: Annotated[
        float, Knob(what="how much lower the asker's ratio must be before it may preempt (P5)", least=0.0, most=100.0)
    ] = 0.02
    setback_per_gpu_hour_ms: Annotated[
        Millis,
        Knob(
            what="inside a leaf, a job stands behind jobs submitted up to this much later for each GPU-hour it "
            "commits (P4)",
            least=0,
            most=_FAR,
        ),
    ] = MINUTE
    setback_max_ms: Annotated[
        Millis,
        Knob(
            what="but never behind ones submitted later than this: every wait inside a leaf is bounded (P4)",
            least=0,
            most=_FAR,
        ),
    ] = 12 * HOUR
    grace_max_ms: Annotated[
        Millis, Knob(what="the longest a job may ask for between SIGTERM and SIGKILL (P10)", least=0, most=DAY)
    ] = 10 * MINUTE
    victim_ratio_step: Annotated[
        float,
        Knob(
            what="among runs that P5 gives away, budgets count as equally over-served when their ratios lie in "
            "one step (P6)",
            least=0.0,
            most=100.0,
        ),
    ] = 0.02
    resume_cost_ms: Annotated[
        Millis,
        Knob(
            what="what stopping a resumable run is taken to cost, at most, when victims are chosen: it saves "
            "when told to (P6)",
            least=0,
            most=DAY,
        ),
    ] = 2 * MINUTE
    escrow_slack_ms: Annotated[
        Millis,
        Knob(
            what="freed GPUs are held for the asker until the victims' longest grace and this much more is over (P7)",
            least=0,
            most=DAY,
        ),
    ] = 10 * SECOND
    reservation_depth: Annotated[
        int,
        Knob(
            what="so many blocked gangs, the first in the order, have a reservation with a latest start (P8)",
            least=0,
            most=10_000,
        ),
    ] = 32
    promise_horizon_ms: Annotated[
        Millis,
        Knob(
            what="a gang is promised runs that P5 will give it within this time if nobody starts meanwhile (P8)",
            least=0,
            most=30 * DAY,
        ),
    ] = 12 * HOUR
    heartbeat_ms: Annotated[
        Millis,
        Knob(
            what="how often an agent reports what its hosts hold",
            least=50,
            most=DAY,
            fixed="agents read it when they start: change it in their file and start them again",
        ),
    ] = 5 * SECOND
    suspect_after_ms: Annotated[
        Millis,
        Knob(
            what="a host silent for so long takes no new runs and is charged no further",
            least=100,
            most=_FAR,
        ),
    ] = 20 * SECOND
    lost_after_ms: Annotated[
        Millis, Knob(what="a host silent for so long is lost: its runs end as `host_lost`", least=100, most=_FAR)
    ] = 5 * MINUTE
    block_lost_after_ms: Annotated[
        Millis,
        Knob(
            what="the same for a whole block of three or more hosts that are all silent: its switch, not so many hosts",
            least=0,
            most=_FAR,
        ),
    ] = 30 * MINUTE
    signal_confirm_ms: Annotated[
        Millis,
        Knob(
            what="a signal that asks for a drain must have lasted so long, or two sources agree; a fatal one "
            "acts at once (P9)",
            least=0,
            most=DAY,
        ),
    ] = MINUTE
    host_clear_ms: Annotated[
        Millis,
        Knob(
            what="a host drained for signals that are over for so long takes runs again; each incident of the "
            "day doubles it",
            least=0,
            most=30 * DAY,
        ),
    ] = 30 * MINUTE
    automation_share: Annotated[
        float,
        Knob(
            what="automation holds at most this part of a cluster, of a block and of a GPU type at once; one "
            "host it may always; 0 turns it off",
            least=0.0,
            most=1.0,
        ),
    ] = 0.1
    incidents_max: Annotated[
        int,
        Knob(
            what="so many incidents of a host within a day, and it waits for a person instead of another repair",
            least=0,
            most=_MANY,
        ),
    ] = 3
    job_failures: Annotated[
        int,
        Knob(
            what="so many runs that fail first on one host, of several jobs that fail nowhere else, are evidence "
            "against it",
            least=1,
            most=_MANY,
        ),
    ] = 3
    repair_limit_ms: Annotated[
        Millis,
        Knob(
            what="a repair or an acceptance test that has not answered by then has failed", least=SECOND, most=30 * DAY
        ),
    ] = 2 * HOUR
    submissions_per_user: Annotated[
        int,
        Knob(
            what="so many submissions of one user within ten seconds, a batch counting as one; more are told "
            "to come later; 0: no limit",
            least=0,
            most=_MANY,
        ),
    ] = 10_000
    queued_per_user: Annotated[
        int, Knob(what="so many jobs of one user may wait at a time; 0: no limit", least=0, most=_MANY)
    ] = 100_000
    submissions_at_once: Annotated[
        int,
        Knob(
            what="so many submissions of all users may be on their way into the log; more are told to come "
            "in a moment; 0: no limit",
            least=0,
            most=_MANY,
        ),
    ] = 2_000


KNOBS: Mapping[str, Knob] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(Policy, include_extras=True).items()
}
"""Every knob by the name of its field."""


def spoken(name: str) -> str:
    """The name of a knob as people write it: without its unit."""
    return name.removesuffix(UNIT)


def in_words(name: str, value: float) -> str:
    """A value of a knob as people write it."""
    return format_duration(round(value)) if name.endswith(UNIT) else f"{value:.10g}"


def range_in_words(name: str) -> str:
    """`1m to 400d`, `0 to 100`."""
    found = KNOBS[name]
    return f"{in_words(name, found.least)} to {in_words(name, found.most)}"


def check_knob(name: str, value: float) -> None:
    """Raise `Refusal` unless the value lies in the knob's range."""
    found = KNOBS[name]
    if not found.least <= value <= found.most:
        fix = f"give {range_in_words(name)}"
        raise Refusal(field=spoken(name), problem=f"{in_words(name, value)} is out of range", fix=fix)


def check_policy(policy: Policy) -> None:
    """Raise `Refusal` for the first knob that is out of its range."""
    for name in KNOBS:
        check_knob(name, getattr(policy, name))


def changes(before: Policy, after: Policy) -> tuple[str, ...]:
    """The names of the fields in which two policies differ, in their order."""
    return tuple(name for name in KNOBS if getattr(before, name) != getattr(after, name))
