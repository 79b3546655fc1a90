"""What the figures are to reach, and what Slurm 22.05 reaches on this kind of machine.

A target names a figure by where it stands in the JSON of its module: `MODULE.group.figure`. Of a list of
measurements the worst one counts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """`figure` must be at most (or, with `least`, at least) `limit`. `slurm`: in words, empty if it has no such.

    One without a `what` is told only beside its figure.
    """

    figure: str
    what: str
    limit: float
    unit: str
    least: bool = False
    slurm: str = ""

    def worst(self, values: Sequence[float]) -> float:
        """The value that counts."""
        return min(values) if self.least else max(values)

    def met(self, value: float) -> bool:
        """Whether the measured value reaches the target."""
        return value >= self.limit if self.least else value <= self.limit

    @property
    def wanted(self) -> str:
        """The limit with its direction."""
        return f"{'>= ' if self.least else '<= ' if self.limit else ''}{self.limit:,g} {self.unit}".rstrip()


IDLE = "submit to the first instruction, idle 128 x 8 virtual hosts, 200 jobs one after another"
PENDING = "the same for a debug job of the most under-served budget, 10,000 jobs pending"
SUBMIT = "gRPC Submit by 16 callers, each durable when acknowledged"
KILLED = "`kill -9` of everything with 10,000 jobs pending, then a restart"

FULL = (
    "one full decision (order, starts, victims, a reservation, 1,000 reasons) at 1,024 hosts x 8 with 10,000 jobs "
    "pending in 200 shapes: p99"
)
EVERY_TENTH = "the one in ten minutes that looks at all timetables again"
LARGE = "12,500 hosts and 100,000 jobs pending"
ALIKE = "an event while 10,000 identical blocked jobs wait, against 256, the most of a kind that are listed"

MONTHS = {
    "delivered": (0.995, 0.995),
    "worst_budget": (0.98, 0.98),
    "any_7_days": (0.99, 0.985),
    "worst_budget_in_any_7_days": (0.75, 0.75),
    "occupancy": (0.995, 0.995),
    "goodput": (0.99, 0.985),
    "debug_wait_p90_s": (30, 180),
    "debug_wait_p99_s": (600, 3_600),
    "largest_wait_p90_s": (7_200, 21_600),
    "promises_broken": (0, 0),
    "seconds": (8, 8),
    "peak_memory_mib": (1_024, 1_024),
}
"""Of ai2-month and of contended-month under `fair`. The first six are to be reached, the others not to be exceeded."""


CRASHES = "100 random `kill -9` points on real parts under load"
LOAD = "200 submissions a second for 10 minutes"
SCALE = "1,000 agents, 10,000 queued, 50 submissions a second for 30 minutes"
OVERLOAD = "one user submits 2,000 a second"


def _of_faults_on_real_parts() -> Iterator[Target]:
    for figure, what in (
        ("acknowledged_lost", "acknowledged submissions lost"),
        ("doubled", "runs that were there twice"),
        ("contracts_broken", "contracts broken"),
    ):
        yield Target(f"crashes.points.{figure}", f"{CRASHES}: {what}", 0, "")
    yield Target("crashes.database_away.acknowledged_lost", "", 0, "")
    yield Target("load.steady.acknowledged", f"{LOAD}: accepted", 120_000, "jobs", least=True)
    yield Target("load.steady.memory_growth_percent.all", f"{LOAD}: memory after the first minute", 10, "% more")
    for group, load in (("steady", LOAD), ("overload", OVERLOAD)):
        yield Target(f"load.{group}.acknowledged_lost", f"{load}: acknowledged and lost", 0, "jobs")
        yield Target(f"load.{group}.held_jobs_untouched", f"{load}: untouched of 64 jobs", 64, "jobs", least=True)
        yield Target(f"load.{group}.processes_that_died", f"{load}: processes that died", 0, "")
    yield Target("load.overload.somebody_else_turned_away", f"{OVERLOAD}: others turned away", 0, "jobs")


def _of_scale() -> Iterator[Target]:
    """Twice what `path` is to reach."""
    for figure, what, limit, unit, least in (
        ("steady.submit_to_first_instruction_ms.p50", "submit to the first instruction: p50", 400, "ms", False),
        ("steady.submit_to_first_instruction_ms.p99", "submit to the first instruction: p99", 2_000, "ms", False),
        ("path.short_jobs_per_s", "1,000 jobs that end at once", 50, "jobs/s", True),
        ("path.batch_of_10000_s", "10,000 jobs in one call", 2, "s", False),
        ("path.accepted_per_s_with_queued", "gRPC Submit by 16 callers", 250, "jobs/s", True),
        ("burst.all_in_clickhouse_after_s", "100,000 facts in 10 s, then all in ClickHouse after", 1, "s", False),
        ("restart.first_answer_s", "`kill -9` of all roles and the log's server: first answer", 4.8, "s", False),
        ("restart.first_start_s", "`kill -9` of all: a new job's first instruction", 10, "s", False),
        ("left.acknowledged_lost", "acknowledged submissions lost", 0, "", False),
    ):
        yield Target(f"scale.{figure}", f"{SCALE}: {what}", limit, unit, least=least)


def _of_months() -> tuple[Target, ...]:
    return tuple(
        Target(f"months.{month} fair.{name}", "", limit, "", least=number < 6)
        for number, (name, limits) in enumerate(MONTHS.items())
        for month, limit in zip(("ai2-month", "contended-month"), limits, strict=True)
    )


FAULTS = {
    "as often": "ai2-month with GPU faults as on Titan in 2016 and outages as at LANL in 2004",
    "ten times": "the same, ten times as often",
    "warned": "ten times as often, double-bit errors told while the host works on",
    "grid5000": "ai2-month on hosts that are away as Grid'5000's were in 2005",
}


def _of_faults() -> Iterator[Target]:
    for name, what in FAULTS.items():
        if name != "grid5000":  # that month is about what is kept, with a quarter of the hosts away
            said = f"{what}: delivered of owed, by available capacity"
            yield Target(f"faults.{name}.delivered", said, 0.99, "", least=True)
        for broken in ("protected_ended_otherwise", "promises_broken"):
            yield Target(f"faults.{name}.{broken}", "", 0, "")


def _of_forecasts() -> Iterator[Target]:
    ours = "contended-month, expected starts of all queued jobs twice a day: median error, relative to the wait"
    yield Target("forecast.accuracy.forecast_error_of_wait", ours, 0.1, "of the wait")
    yield Target("forecast.accuracy.times_naive", f"{ours}; against the median wait of the budget's week", 0.5, "times")
    yield Target("forecast.speed.processor_seconds", "expected starts of 10,000 queued jobs on 128 hosts x 8", 5, "s")
    yield Target("forecast.speed.changes_ms_p99", "what would change the start of one of them: p99", 200, "ms")


TARGETS = (
    Target(
        "path.latency_idle.submit_to_first_instruction_ms.p50",
        f"{IDLE}: p50",
        100,
        "ms",
        slurm="1,200-1,800 (tuned 500)",
    ),
    Target(
        "path.latency_idle.submit_to_first_instruction_ms.p99", f"{IDLE}: p99", 400, "ms", slurm="2,900 (tuned 1,000)"
    ),
    Target(
        "path.latency_queued.submit_to_first_instruction_ms.p50",
        f"{PENDING}: p50",
        200,
        "ms",
        slurm="1,900 (tuned 800)",
    ),
    Target(
        "path.latency_queued.submit_to_first_instruction_ms.p99",
        f"{PENDING}: p99",
        1_000,
        "ms",
        slurm="3,100 (tuned 2,400)",
    ),
    Target(
        "path.latency_queued.idle_gpus_that_a_queued_job_fits",
        "GPUs idle while a queued job fits them, 10,000 jobs pending",
        0,
        "GPUs",
        slurm="32-192",
    ),
    Target(
        "path.true_jobs.jobs_per_s",
        "1,000 jobs `true` end to end, each a real process with all its facts in the log",
        100,
        "jobs/s",
        least=True,
        slurm="72-94",
    ),
    Target("path.submissions.accepted_per_s", SUBMIT, 500, "jobs/s", least=True, slurm="180-830"),
    Target(
        "path.submissions.accepted_per_s_with_queued",
        f"{SUBMIT}, 50,000 queued",
        500,
        "jobs/s",
        least=True,
        slurm="230",
    ),
    Target(
        "path.submissions.batch_of_10000_s",
        "10,000 jobs in one call, the slowest of five",
        1,
        "s",
        slurm="0.01 (an array)",
    ),
    Target("path.restart.first_answer_s", f"{KILLED}: first answer", 2.4, "s", slurm="2.4"),
    Target("path.restart.first_start_s", f"{KILLED}: a new job's first instruction", 5, "s"),
    Target(
        "path.restart.acknowledged_lost", f"{KILLED}: acknowledged jobs lost", 0, "jobs", slurm="299 of the last 300"
    ),
    *(
        Target(f"failover.{hit}.p99_s", f"{what}: from the signal until a job submitted then runs, p99", limit, "s")
        for hit, what, limit in (
            ("killed", "the leader of a role is killed", 10),
            ("suspended", "the leader of a role is suspended", 10),
            ("stopped", "the leader of a role is stopped in order", 10),
        )
    ),
    Target(
        "window.window_read_ms_p50",
        "the ranker's window, exact to the millisecond, over 100 million occupancy rows",
        100,
        "ms",
    ),
    *(
        Target(f"signals.kernel_log_lines_per_s.{log}", what, 200_000, "lines/s", least=True)
        for log, what in (
            ("storm_iso", "an agent reads its host's kernel log, a line of Xid 13 a millisecond"),
            ("recorded_storm", "the same, the recorded storm"),
            ("corrected_pcie_errors", "the same, a flood of corrected PCIe errors"),
        )
    ),
    *_of_months(),
    *_of_faults(),
    *_of_faults_on_real_parts(),
    *_of_scale(),
    *_of_forecasts(),
    Target(
        "heartbeats.live_percent_of_a_core.control_plane",
        "heartbeats of 1,000 hosts, one each 5 s, in all roles: read, decoded, folded, decided on, kept for ClickHouse",
        5,
        "% of a core",
    ),
    Target(
        "heartbeats.percent_of_a_core.all",
        "heartbeats of 1,000 hosts folded and decided on, without the log's client",
        5,
        "% of a core",
    ),
    *(
        Target(f"flapping.{how}.{figure}", f"30 % of 1,000 hosts silent for 45 s every 5 min, {how}: {words}", 0, "")
        for how in ("together", "apart")
        for figure, words in (
            ("drained", "drained"),
            ("lost", "lost"),
            ("told_to_stop", "protected runs told to stop"),
            ("ended_early", "runs that did not complete"),
        )
    ),
    Target("heartbeats.silence.seen_after_s", "a silent host among 1,000 is seen after its last heartbeat", 30, "s"),
    Target(
        "faults.warned.drains_in_time",
        "drains at contract boundaries that end within the longest protection on the host and its grace",
        0.9,
        "of all",
        least=True,
    ),
    *(
        Target(f"what_if.live.{figure}_off_percent", f"{what} of a live system against the replay of its log", 2, "%")
        for figure, what in (("mean_wait", "mean wait"), ("delivered", "delivered GPU-time"))
    ),
    Target("what_if.contended-month.what_if_s", "a what-if on 30 contended days of 1,024 GPUs, from the call", 15, "s"),
    *(
        Target(f"placer.{figure}", what, limit, unit, slurm=slurm)
        for figure, what, limit, unit, slurm in (
            ("hosts_1024_jobs_10000.full.p99_ms", FULL, 100, "ms", "2,300 (backfill of the first 500)"),
            ("hosts_1024_jobs_10000.full_with_timetables.p99_ms", f"{FULL}; {EVERY_TENTH}", 100, "ms", ""),
            ("hosts_1024_jobs_10000.arrival.p99_ms", "one job arrives then: both roles, p99", 10, "ms", ""),
            ("hosts_12500_jobs_100000.full.p99_ms", f"{LARGE}: full decision, p99", 2_000, "ms", ""),
            ("hosts_12500_jobs_100000.full_with_timetables.p99_ms", f"{LARGE}; {EVERY_TENTH}", 2_000, "ms", ""),
            ("hosts_12500_jobs_100000.arrival.p99_ms", f"{LARGE}: one job arrives, p99", 50, "ms", ""),
            ("hosts_12500_jobs_100000.peak_memory_mib", f"{LARGE}: memory of ranker and placer", 2_048, "MiB", ""),
            ("alike.ratio", ALIKE, 1.2, "times", ""),
            ("alike_gangs.ratio", f"{ALIKE}; gangs of two hosts", 1.2, "times", ""),
        )
    ),
    *(
        Target(
            f"why.{queue}.answer_ms.p99", f"`tenure why` (gRPC Explain) with 10,000 jobs queued, {what}: p99", 200, "ms"
        )
        for queue, what in (("shapes", "of twenty shapes"), ("alike", "all alike"))
    ),
    *(
        Target(f"gang.{figure}", f"a 64 x 8 gang over 64 {what}", limit, "ms", slurm=slurm)
        for figure, what, limit, slurm in (
            ("preemptible.all_ranks_ms", "preemptible runs: Submit to the last rank, median", 1_000, "1,600-1,900"),
            ("preemptible.slowest_ms", "preemptible runs: the slowest of five", 1_000, ""),
            ("protected.all_ranks_ms", "protected runs: last expiry to the last rank, median", 500, "400-12,000"),
            ("protected.slowest_ms", "protected runs: the slowest of five", 500, ""),
        )
    ),
)
