"""The queue: who waits, for how long and why, which latest starts are promised, and how runs end."""

from collections.abc import Sequence

from deploy.grafana.board import Board, Row
from deploy.grafana.colours import (
    ALLOCATED,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    UNALLOCATED,
    YELLOW,
    at_least,
    at_most,
)
from deploy.grafana.panels import Bars, Figures, Lines, Table
from deploy.grafana.query import BUDGET, CLUSTER, UNTIL_MS, WINDOW

CLASSES = {"debug": GREEN, "allocated": BLUE, "unallocated": SKY, "largest": PURPLE}
ENDS = {
    "completed": BLUE,
    "failed": YELLOW,
    "preempted": ORANGE,
    "drained": PURPLE,
    "host lost": RED,
    "cancelled": GREY,
}


def held_on(sql: str, columns: Sequence[str]) -> str:
    """What holds until something changes, said for each interval: `sql` has a column `time`, and these."""
    names = ", ".join(f'"{column}"' for column in columns)
    return f"""
SELECT *
FROM
({sql}
ORDER BY time WITH FILL
    FROM toStartOfInterval($__fromTime, INTERVAL $__interval_s second) TO $__toTime STEP $__interval_s
    INTERPOLATE ({names})
)
WHERE (SELECT count() FROM facts) > 0
ORDER BY time
"""


def percentile(of: str, percent: int) -> str:
    """Nearest rank: the smallest value that at least `percent` % do not exceed. `of` is a sorted array."""
    return f"{of}[intDiv(length({of}) * {percent} + 99, 100)]"


NOW = Figures(
    title="At the end of this time",
    says="Jobs that wait and the GPUs they ask for; allocated ones are those with a contract. Unallocated jobs may "
    "wait for long: they only ever take what is left over. The longest wait is of allocated jobs, since they "
    "last came into the queue.",
    sql=f"""
SELECT
    countIf(min_runtime_ms > 0) AS "Allocated jobs",
    sumIf(gpus, min_runtime_ms > 0) AS "GPUs they want",
    maxIf({UNTIL_MS} - waits_since_ms, min_runtime_ms > 0) / 1000 AS "Longest wait",
    countIf(latest_start_ms > 0) AS "Gangs with a latest start",
    countIf(min_runtime_ms = 0) AS "Unallocated jobs",
    sumIf(gpus, min_runtime_ms = 0) AS "GPUs these want"
FROM waiting_jobs(until_ms = {UNTIL_MS})
WHERE {CLUSTER} AND {BUDGET}
HAVING count() > 0
""",
    columns=(
        "Allocated jobs",
        "GPUs they want",
        "Longest wait",
        "Gangs with a latest start",
        "Unallocated jobs",
        "GPUs these want",
    ),
    width=18,
    decimals=0,
    units={"Longest wait": "s"},
)

PROMISES = Figures(
    title="Promised latest starts",
    says="Of the gangs that started in this time and had been promised a latest start: the part that started by "
    "then. Only a host failure or a change of budgets may move a promise (P8).",
    sql=f"""
SELECT countIf(kept) / count() AS "Kept", count() AS "Promises"
FROM promises({WINDOW})
WHERE {CLUSTER}
HAVING count() > 0
""",
    columns=("Kept", "Promises"),
    width=6,
    unit="percentunit",
    decimals=1,
    units={"Promises": "none"},
    digits={"Promises": 0},
    steps={"Kept": at_least(0.95, 0.99)},
)

WAITING = Lines(
    title="GPUs that waiting jobs want",
    says="GPUs asked for by jobs in the queue, at the end of each interval. Allocated demand that grows for days "
    "means that more is promised to budgets than there is.",
    sql=held_on(
        f"""
SELECT
    time,
    sum(allocated_change) OVER (ORDER BY time) AS "Allocated",
    sum(other_change) OVER (ORDER BY time) AS "Unallocated"
FROM
(
    SELECT
        $__timeInterval(at) AS time,
        sumIf(gpus, allocated) AS allocated_change,
        sumIf(gpus, NOT allocated) AS other_change
    FROM queue_steps({WINDOW})
    WHERE {CLUSTER} AND {BUDGET}
    GROUP BY time
)""",
        ("Allocated", "Unallocated"),
    ),
    columns=("time", "Allocated", "Unallocated"),
    width=12,
    unit="suffix:GPUs",
    decimals=0,
    interval="5m",
    stacked=True,
    stepped=True,
    colours={"Allocated": ALLOCATED, "Unallocated": UNALLOCATED},
)

LATEST_STARTS = Table(
    title="Gangs that wait with a latest start",
    says="Hosts are kept for them (P8); they start at the latest start or earlier. In is how long that is from the "
    "end of the time that is looked at.",
    sql=f"""
SELECT
    job AS "Job",
    budget AS "Budget",
    gpus AS "GPUs",
    ({UNTIL_MS} - waits_since_ms) / 1000 AS "Has waited",
    fromUnixTimestamp64Milli(latest_start_ms) AS "Latest start",
    (latest_start_ms - {UNTIL_MS}) / 1000 AS "In"
FROM waiting_jobs(until_ms = {UNTIL_MS})
WHERE {CLUSTER} AND {BUDGET} AND latest_start_ms > 0
ORDER BY latest_start_ms, job
""",
    columns=("Job", "Budget", "GPUs", "Has waited", "Latest start", "In"),
    width=12,
    units={"GPUs": "none", "Has waited": "s", "In": "s"},
    widths={"Budget": 170, "Latest start": 170},
)

WAITS = Table(
    title="Waits by class, from submission to the first start",
    says="Of jobs submitted in this time; one that still waits counts with its wait so far. Half of the jobs "
    "waited no longer than the median, nine of ten no longer than p90. Debug: with a contract, at most 8 GPUs "
    "and 15 minutes. Largest: a quarter of the cluster or more.",
    sql=f"""
SELECT
    class AS "Class",
    length(waits) AS "Jobs",
    started AS "Started",
    {percentile("waits", 50)} / 1000 AS "Median",
    {percentile("waits", 90)} / 1000 AS "p90",
    {percentile("waits", 99)} / 1000 AS "p99",
    waits[-1] / 1000 AS "Longest"
FROM
(
    SELECT class, arraySort(groupArray(wait_ms)) AS waits, countIf(started) AS started
    FROM job_waits({WINDOW})
    ARRAY JOIN classes AS class
    WHERE {CLUSTER} AND {BUDGET}
    GROUP BY class
)
ORDER BY indexOf(['all', 'debug', 'allocated', 'largest', 'unallocated'], class)
""",
    columns=("Class", "Jobs", "Started", "Median", "p90", "p99", "Longest"),
    width=12,
    unit="s",
    units={"Jobs": "locale", "Started": "locale"},
)

WAITS_OVER_TIME = Lines(
    title="Nine of ten waited no longer than this (p90)",
    says="By when the jobs were submitted. The newest may still wait: the end of a line can only rise.",
    sql=f"""
SELECT
    time,
    {percentile("debug", 90)} / 1000 AS "debug",
    {percentile("with_contract", 90)} / 1000 AS "allocated"
FROM
(
    SELECT
        $__timeInterval(submitted) AS time,
        arraySort(groupArrayIf(wait_ms, has(classes, 'debug'))) AS debug,
        arraySort(groupArrayIf(wait_ms, has(classes, 'allocated'))) AS with_contract
    FROM job_waits({WINDOW})
    WHERE {CLUSTER} AND {BUDGET}
    GROUP BY time
)
ORDER BY time
""",
    columns=("time", "debug", "allocated"),
    width=12,
    unit="s",
    interval="6h",
    colours={name: CLASSES[name] for name in ("debug", "allocated")},
)

WAITS_BY_BUDGET = Table(
    title="Waits by budget",
    says="Of allocated jobs submitted in this time. A budget that is ahead of its share waits longer: see Fairness.",
    sql=f"""
SELECT
    budget AS "Budget",
    length(waits) AS "Jobs",
    {percentile("waits", 50)} / 1000 AS "Median",
    {percentile("waits", 90)} / 1000 AS "p90",
    waits[-1] / 1000 AS "Longest"
FROM
(
    SELECT budget, arraySort(groupArray(wait_ms)) AS waits
    FROM job_waits({WINDOW})
    WHERE {CLUSTER} AND {BUDGET} AND min_runtime_ms > 0
    GROUP BY budget
)
ORDER BY "p90" DESC, budget
""",
    columns=("Budget", "Jobs", "Median", "p90", "Longest"),
    width=12,
    height=10,
    unit="s",
    units={"Jobs": "locale"},
    steps={"Median": at_most(3600, 8 * 3600)},
    widths={"Budget": 190},
)

REASONS = Bars(
    title="Why jobs wait",
    says="The last reason for which the placer passed over each waiting job. `tenure why JOB` has the numbers.",
    sql=f"""
SELECT
    if(reason = '', 'not looked at yet', replaceAll(replaceOne(reason, 'defer_', ''), '_', ' ')) AS "Reason",
    countIf(min_runtime_ms > 0) AS "Allocated",
    countIf(min_runtime_ms = 0) AS "Unallocated"
FROM waiting_jobs(until_ms = {UNTIL_MS})
WHERE {CLUSTER} AND {BUDGET}
GROUP BY "Reason"
ORDER BY count() DESC, "Reason"
""",
    columns=("Reason", "Allocated", "Unallocated"),
    width=12,
    height=10,
    unit="locale",
    decimals=0,
    stacked=True,
    colours={"Allocated": ALLOCATED, "Unallocated": UNALLOCATED},
)

RUNS_END = Lines(
    title="How runs end",
    says="Ends of runs in each interval, by cause. Preempted ones are mostly unallocated runs that gave way; those "
    "of contracts ended after their minimum runtime. Host lost and drained are the hosts' doing.",
    sql=f"""
SELECT
    $__timeInterval(at) AS time,
    countIf(cause = 'completed') AS "completed",
    countIf(cause = 'failed') AS "failed",
    countIf(cause = 'preempted') AS "preempted",
    countIf(cause = 'drained') AS "drained",
    countIf(cause = 'host_lost') AS "host lost",
    countIf(cause = 'cancelled') AS "cancelled"
FROM
(
    SELECT toDateTime(intDiv(at_ms, 1000), 'UTC') AS at, JSONExtractString(payload, 'cause_of_end') AS cause
    FROM facts FINAL
    WHERE kind = 'RunEnded' AND at_ms >= toUnixTimestamp64Milli($__fromTime_ms) AND at_ms < {UNTIL_MS} AND {CLUSTER}
)
GROUP BY time
ORDER BY time
""",
    columns=("time", *ENDS),
    width=24,
    unit="short",
    decimals=0,
    interval="6h",
    stacked=True,
    bars=True,
    colours=ENDS,
)

BOARD = Board(
    name="queue",
    title="Queue",
    says="Who waits, for how long and why, which latest starts are promised, and how runs end.",
    reading="Waits are from submission to the **first** start; what a job waits after it was preempted is not in "
    "them. Look at the classes apart: a debug job should start in seconds, a gang of a quarter of the "
    "cluster has a latest start instead, and unallocated jobs wait for what is left over. `tenure queue` "
    "and `tenure why JOB` say the same of single jobs.",
    variables=("cluster", "budget"),
    rows=(
        Row(title="What waits", panels=(NOW, PROMISES, WAITING, LATEST_STARTS)),
        Row(title="How long", panels=(WAITS, WAITS_OVER_TIME, WAITS_BY_BUDGET, REASONS)),
        Row(title="How runs end", panels=(RUNS_END,)),
    ),
)
