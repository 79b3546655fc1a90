"""The pyramid: of all GPU-time there is, what was available, held, delivered, and really busy."""

from deploy.grafana.board import Board, Row
from deploy.grafana.colours import BLUE, GREEN, ORANGE, PURPLE, SHARE_OF_ONE, at_least
from deploy.grafana.panels import Bars, Figures, Lines, Table, Timeline
from deploy.grafana.query import BUDGET, CLUSTER, HOURS, WINDOW

LEVELS = {"Availability": BLUE, "Occupancy": GREEN, "Impact": ORANGE, "Utilisation": PURPLE}
_RATIOS = """
    sum(offered_gpu_ms) / nullIf(sum(capacity_gpu_ms), 0) AS "Availability",
    sum(charged_gpu_ms + refunded_gpu_ms + unallocated_gpu_ms) / nullIf(sum(available_gpu_ms), 0) AS "Occupancy",
    sum(charged_gpu_ms) / nullIf(sum(charged_gpu_ms + refunded_gpu_ms + unallocated_gpu_ms), 0) AS "Impact",
    sum(busy_gpu_ms) / nullIf(sum(measured_gpu_ms), 0) AS "Utilisation"
"""

LEVELS_NOW = Figures(
    title="The four levels",
    says="Each is a part of the level before it. Availability: of all GPU-time, what healthy hosts offered. "
    "Occupancy: of what runs could hold (the last contracts on hosts that leave included), what they held. "
    "Impact: of what runs held, what was delivered to a budget: not unallocated, not lost to a host fault. "
    "Utilisation: how busy the held GPUs were, where that can be measured.",
    sql=f"""
SELECT {_RATIOS}
FROM gpu_time_hourly({WINDOW})
WHERE {CLUSTER}
HAVING sum(capacity_gpu_ms) > 0
""",
    columns=tuple(LEVELS),
    width=24,
    unit="percentunit",
    decimals=1,
    steps={
        "Availability": SHARE_OF_ONE,
        "Occupancy": SHARE_OF_ONE,
        "Impact": at_least(0.5, 0.7),
        "Utilisation": at_least(0.3, 0.5),
    },
)

IN_HOURS = Bars(
    title="The same in GPU-hours",
    says="The longer the step to the next bar, the more is to be won there. The last bar counts held GPU-time as "
    "busy by the utilisation that was measured; what cannot be measured is left out of it.",
    sql=f"""
SELECT level.1 AS "Level", level.2 / {HOURS} AS "GPU-hours"
FROM
(
    SELECT arrayJoin([
        ('all there is', sum(capacity_gpu_ms)),
        ('offered by hosts', sum(offered_gpu_ms)),
        ('held by runs', sum(charged_gpu_ms + refunded_gpu_ms + unallocated_gpu_ms)),
        ('delivered to budgets', sum(charged_gpu_ms)),
        ('busy, as measured', sum(busy_gpu_ms))
    ]) AS level
    FROM gpu_time_hourly({WINDOW})
    WHERE {CLUSTER}
    HAVING sum(capacity_gpu_ms) > 0
)
""",
    columns=("Level", "GPU-hours"),
    width=10,
    unit="locale",
    decimals=0,
    colours={"GPU-hours": BLUE},
)

OVER_TIME = Lines(
    title="The four levels over time",
    says="The same four parts, hour by hour or in longer steps. A level that falls while the one before it stays "
    "is where to look: the dashboards Hosts, Occupancy and Queue say more of the first three.",
    sql=f"""
SELECT $__timeInterval(hour) AS time, {_RATIOS}
FROM gpu_time_hourly({WINDOW})
WHERE {CLUSTER}
GROUP BY time
ORDER BY time
""",
    columns=("time", *LEVELS),
    width=14,
    unit="percentunit",
    interval="1h",
    colours=LEVELS,
    most=1,
)

BY_BUDGET = Table(
    title="What each budget held",
    says="GPU-hours of the runs of each budget: delivered (charged to it), unallocated (free, never protected), "
    "lost to host faults and refunded. Utilisation is of its own runs.",
    sql=f"""
SELECT
    budget AS "Budget",
    sum(held_gpu_ms) / {HOURS} AS "Held",
    sum(charged_gpu_ms) / {HOURS} AS "Delivered",
    sum(unallocated_gpu_ms) / {HOURS} AS "Unallocated",
    sum(refunded_gpu_ms) / {HOURS} AS "Lost to host faults",
    sum(busy_gpu_ms) / nullIf(sum(measured_gpu_ms), 0) AS "Utilisation"
FROM held_hourly({WINDOW})
WHERE {CLUSTER} AND {BUDGET}
GROUP BY budget
ORDER BY sum(held_gpu_ms) DESC, budget
""",
    columns=("Budget", "Held", "Delivered", "Unallocated", "Lost to host faults", "Utilisation"),
    width=12,
    height=10,
    unit="locale",
    decimals=0,
    units={"Utilisation": "percentunit"},
    steps={"Utilisation": at_least(0.3, 0.5)},
    widths={"Budget": 170, "Lost to host faults": 130},
)

BUSY_BY_BUDGET = Timeline(
    title="How busy each budget's GPUs were",
    says="Mean utilisation of the GPUs that the runs of a budget held. A row that is red for days is a team that "
    "holds GPUs and does not use them: talk to them.",
    sql=f"""
SELECT $__timeInterval(hour) AS time, budget, sum(busy_gpu_ms) / sum(measured_gpu_ms) AS utilisation
FROM held_hourly({WINDOW})
WHERE {CLUSTER} AND {BUDGET}
GROUP BY time, budget
HAVING sum(measured_gpu_ms) > 0
ORDER BY time, budget
""",
    columns=("time", "budget", "utilisation"),
    width=12,
    height=10,
    unit="percentunit",
    interval="6h",
    steps=at_least(0.3, 0.5),
)

BOARD = Board(
    name="pyramid",
    title="Pyramid",
    says="Of all GPU-time there is: what was available, held by runs, delivered to budgets, and busy.",
    reading="Read it from the left: availability, occupancy, impact, utilisation. Each level is a part **of the "
    "level before it**, so a low number on the right says nothing while one on the left is low. "
    "Availability is the work of whoever repairs hosts, occupancy that of the scheduler and of the queue, "
    "impact that of how much is asked for with a contract, utilisation that of the teams. All of it is "
    "GPU-time as hosts reported it, to the millisecond; the report of `tenure simulate` has the same words "
    "and the same numbers.",
    variables=("cluster", "budget"),
    rows=(
        Row(title="Of all GPU-time there is", panels=(LEVELS_NOW, IN_HOURS, OVER_TIME)),
        Row(title="By budget", panels=(BY_BUDGET, BUSY_BY_BUDGET)),
    ),
)
