"""Occupancy: allocated, unallocated, lost, idle, unavailable; and in how many pieces the free GPUs are."""

from deploy.grafana.board import Board, Row
from deploy.grafana.colours import ALLOCATED, BLUE, GREEN, IDLE, LOST, ORANGE, UNALLOCATED, UNAVAILABLE, at_most
from deploy.grafana.panels import Bars, Figures, Lines, Table
from deploy.grafana.query import BUDGET, CLUSTER, HOST, HOURS, UNTIL_MS, WINDOW

PARTS = {
    "Allocated": ALLOCATED,
    "Unallocated": UNALLOCATED,
    "Lost to host faults": LOST,
    "Idle": IDLE,
    "Unavailable": UNAVAILABLE,
}
_SAMPLES = f"free_samples({WINDOW}, step_s = greatest(900, $__interval_s))"
_LAST = f"free_samples(since_ms = {UNTIL_MS} - 3600000, until_ms = {UNTIL_MS}, step_s = 900)"

TOTALS = Figures(
    title="Where the GPU-time went",
    says="The five parts of all GPU-time of this time; they add up to it exactly (I5). Allocated is charged to "
    "budgets. Lost to host faults was held and is refunded. Idle was offered and held by no run. Unavailable: "
    "its host was drained, lost or failed.",
    sql=f"""
SELECT
    sum(charged_gpu_ms) / {HOURS} AS "Allocated",
    sum(unallocated_gpu_ms) / {HOURS} AS "Unallocated",
    sum(refunded_gpu_ms) / {HOURS} AS "Lost to host faults",
    sum(idle_gpu_ms) / {HOURS} AS "Idle",
    sum(unavailable_gpu_ms) / {HOURS} AS "Unavailable",
    sum(capacity_gpu_ms) / {HOURS} AS "All there is"
FROM gpu_time_hourly({WINDOW})
WHERE {CLUSTER}
HAVING sum(capacity_gpu_ms) > 0
""",
    columns=(*PARTS, "All there is"),
    width=24,
    unit="suffix:GPU-h",
    decimals=0,
)

OVER_TIME = Lines(
    title="GPUs, by what became of them",
    says="Mean number of GPUs in each interval. The top edge is all the GPUs there are. Grey at the top was "
    "unavailable, pale was idle; idle GPUs while jobs wait are fragmentation, or kept for a gang (see below, "
    "and Queue).",
    sql=f"""
SELECT
    $__timeInterval(hour) AS time,
    sum(charged) / sum(length) AS "Allocated",
    sum(unallocated) / sum(length) AS "Unallocated",
    sum(refunded) / sum(length) AS "Lost to host faults",
    sum(idle) / sum(length) AS "Idle",
    sum(unavailable) / sum(length) AS "Unavailable"
FROM
(
    SELECT
        hour,
        any(length_ms) AS length,
        sum(charged_gpu_ms) AS charged,
        sum(unallocated_gpu_ms) AS unallocated,
        sum(refunded_gpu_ms) AS refunded,
        sum(idle_gpu_ms) AS idle,
        sum(unavailable_gpu_ms) AS unavailable
    FROM gpu_time_hourly({WINDOW})
    WHERE {CLUSTER}
    GROUP BY hour
)
GROUP BY time
ORDER BY time
""",
    columns=("time", *PARTS),
    width=24,
    height=10,
    unit="suffix:GPUs",
    decimals=0,
    interval="1h",
    stacked=True,
    colours=PARTS,
)

BY_BUDGET = Bars(
    title="Who held it",
    says="GPU-hours held by the runs of each budget. Unallocated time costs a budget nothing and can be taken back "
    "at any moment.",
    sql=f"""
SELECT
    budget AS "Budget",
    sum(charged_gpu_ms) / {HOURS} AS "Allocated",
    sum(unallocated_gpu_ms) / {HOURS} AS "Unallocated",
    sum(refunded_gpu_ms) / {HOURS} AS "Lost to host faults"
FROM held_hourly({WINDOW})
WHERE {CLUSTER} AND {BUDGET}
GROUP BY budget
ORDER BY budget
""",
    columns=("Budget", "Allocated", "Unallocated", "Lost to host faults"),
    width=12,
    height=12,
    unit="locale",
    decimals=0,
    stacked=True,
    colours={name: PARTS[name] for name in ("Allocated", "Unallocated", "Lost to host faults")},
)

BY_USER = Table(
    title="The largest users",
    says="The twenty people whose runs held most, in GPU-hours, and how busy their GPUs were. By full hours.",
    sql=f"""
SELECT
    user AS "User",
    any(budget) AS "Budget",
    sumIf(gpu_ms, charged) / {HOURS} AS "Allocated",
    sumIf(gpu_ms, NOT charged) / {HOURS} AS "Unallocated",
    sum(busy_gpu_ms) / nullIf(sum(measured_gpu_ms), 0) AS "Utilisation"
FROM occupancy_hourly
WHERE hour >= toStartOfHour($__fromTime) AND hour < $__toTime AND {CLUSTER} AND {BUDGET}
GROUP BY user
ORDER BY sum(gpu_ms) DESC, user
LIMIT 20
""",
    columns=("User", "Budget", "Allocated", "Unallocated", "Utilisation"),
    width=12,
    height=12,
    unit="locale",
    decimals=0,
    units={"Utilisation": "percentunit"},
    steps={"Utilisation": ((None, "#d55e00"), (0.3, "#e69f00"), (0.5, "#0072b2"))},
    widths={"Budget": 170},
)

PIECES = Lines(
    title="Free GPUs, whole and in pieces",
    says="Free GPUs of hosts in service, sampled at full quarters of an hour. In pieces: on hosts where something "
    "runs. A gang of whole hosts can only use what is free on wholly free hosts.",
    sql=f"""
SELECT
    $__timeInterval(at) AS time,
    sumIf(free, held = 0) / uniqExact(at) AS "On wholly free hosts",
    sumIf(free, held > 0) / uniqExact(at) AS "In pieces"
FROM {_SAMPLES}
WHERE {CLUSTER} AND {HOST}
GROUP BY time
ORDER BY time
""",
    columns=("time", "On wholly free hosts", "In pieces"),
    width=12,
    unit="suffix:GPUs",
    decimals=0,
    interval="15m",
    stacked=True,
    colours={"On wholly free hosts": GREEN, "In pieces": ORANGE},
)

LARGEST_HOLE = Lines(
    title="What would fit",
    says="The largest number of replicas that could be placed, of one GPU, of four, and of a whole host (8). Where "
    "the lines lie far apart the free GPUs are fragmented. `tenure queue --fragmentation` says how it goes "
    "on.",
    sql=f"""
SELECT
    $__timeInterval(at) AS time,
    max(ones) AS "1 GPU",
    max(fours) AS "4 GPUs",
    max(eights) AS "8 GPUs"
FROM
(
    SELECT at, sum(free) AS ones, sum(intDiv(free, 4)) AS fours, sum(intDiv(free, 8)) AS eights
    FROM {_SAMPLES}
    WHERE {CLUSTER} AND {HOST}
    GROUP BY at
)
GROUP BY time
ORDER BY time
""",
    columns=("time", "1 GPU", "4 GPUs", "8 GPUs"),
    width=12,
    unit="none",
    decimals=0,
    interval="15m",
    colours={"1 GPU": ORANGE, "4 GPUs": GREEN, "8 GPUs": BLUE},
)

HOLES = Bars(
    title="Hosts by free GPUs, last sample",
    says="How many hosts have so many GPUs free at the last full quarter of an hour. Many low bars in the middle "
    "are fragments; the highest number of GPUs is hosts that are wholly free.",
    sql=f"""
SELECT concat(toString(free), ' free') AS "Free", count() AS "Hosts"
FROM {_LAST}
WHERE {CLUSTER} AND {HOST} AND offered > 0
  AND at = (SELECT max(at) FROM held_samples WHERE at < $__toTime)
GROUP BY free
ORDER BY free
""",
    columns=("Free", "Hosts"),
    width=12,
    unit="none",
    decimals=0,
    upright=True,
    colours={"Hosts": BLUE},
)

BY_HOST = Table(
    title="Hosts that stood idle most",
    says="The twenty hosts with the largest part of their samples free while they were in service. A host that is "
    "always idle has perhaps a GPU type, a place or a name that no job asks for.",
    sql=f"""
SELECT
    host AS "Host",
    cluster AS "Cluster",
    sum(free) / sum(offered) AS "Idle",
    sum(held) / sum(offered) AS "Held",
    countIf(offered = 0) / count() AS "Out of service"
FROM {_SAMPLES}
WHERE {CLUSTER} AND {HOST}
GROUP BY host, cluster
HAVING sum(offered) > 0
ORDER BY "Idle" DESC, host
LIMIT 20
""",
    columns=("Host", "Cluster", "Idle", "Held", "Out of service"),
    width=12,
    unit="percentunit",
    decimals=1,
    interval="15m",
    steps={"Idle": at_most(0.1, 0.3)},
)

BOARD = Board(
    name="occupancy",
    title="Occupancy",
    says="What became of all GPU-time: allocated, unallocated, lost, idle, unavailable. And in how many pieces "
    "free GPUs are.",
    reading="Allocated, unallocated, lost, idle and unavailable add up to all GPU-time there is, **exactly**: the "
    "accounting identity. What counts is what hosts reported, not what was decided. Idle while jobs wait "
    "has three reasons: the free GPUs are in pieces (the lower half says how many), they are kept for a "
    "gang with a latest start, or nobody asks for their GPU type.",
    variables=("cluster", "budget", "host"),
    rows=(
        Row(title="What became of the GPUs", panels=(TOTALS, OVER_TIME, BY_BUDGET, BY_USER)),
        Row(title="Fragmentation", panels=(PIECES, LARGEST_HOLE, HOLES, BY_HOST)),
    ),
)
