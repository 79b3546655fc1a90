"""Fairness: what budgets were owed and got, who is ahead and who behind, and the number that sorts them."""

from deploy.grafana.board import Board, Row
from deploy.grafana.colours import BAD, BLUE, GREY, MIDDLING, NEUTRAL, SHARE_OF_ONE, SKY, Steps, at_least
from deploy.grafana.panels import Bars, Figures, Lines, Table, Timeline
from deploy.grafana.query import CLUSTER, HOURS, PATH, UNTIL_MS, WINDOW

AHEAD: Steps = ((None, BAD), (-500, MIDDLING), (-20, NEUTRAL), (20, SKY), (500, BLUE))
"""GPU-hours ahead of (above 0) or behind one's share: 500 is three days of a host of eight."""
RATIO: Steps = ((None, BAD), (0.8, MIDDLING), (0.98, NEUTRAL), (1.02, SKY), (1.2, BLUE))
BY_LEAF = f"""
    SELECT
        owed.path AS path, owed.entitlement, owed.demand, owed.owed,
        toFloat64(got.delivered) AS delivered, toFloat64(got.unallocated) AS unallocated
    FROM
    (
        SELECT path, sum(entitlement_gpu_ms) AS entitlement, sum(demand_gpu_ms) AS demand, sum(owed_gpu_ms) AS owed
        FROM owed_account_hourly({WINDOW})
        GROUP BY path
    ) AS owed
    LEFT JOIN
    (
        SELECT
            budget,
            sumIf(gpu_ms, charged) AS delivered,
            sumIf(gpu_ms, NOT charged) AS unallocated
        FROM window_usage_account({WINDOW})
        GROUP BY budget
    ) AS got ON got.budget = owed.path
    WHERE {PATH}
"""

SUMMARY = Figures(
    title="Delivered, of what was owed",
    says="Owed is, hour by hour, the smaller of a budget's share of the available GPUs and what its allocated jobs "
    "wanted. Delivered is what was charged. A budget that got more than it was owed does not make up for "
    "another that got less. GPU-hours short is the sum over the budgets that got less.",
    sql=f"""
SELECT
    sum(least(delivered, owed)) / sum(owed) AS "Delivered of owed",
    min(if(owed > 0, least(1, delivered / owed), 1)) AS "Worst budget",
    countIf(delivered >= 0.95 * owed) / count() AS "Budgets with 95 % or more",
    sum(greatest(0, owed - delivered)) / {HOURS} AS "GPU-hours short",
    sum(owed) / {HOURS} AS "GPU-hours owed"
FROM ({BY_LEAF})
HAVING sum(owed) > 0
""",
    columns=("Delivered of owed", "Worst budget", "Budgets with 95 % or more", "GPU-hours short", "GPU-hours owed"),
    width=24,
    unit="percentunit",
    decimals=1,
    units={"GPU-hours short": "suffix:GPU-h", "GPU-hours owed": "suffix:GPU-h"},
    digits={"GPU-hours short": 0, "GPU-hours owed": 0},
    steps={
        "Delivered of owed": SHARE_OF_ONE,
        "Worst budget": at_least(0.85, 0.9),
        "Budgets with 95 % or more": at_least(0.7, 0.85),
    },
)

LEDGER = Table(
    title="Owed and delivered, budget by budget",
    says="In GPU-hours. Ahead (+) or behind (-) is what was delivered less what was owed: read this one first. "
    "Above 0 a budget got more than it was owed, because others left their share unused. The percentage says "
    "the same as a ratio: 100 % and more is good. Entitled is the share alone, whether wanted or not; wanted "
    "is what allocated jobs asked for.",
    sql=f"""
SELECT
    path AS "Budget",
    owed / {HOURS} AS "Owed",
    delivered / {HOURS} AS "Delivered",
    (delivered - owed) / {HOURS} AS "Ahead (+) or behind (-)",
    delivered / nullIf(owed, 0) AS "Delivered of owed",
    entitlement / {HOURS} AS "Entitled",
    demand / {HOURS} AS "Wanted",
    unallocated / {HOURS} AS "Unallocated"
FROM ({BY_LEAF})
ORDER BY "Ahead (+) or behind (-)", path
""",
    columns=(
        "Budget",
        "Owed",
        "Delivered",
        "Ahead (+) or behind (-)",
        "Delivered of owed",
        "Entitled",
        "Wanted",
        "Unallocated",
    ),
    width=24,
    height=10,
    unit="locale",
    decimals=0,
    units={"Delivered of owed": "percentunit"},
    steps={"Ahead (+) or behind (-)": AHEAD, "Delivered of owed": SHARE_OF_ONE},
    widths={"Budget": 190, "Ahead (+) or behind (-)": 190},
)

OWED_BARS = Bars(
    title="Owed and delivered",
    says="The same as bars: where the blue one is shorter, the budget got less than it was owed.",
    sql=f"""
SELECT path AS "Budget", owed / {HOURS} AS "Owed", delivered / {HOURS} AS "Delivered"
FROM ({BY_LEAF})
ORDER BY path
""",
    columns=("Budget", "Owed", "Delivered"),
    width=12,
    height=12,
    unit="locale",
    decimals=0,
    colours={"Owed": GREY, "Delivered": BLUE},
)

DAY_BY_DAY = Lines(
    title="What was owed, day by day",
    says="GPU-hours owed on each day, and the part of them that budgets got on it. Short is the sum over the "
    "budgets that got less than they were owed on that day. Some of it is how contracts work: nobody is "
    "preempted within one, so a budget waits some hours and is ahead for it later. It must not grow, and over "
    "a week it should be next to nothing.",
    sql=f"""
SELECT
    time,
    sum(least(owed, delivered)) / {HOURS} AS "Delivered",
    sum(greatest(0, owed - delivered)) / {HOURS} AS "Short"
FROM
(
    SELECT
        $__timeInterval(hour) AS time,
        owed.path AS path,
        sum(owed.owed_gpu_ms) AS owed,
        toFloat64(sum(got.charged_gpu_ms)) AS delivered
    FROM owed_account_hourly({WINDOW}) AS owed
    LEFT JOIN
    (
        SELECT hour, budget, charged_gpu_ms FROM charged_account_hourly({WINDOW})
    ) AS got ON got.hour = owed.hour AND got.budget = owed.path
    WHERE {PATH}
    GROUP BY time, path
)
GROUP BY time
ORDER BY time
""",
    columns=("time", "Delivered", "Short"),
    width=12,
    height=12,
    unit="locale",
    decimals=0,
    interval="1d",
    stacked=True,
    bars=True,
    colours={"Delivered": BLUE, "Short": BAD},
)

AHEAD_OVER_TIME = Timeline(
    title="GPU-hours ahead of (+) or behind (-) one's share",
    says="Over the lookback window, as the ranker published them: charged in the window and promised to running "
    "contracts, less the entitlement of the window. Orange and red are behind: their jobs go first. Blue is "
    "ahead. Grey is even.",
    sql=f"""
SELECT
    $__timeInterval(period) AS time,
    path,
    argMax(charged_gpu_ms + commitment_gpu_ms - entitlement_gpu_ms, at_ms) / {HOURS} AS "GPU-hours ahead"
FROM standings FINAL
WHERE $__timeFilter(period) AND {CLUSTER} AND {PATH} AND path != ''
GROUP BY time, path
ORDER BY time, path
""",
    columns=("time", "path", "GPU-hours ahead"),
    width=12,
    height=12,
    unit="locale",
    decimals=0,
    interval="3h",
    steps=AHEAD,
)

RATIO_OVER_TIME = Timeline(
    title="The number that sorts budgets (P3)",
    says="Ratio of what counts against a budget to its entitlement, both over the lookback window. **The lowest "
    "goes first.** Below 1 (orange, red) a budget has had less than its share, above 1 (blue) more. It is not "
    "a grade: a budget that asks for little stays below 1 and misses nothing. The panel beside it says the "
    "same in GPU-hours.",
    sql=f"""
SELECT
    $__timeInterval(period) AS time,
    path,
    argMax(charged_gpu_ms + commitment_gpu_ms, at_ms) / argMax(entitlement_gpu_ms, at_ms) AS ratio
FROM standings FINAL
WHERE $__timeFilter(period) AND {CLUSTER} AND {PATH} AND path != '' AND entitlement_gpu_ms > 0
GROUP BY time, path
ORDER BY time, path
""",
    columns=("time", "path", "ratio"),
    width=12,
    height=12,
    unit="short",
    decimals=2,
    interval="3h",
    steps=RATIO,
)

STANDINGS = Table(
    title="Who goes first, as last published",
    says="The budgets in the order of their ratio at the end of the time that is looked at. Ahead (+) or behind "
    "(-) is in GPU-hours of the lookback window. Inside the tree the order is found level by level, so "
    "compare siblings.",
    sql=f"""
SELECT
    path AS "Budget",
    (charged + commitment - entitlement) / {HOURS} AS "Ahead (+) or behind (-)",
    (charged + commitment) / nullIf(entitlement, 0) AS "Ratio",
    charged / {HOURS} AS "Charged",
    commitment / {HOURS} AS "Promised",
    entitlement / {HOURS} AS "Entitled",
    fromUnixTimestamp64Milli(published_ms) AS "Published"
FROM
(
    SELECT
        path,
        argMax(charged_gpu_ms, position) AS charged,
        argMax(commitment_gpu_ms, position) AS commitment,
        argMax(entitlement_gpu_ms, position) AS entitlement,
        max(at_ms) AS published_ms
    FROM standings FINAL
    WHERE $__timeFilter(period) AND at_ms <= {UNTIL_MS} AND {CLUSTER} AND {PATH} AND path != ''
    GROUP BY path
)
ORDER BY (charged + commitment) / nullIf(entitlement, 0), path
""",
    columns=("Budget", "Ahead (+) or behind (-)", "Ratio", "Charged", "Promised", "Entitled", "Published"),
    width=24,
    height=12,
    unit="locale",
    decimals=0,
    units={"Ratio": "none"},
    digits={"Ratio": 2},
    steps={"Ahead (+) or behind (-)": AHEAD, "Ratio": RATIO},
    widths={"Budget": 190, "Ahead (+) or behind (-)": 190},
)

BOARD = Board(
    name="fairness",
    title="Fairness",
    says="What budgets were owed and got, who is ahead of their share and who behind, and the number that sorts them.",
    reading="**Two questions, two scales.** *Did people get what they are owed?* is the upper half: delivered of "
    "owed, 100 % is the aim. *Who goes next?* is the lower half: the ratio that sorts budgets, where the "
    "**lowest goes first**. Because people read ratios the wrong way round, hours stand beside each: above "
    "0 is ahead, below 0 is behind. One tree spans all clusters, so owed and delivered are not split by "
    "cluster; the ratio is. `tenure budget report` prints the same numbers.",
    variables=("cluster", "budget"),
    rows=(
        Row(title="Did budgets get what they are owed?", panels=(SUMMARY, LEDGER, OWED_BARS, DAY_BY_DAY)),
        Row(title="Who goes next?", panels=(AHEAD_OVER_TIME, RATIO_OVER_TIME, STANDINGS)),
    ),
)
