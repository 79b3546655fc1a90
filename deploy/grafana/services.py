"""The services themselves: how far ClickHouse is, who leads, how much is said, and how long each step takes."""

from deploy.grafana.board import Board, Row
from deploy.grafana.colours import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, at_most
from deploy.grafana.panels import Figures, Lines, Table
from deploy.grafana.query import CLUSTER, FROM_MS, UNTIL_MS, WINDOW
from deploy.grafana.queue import percentile

SPEAKERS = {
    "agents": GREY,
    "placer": BLUE,
    "ranker": PURPLE,
    "budget": GREEN,
    "health": ORANGE,
    "gateway": SKY,
}
KINDS = {
    "agents": "HostRegistered Heartbeat ReplicasStarted ReplicasExited CheckpointReported HostSignal",
    "ranker": "RankingPublished RankerLeadTaken",
    "budget": "JobAdmitted JobRejected RunCharged BudgetLeadTaken",
    "health": "HostStateChanged CapacityChanged DrainCompleted RepairRequested HealthLeadTaken",
    "gateway": "JobSubmitted JobCancelRequested DrainRequested ResumeRequested RepairCompleted BudgetTreeChanged "
    "PolicyChanged",
}
_COUNTS = {
    speaker: "kind IN (" + ", ".join(f"'{kind}'" for kind in kinds.split()) + ")" for speaker, kinds in KINDS.items()
}
_COUNTS["placer"] = "NOT (" + " OR ".join(_COUNTS.values()) + ")"
STEPS = {"admit": GREEN, "rank": PURPLE, "start": BLUE, "stop": ORANGE, "charge": SKY}

_IN_TIME = f"at_ms >= {FROM_MS} AND at_ms < {UNTIL_MS}"

HEALTH = Figures(
    title="The log, as ClickHouse has it",
    says="Age of the newest fact at the end of this time: with agents that report every few seconds, more than a "
    "minute means that the journal is behind or the log is away. Positions without a fact are what was in "
    "quarantine, or heartbeats whose time is over: `tenure log dead` shows dead letters. Submissions without "
    "an answer are neither admitted nor rejected.",
    sql=f"""
SELECT
    ({UNTIL_MS} - log.newest_ms) / 1000 AS "Newest fact is old",
    log.facts AS "Facts",
    log.facts / (({UNTIL_MS} - {FROM_MS}) / 1000) AS "Facts a second",
    positions.missing AS "Positions without a fact",
    (
        SELECT uniqExactIf(job, kind = 'JobSubmitted') - uniqExactIf(job, kind IN ('JobAdmitted', 'JobRejected'))
        FROM facts FINAL
        WHERE kind IN ('JobSubmitted', 'JobAdmitted', 'JobRejected') AND at_ms < {UNTIL_MS}
    ) AS "Submissions without an answer"
FROM
(
    SELECT max(at_ms) AS newest_ms, count() AS facts FROM events WHERE {_IN_TIME} AND {CLUSTER}
) AS log
CROSS JOIN
(
    SELECT max(position) - min(position) + 1 - count() AS missing
    FROM events
    WHERE position BETWEEN (SELECT min(position) FROM events WHERE {_IN_TIME})
                       AND (SELECT max(position) FROM events WHERE {_IN_TIME})
) AS positions
WHERE log.facts > 0
""",
    columns=(
        "Newest fact is old",
        "Facts",
        "Facts a second",
        "Positions without a fact",
        "Submissions without an answer",
    ),
    width=24,
    unit="locale",
    decimals=0,
    units={"Newest fact is old": "s"},
    digits={"Newest fact is old": 1, "Facts a second": 2},
    steps={
        "Newest fact is old": at_most(30, 60),
        "Positions without a fact": at_most(1, 100),
        "Submissions without an answer": at_most(1, 10),
    },
)

SPOKEN = Lines(
    title="Facts a minute, by who says them",
    says="Agents say most of it: heartbeats. A placer or ranker that says much more than usual goes round in "
    "circles; a role that says nothing for long has no leader (see below).",
    sql=f"""
SELECT
    $__timeInterval(at) AS time,
    {", ".join(f'countIf({_COUNTS[name]}) / ($__interval_s / 60) AS "{name}"' for name in SPEAKERS)}
FROM (SELECT toDateTime(intDiv(at_ms, 1000), 'UTC') AS at, kind FROM events
    WHERE at_ms >= {FROM_MS} AND at_ms < {UNTIL_MS} AND {CLUSTER})
GROUP BY time
ORDER BY time
""",
    columns=("time", *SPEAKERS),
    width=12,
    height=9,
    unit="short",
    interval="1m",
    colours=SPEAKERS,
)

STEP_LINES = Lines(
    title="Nine of ten steps took no longer than this (p90)",
    says="Admit: a submission until the budget role answers. Rank: until the next ranking is published. Start: a "
    "run from its placement until every replica runs. Stop: from the order to stop until the run is over, "
    "grace included. Charge: until the books of a run are closed.",
    sql=f"""
SELECT
    $__timeInterval(at) AS time,
    {", ".join(f'quantileExactIf(0.9)(took_ms, step = {chr(39)}{step}{chr(39)}) / 1000 AS "{step}"' for step in STEPS)}
FROM step_times({WINDOW})
WHERE {CLUSTER}
GROUP BY time
ORDER BY time
""",
    columns=("time", *STEPS),
    width=12,
    height=9,
    unit="s",
    interval="5m",
    colours=STEPS,
)

STEP_TABLE = Table(
    title="How long each step takes",
    says="Of the steps that ended in this time; the words are those of the panel above.",
    sql=f"""
SELECT
    step AS "Step",
    length(took) AS "Times",
    {percentile("took", 50)} / 1000 AS "Median",
    {percentile("took", 90)} / 1000 AS "p90",
    {percentile("took", 99)} / 1000 AS "p99",
    took[-1] / 1000 AS "Longest"
FROM (SELECT step, arraySort(groupArray(took_ms)) AS took FROM step_times({WINDOW}) WHERE {CLUSTER} GROUP BY step)
ORDER BY indexOf(['admit', 'rank', 'start', 'stop', 'charge'], step)
""",
    columns=("Step", "Times", "Median", "p90", "p99", "Longest"),
    width=12,
    height=7,
    unit="s",
    units={"Times": "locale"},
)

LEADERS = Table(
    title="Who leads",
    says="Of each role the process that decides, since when, and how often the lead has changed hands in this "
    "time. Many changes are a process that dies again and again, or a log that is slow.",
    sql=f"""
SELECT
    lower(replaceOne(kind, 'LeadTaken', '')) AS "Role",
    cluster AS "Cluster",
    argMax(JSONExtractString(payload, 'holder'), position) AS "Leader",
    fromUnixTimestamp64Milli(max(at_ms)) AS "Since",
    ({UNTIL_MS} - max(at_ms)) / 1000 AS "For",
    countIf(at_ms >= {FROM_MS}) AS "Changes"
FROM facts FINAL
WHERE kind IN ('BudgetLeadTaken', 'HealthLeadTaken', 'PlacerLeadTaken', 'RankerLeadTaken')
  AND at_ms < {UNTIL_MS} AND {CLUSTER}
GROUP BY kind, cluster
ORDER BY cluster, kind
""",
    columns=("Role", "Cluster", "Leader", "Since", "For", "Changes"),
    width=12,
    height=7,
    units={"For": "s", "Changes": "none"},
    steps={"Changes": at_most(3, 10)},
)

DECISIONS = Lines(
    title="Decisions an hour",
    says="Rankings published, runs placed, preemptions asked for, and jobs passed over for a new reason. "
    "Preemptions that grow while placements do not are worth a look with `tenure why`.",
    sql=f"""
SELECT
    $__timeInterval(at) AS time,
    countIf(kind = 'RankingPublished') / ($__interval_s / 3600) AS "rankings",
    countIf(kind = 'RunAssigned') / ($__interval_s / 3600) AS "placements",
    countIf(kind = 'RunPreemptionRequested') / ($__interval_s / 3600) AS "preemptions",
    countIf(kind = 'PlacementDeferred') / ($__interval_s / 3600) AS "passed over"
FROM (SELECT toDateTime(intDiv(at_ms, 1000), 'UTC') AS at, kind FROM facts FINAL
    WHERE kind IN ('RankingPublished', 'RunAssigned', 'RunPreemptionRequested', 'PlacementDeferred')
      AND at_ms >= {FROM_MS} AND at_ms < {UNTIL_MS} AND {CLUSTER})
GROUP BY time
ORDER BY time
""",
    columns=("time", "rankings", "placements", "preemptions", "passed over"),
    width=24,
    unit="short",
    interval="1h",
    colours={"rankings": PURPLE, "placements": BLUE, "preemptions": RED, "passed over": GREY},
)

BOARD = Board(
    name="services",
    title="Services",
    says="How far ClickHouse is, who leads, how much is said, and how long each step takes.",
    reading="All of it is from the facts in ClickHouse, so it can be looked at for any time in the past; what "
    "processes use of a machine, and what is not a fact, is in Prometheus (docs/metrics.md). If nothing is "
    "new here, look at the journal and at the log first: decisions go on without either ClickHouse or "
    "Grafana. `tenure doctor` looks at all of it at once.",
    variables=("cluster",),
    rows=(
        Row(title="The log", panels=(HEALTH, SPOKEN, STEP_LINES)),
        Row(title="The roles", panels=(STEP_TABLE, LEADERS, DECISIONS)),
    ),
    since="now-24h",
)
