"""Every knob of the policy, its default and its range, in one place. Roles and the simulator are given the same value.

A knob's name ends in its unit here (`lookback_ms`); where people set it (`--set lookback=7d`, a configuration file),
durations are written without it: see `tenure.runtime.settings`. What a running system decides by is a fact of its log,
`PolicyChanged`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, get_type_hints

from tenure.domain.host import CPU
from tenure.domain.names import check_word
from tenure.domain.nearest import did_you_mean, listed, unknown_key
from tenure.domain.rates import DEFAULT_MILLI, MILLI, RATE_LEAST, RATE_MOST, milli_of
from tenure.domain.refusal import Refusal
from tenure.domain.units import DAY, HOUR, MINUTE, SECOND, Millis, format_duration

_SHARED = " (as everywhere)"
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
            what="so many blocked gangs of a cluster and GPU type, the first in the order, have a latest start (P8)",
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
    rates_milli: Mapping[str, int] = field(default_factory=dict)
    """By GPU type what an hour costs, in thousandths of an hour of the unit of account. Not named: see `rate_milli`."""
    clusters: Mapping[str, Mapping[str, int | float]] = field(default_factory=dict)
    """By cluster of hosts what counts there instead: knobs of `OF_CLUSTER` by the names of their fields."""

    def rate_milli(self, gpu_type: str) -> int:
        """What a GPU of this type weighs in the accounts, in thousandths."""
        return milli_of(self.rates_milli, gpu_type)

    def of_cluster(self, cluster: str) -> "Policy":
        """The policy as it counts in a cluster of hosts."""
        own = self.clusters.get(cluster)
        return replace(self, **own) if own else self  # type: ignore[arg-type]

    @property
    def longest_grace_ms(self) -> Millis:
        """The most that a job may ask for in any cluster."""
        return max([self.grace_max_ms, *(self.of_cluster(cluster).grace_max_ms for cluster in self.clusters)])


RATES, CLUSTERS = "rates", "clusters"
"""The two mappings as people write them. Their entries have names, too: `rates.B200`, `clusters.dev.grace_max_ms`."""
OF_CLUSTER = (
    *("min_runtime_cap_ms", "grace_max_ms", "automation_share", "signal_confirm_ms", "host_clear_ms"),
    *("job_failures", "incidents_max", "repair_limit_ms"),
)
"""The knobs that a cluster may have its own values of: its contracts, and what is done about its hosts."""

KNOBS: Mapping[str, Knob] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(Policy, include_extras=True).items()
    if hasattr(hint, "__metadata__")
}
"""Every knob that has one value, by the name of its field."""
MAPPINGS: Mapping[str, str] = {
    RATES: "by GPU type what an hour of it costs in the unit of account (P1-P3); a type that is not named costs 1, a "
    f"CPU {DEFAULT_MILLI[CPU] / MILLI:.10g}. A change counts from the next full hour on",
    CLUSTERS: "by cluster of hosts what counts there instead, of "
    + ", ".join(name.removesuffix(UNIT) for name in OF_CLUSTER),
}
"""What the two mappings are, by the name people write."""


def spoken(name: str) -> str:
    """The name of a knob as people write it: without its unit."""
    return name.removesuffix(UNIT)


def in_words(name: str, value: float) -> str:
    """A value of a knob as people write it."""
    if name.startswith(f"{RATES}."):
        return f"{value / MILLI:.10g}"
    return format_duration(round(value)) if name.endswith(UNIT) else f"{value:.10g}"


def mapping_in_words(name: str, policy: Policy) -> str:
    """A mapping as people write it: `{B200: 2.5, CPU: 0.05}`."""
    if name == RATES:
        return _braces({key: in_words(f"{RATES}.", milli) for key, milli in policy.rates_milli.items()})
    own = {
        cluster: _braces({spoken(knob): in_words(knob, value) for knob, value in values.items()})
        for cluster, values in policy.clusters.items()
    }
    return _braces(own)


def _braces(values: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{key}: {values[key]}" for key in sorted(values)) + "}"


def value_of(policy: Policy, name: str) -> float:
    """The value of a knob by the name of its field, or of one entry of a mapping: `rates.B200`."""
    section, _, key = name.partition(".")
    if section == RATES:
        return policy.rate_milli(key)
    if section == CLUSTERS:
        cluster, _, name = key.rpartition(".")
        policy = policy.of_cluster(cluster)
    value: float = getattr(policy, name)
    return value


def has_own(policy: Policy, name: str) -> bool:
    """Whether a policy says a value there itself; only an entry of a cluster may be one that it leaves to all."""
    section, _, key = name.partition(".")
    cluster, _, knob = key.rpartition(".")
    return section != CLUSTERS or knob in policy.clusters.get(cluster, {})


def value_in_words(policy: Policy, name: str) -> str:
    """The value of a knob as people write it; `10m (as everywhere)` in a cluster that has none of its own."""
    return in_words(name, value_of(policy, name)) + ("" if has_own(policy, name) else _SHARED)


def change_in_words(policy: Policy, name: str, *, before: float, after: float) -> tuple[str, str]:
    """What a knob was, and what it is since `policy` is the policy."""
    was, now, own = in_words(name, before), in_words(name, after), has_own(policy, name)
    return was + _SHARED * (own and before == after), now + _SHARED * (not own)


def is_fixed(name: str) -> bool:
    """Whether it cannot change while the system runs."""
    return name in KNOBS and bool(KNOBS[name].fixed)


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
    for gpu_type, milli in policy.rates_milli.items():
        check_rate(gpu_type, milli)
    for cluster, values in policy.clusters.items():
        check_word(cluster, field=CLUSTERS)
        for name, value in values.items():
            if name not in OF_CLUSTER:
                raise unknown_key(spoken(name), known=map(spoken, OF_CLUSTER), where=f"{CLUSTERS}.{cluster}")
            if isinstance(KNOBS[name].least, int) and not isinstance(value, int):
                field_ = f"{CLUSTERS}.{cluster}.{spoken(name)}"
                raise Refusal(field=field_, problem=f"{value} is not whole", fix=f"give {range_in_words(name)}")
            check_knob(name, value)


def check_rate(gpu_type: str, milli: int) -> None:
    """Raise `Refusal` unless a type can have this exchange rate, in thousandths."""
    check_word(gpu_type, field=RATES)
    name = f"{RATES}.{gpu_type}"
    if not RATE_LEAST <= milli <= RATE_MOST:
        fix = f"give {in_words(name, RATE_LEAST)} to {in_words(name, RATE_MOST)}"
        raise Refusal(field=name, problem=f"{in_words(name, milli)} is out of range", fix=fix)


def check_clusters(policy: Policy, *, known: Iterable[str]) -> None:
    """Raise `Refusal` for own values of a cluster of hosts that there is not."""
    for refusal in _unknown(CLUSTERS, policy.clusters, known, problem="there is no such cluster"):
        raise refusal


def clusters_unknown(policy: Policy, *, known: Iterable[str]) -> Iterator[Refusal]:
    """What is strange about own values of clusters without hosts: they may be to come, or a slip of the pen."""
    return _unknown(CLUSTERS, policy.clusters, known, problem="no host is in this cluster")


def types_unknown(policy: Policy, *, known: Iterable[str]) -> Iterator[Refusal]:
    """What is strange about rates of types that no host has: they may be to come, or a slip of the pen."""
    return _unknown(RATES, policy.rates_milli, known, problem="no host has GPUs of this type")


def _unknown(section: str, named: Iterable[str], known: Iterable[str], *, problem: str) -> Iterator[Refusal]:
    names = sorted(known)
    for name in sorted(set(named).difference(names)):
        fix = f"{did_you_mean(name, names)}known: {listed(names)}"
        yield Refusal(field=f"{section}.{name}", problem=problem, fix=fix)


def changes(before: Policy, after: Policy) -> tuple[str, ...]:
    """The knobs in which two policies differ, by the names of their fields; entries of mappings each by itself.

    An own value of a cluster that equals the common one differs from none: it stays when the common one changes.
    """
    rates = [f"{RATES}.{gpu_type}" for gpu_type in sorted({*before.rates_milli, *after.rates_milli})]
    entries = {(cluster, name) for one in (before, after) for cluster in one.clusters for name in one.clusters[cluster]}
    own = [f"{CLUSTERS}.{cluster}.{name}" for cluster, name in sorted(entries)]
    names = (*KNOBS, *rates, *own)
    said = [[(value_of(policy, name), has_own(policy, name)) for policy in (before, after)] for name in names]
    return tuple(name for name, (was, now) in zip(names, said, strict=True) if was != now)
