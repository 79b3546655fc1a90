"""The fields of `report.json`, as tools outside this repository read them: never renamed, only added to.

Everything is over the test window, [start, end). Ratios and fractions are 1 where there was nothing to be a part of;
a percentile of no waits is null.
"""

import msgspec


class BudgetDelivered(msgspec.Struct, frozen=True, kw_only=True):
    """One leaf. `ratio` is delivered / owed: above 1 if it used what others left, 1 if it was owed nothing."""

    path: str
    owed_gpu_hours: float
    delivered_gpu_hours: float
    ratio: float


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """`ratio`: sum over leaves of min(delivered, owed) / sum of owed. `worst`: the lowest leaf's, at most 1.

    `at_least_95`: how many leaves have a ratio of 0.95 or more.
    """

    ratio: float
    worst: float
    at_least_95: int
    budgets: list[BudgetDelivered]


class Rolling(msgspec.Struct, frozen=True, kw_only=True):
    """The same over every 7-day window inside the test window that ends a whole number of days after its start.

    `ratio` is over all of them together, `worst` the lowest leaf of the worst window. A shorter test window is itself
    the only one.
    """

    ratio: float
    worst: float


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """From submission to the first start, in seconds: how many, nearest-rank percentiles, the longest."""

    n: int
    p50_s: float | None = None
    p90_s: float | None = None
    p99_s: float | None = None
    max_s: float | None = None


class Preemptions(msgspec.Struct, frozen=True, kw_only=True):
    """Runs ended early for another job (of them unallocated and allocated ones) and by drains.

    `lost_gpu_hours`: the work they lost, which is what they had not saved.
    """

    total: int
    unallocated: int
    allocated: int
    drain: int
    lost_gpu_hours: float


class HostLosses(msgspec.Struct, frozen=True, kw_only=True):
    """Runs ended by the loss of a host, the work they lost since their last checkpoint, and what was refunded."""

    runs: int
    lost_gpu_hours: float
    refunded_gpu_hours: float


class GpuHours(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of every GPU went (I5): the six parts after `capacity` add up to it.

    `charged` is what is delivered; `unavailable` is neither offered by a host nor held by a run.
    """

    capacity: float
    charged: float
    refunded: float
    unallocated: float
    idle: float
    unavailable: float


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """The test window, in seconds since the start of the trace."""

    start_s: float
    end_s: float


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """What a budget or a user got: `jobs` were submitted in the window, and waited until their first start or its end.

    `delivered_gpu_hours` was charged and not refunded, `unallocated_gpu_hours` held free of charge. `preemptions`: runs
    ended early for another job or by a drain.
    """

    jobs: int = 0
    delivered_gpu_hours: float = 0.0
    unallocated_gpu_hours: float = 0.0
    wait_mean_s: float | None = None
    wait_p50_s: float | None = None
    wait_p90_s: float | None = None
    preemptions: int = 0


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """What changes for a budget or a user (`name`): from `before` to `after`, and what the log has (`really`).

    A change of the mean wait is null where either has none; less is better.
    """

    name: str
    really: Served
    before: Served
    after: Served
    delivered_change_gpu_hours: float
    unallocated_change_gpu_hours: float
    wait_mean_change_s: float | None


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """Who gains and who loses, the most first, over [since_ms, until_ms) of a log (epoch milliseconds).

    `changes`: what is other than it was. Where there is something, `before` is the same time replayed without
    (`compared_with` is `replay`); else it is what really happened (`log`). `jobs_estimated`: of how many jobs it is
    not known how long they would have worked; `contracts_cut`: how many asked for more than a lower cap, and get it.
    """

    since_ms: int
    until_ms: int
    changes: list[str]
    compared_with: str
    budgets: list[Gain]
    users: list[Gain]
    jobs_estimated: int
    contracts_cut: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """`report.json`. `what_if` is there where a log was replayed.

    `occupancy` is held / (held or offered) GPU-time, `availability` offered / all, `unallocated_fraction` the part of
    what was held that was free of charge, `goodput` 1 - (work lost to stops + restart time) / held. `jobs` were
    submitted and `runs` started in the test window. `violations` counts breaches of I1-I10 in the whole log, the first
    of which `violations_shown` describes.
    """

    policy: str
    simulated_days: float
    wall_seconds: float
    jobs: int
    runs: int
    occupancy: float
    availability: float
    unallocated_fraction: float
    goodput: float
    delivered: Delivered
    rolling_7d: Rolling
    waits: dict[str, Waits]
    preemptions: Preemptions
    violations: int
    violations_shown: list[str]
    host_losses: HostLosses
    restart_gpu_hours: float
    gpu_hours: GpuHours
    gpus: int
    window: Window
    lookback_s: float
    what_if: WhatIf | msgspec.UnsetType = msgspec.UNSET
