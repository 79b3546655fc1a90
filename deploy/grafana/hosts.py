"""Hosts and repairs: what is out of service, why, for how long, and who mended it."""

from deploy.grafana.board import Board, Row
from deploy.grafana.colours import (
    BAD,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PALE,
    PURPLE,
    RED,
    SHARE_OF_ONE,
    SKY,
    YELLOW,
    at_least,
)
from deploy.grafana.panels import Bars, Figures, Lines, Table, Timeline
from deploy.grafana.query import CLUSTER, FROM_MS, HOST, HOURS, UNTIL_MS, WINDOW
from deploy.grafana.queue import held_on, percentile

STATES = {
    "healthy": PALE,
    "suspect": YELLOW,
    "draining": SKY,
    "drained": BLUE,
    "repairing": GREEN,
    "probation": PURPLE,
    "lost": ORANGE,
    "failed": RED,
}
"""In the order of their numbers: a state timeline is drawn from numbers."""
OUT = {state: colour for state, colour in STATES.items() if state != "healthy"}
_WORDS = ", ".join(f"'{state}'" for state in STATES)
_OUT = f"greatest(0, least(if(ended_ms = 0, {UNTIL_MS}, ended_ms), {UNTIL_MS}) - greatest(out_from_ms, {FROM_MS}))"
_INCIDENTS = f"""(
    SELECT * FROM host_incidents
    WHERE {CLUSTER} AND {HOST} AND began_ms < {UNTIL_MS} AND (ended_ms = 0 OR ended_ms >= {FROM_MS})
)"""
_PLANNED = "reason = 'host_drain_requested'"

SUMMARY = Figures(
    title="In this time",
    says="Availability is of all GPU-time of these hosts, less what they were out of service. Incidents are "
    "unplanned: drains that people asked for count in availability only. Mended by itself: of the incidents "
    "that are over, those that nobody had to touch.",
    sql=f"""
SELECT
    1 - sum(out_gpu_ms) / any(whole_gpu_ms) AS "Availability",
    sum(out_gpu_ms) / {HOURS} AS "Out of service",
    countIf(counted AND NOT planned) AS "Incidents",
    countIf(counted AND NOT planned AND ending = 'open') AS "Still open",
    countIf(counted AND NOT planned AND ending = 'automatic')
        / nullIf(countIf(counted AND NOT planned AND ending != 'open'), 0) AS "Mended by itself",
    sum(refunded_gpu_ms) / {HOURS} AS "Refunded"
FROM
(
    SELECT
        gpus * {_OUT} AS out_gpu_ms, refunded_gpu_ms, ending, {_PLANNED} AS planned, 1 AS counted
    FROM {_INCIDENTS}
    UNION ALL
    SELECT 0, 0, '', 0, 0
) AS incidents
CROSS JOIN
(
    SELECT sum(gpus * ({UNTIL_MS} - greatest(first_ms, {FROM_MS}))) AS whole_gpu_ms
    FROM
    (
        SELECT cluster, host, argMax(size, position) AS gpus, min(at_ms) AS first_ms
        FROM host_steps
        WHERE size >= 0 AND at_ms < {UNTIL_MS} AND {CLUSTER} AND {HOST}
        GROUP BY cluster, host
    )
) AS hosts
HAVING any(whole_gpu_ms) > 0
""",
    columns=("Availability", "Out of service", "Incidents", "Still open", "Mended by itself", "Refunded"),
    width=24,
    unit="percentunit",
    decimals=1,
    units={
        "Out of service": "suffix:GPU-h",
        "Refunded": "suffix:GPU-h",
        "Incidents": "none",
        "Still open": "none",
    },
    digits={"Out of service": 0, "Refunded": 0, "Incidents": 0, "Still open": 0},
    steps={"Availability": SHARE_OF_ONE, "Mended by itself": at_least(0.5, 0.7)},
)

OUT_OVER_TIME = Lines(
    title="Hosts that are not healthy",
    says="Hosts in each state but healthy, at the end of each interval. Suspect is silent for a while; draining "
    "takes no new runs; drained is empty; repairing and probation are the repair plug's; failed waits for a "
    "person; lost is silent for long.",
    sql=held_on(
        f"""
SELECT time, {", ".join(f'sum({state}_change) OVER (ORDER BY time) AS "{state}"' for state in OUT)}
FROM
(
    SELECT
        $__timeInterval(at) AS time,
        {", ".join(f"sumIf(hosts, state = '{state}') AS {state}_change" for state in OUT)}
    FROM host_state_steps({WINDOW})
    WHERE {CLUSTER} AND {HOST}
    GROUP BY time
)""",
        tuple(OUT),
    ),
    columns=("time", *OUT),
    width=12,
    height=12,
    unit="suffix:hosts",
    decimals=0,
    interval="15m",
    stacked=True,
    stepped=True,
    colours=OUT,
)

HOST_STATES = Timeline(
    title="The hosts that were out of service",
    says="The twenty hosts with the most changes of state in this time, each with its states. Choose others with "
    "the variable Host.",
    sql=f"""
WITH changes AS
(
    SELECT
        host, position, at_ms,
        toInt64(indexOf([{_WORDS}], JSONExtractString(payload, 'state'))) AS state
    FROM facts FINAL
    WHERE kind = 'HostStateChanged' AND at_ms < {UNTIL_MS} AND {CLUSTER} AND {HOST}
      AND host IN
      (
          SELECT host FROM facts
          WHERE kind = 'HostStateChanged' AND at_ms BETWEEN {FROM_MS} AND {UNTIL_MS} AND {CLUSTER} AND {HOST}
            AND JSONExtractString(payload, 'state') != 'healthy'
          GROUP BY host
          ORDER BY count() DESC, host
          LIMIT 20
      )
)
SELECT fromUnixTimestamp64Milli(greatest(at_ms, {FROM_MS})) AS time, host, argMax(state, position) AS state
FROM changes
WHERE at_ms >= {FROM_MS}
   OR (host, position) IN (SELECT host, max(position) FROM changes WHERE at_ms < {FROM_MS} GROUP BY host)
GROUP BY time, host
ORDER BY time, host
""",
    columns=("time", "host", "state"),
    width=12,
    height=12,
    words={str(number): (state, colour) for number, (state, colour) in enumerate(STATES.items(), start=1)},
)

CAUSES = Bars(
    title="Incidents by cause",
    says="What the host was taken out of service for, and how it came back: by itself, by a person, or not yet. "
    "Planned are drains that people asked for.",
    sql=f"""
SELECT
    if({_PLANNED}, 'planned', replaceAll(replaceOne(reason, 'host_', ''), '_', ' ')) AS "Cause",
    countIf(ending = 'automatic') AS "By itself",
    countIf(ending = 'human') AS "By a person",
    countIf(ending = 'open') AS "Still open"
FROM {_INCIDENTS}
GROUP BY "Cause"
ORDER BY count() DESC, "Cause"
""",
    columns=("Cause", "By itself", "By a person", "Still open"),
    width=6,
    unit="none",
    decimals=0,
    stacked=True,
    colours={"By itself": BLUE, "By a person": ORANGE, "Still open": BAD},
)

STEPS = Table(
    title="How long it took",
    says="From the first sign to the verdict (detect), from the verdict to an empty host (drain), from then to its "
    "return (repair). Detect and repair of unplanned incidents only.",
    sql=f"""
SELECT
    step AS "Step",
    length(took) AS "Incidents",
    {percentile("took", 50)} / 1000 AS "Median",
    {percentile("took", 90)} / 1000 AS "p90",
    took[-1] / 1000 AS "Longest"
FROM
(
    SELECT taken.1 AS step, arraySort(groupArray(taken.2)) AS took
    FROM
    (
        SELECT arrayJoin(arrayFilter(each -> each.2 >= 0, [
            ('detect', if({_PLANNED}, -1, detect_ms)),
            ('drain', if(drained_ms = 0, -1, drained_ms - began_ms)),
            ('repair', if({_PLANNED} OR ended_ms = 0, -1, ended_ms - if(drained_ms = 0, began_ms, drained_ms)))
        ])) AS taken
        FROM {_INCIDENTS}
    )
    GROUP BY step
)
ORDER BY indexOf(['detect', 'drain', 'repair'], step)
""",
    columns=("Step", "Incidents", "Median", "p90", "Longest"),
    width=7,
    unit="s",
    units={"Incidents": "none"},
)

SIGNALS = Bars(
    title="Signals of devices",
    says="What hosts said of their devices, each incident of a device once, by its worst severity. Codes are "
    "listed in docs/health.md.",
    sql=f"""
SELECT
    code AS "Code",
    countIf(severity = 3) AS "Fatal",
    countIf(severity = 2) AS "Drain",
    countIf(severity = 1) AS "Watch"
FROM
(
    SELECT
        host,
        JSONExtractString(signal, 'code') AS code,
        max(greatest(1, indexOf(['watch', 'drain', 'fatal'], JSONExtractString(signal, 'severity')))) AS severity
    FROM
    (
        SELECT host, arrayJoin(JSONExtractArrayRaw(payload, 'signals')) AS signal
        FROM facts FINAL
        WHERE kind = 'HostSignal' AND at_ms >= {FROM_MS} AND at_ms < {UNTIL_MS} AND {CLUSTER} AND {HOST}
    )
    WHERE NOT JSONExtractBool(signal, 'over')
    GROUP BY
        host, code, JSONExtractString(signal, 'source'), JSONExtractString(signal, 'device'),
        JSONExtractInt(signal, 'first_at')
)
GROUP BY code
ORDER BY count() DESC, code
LIMIT 15
""",
    columns=("Code", "Fatal", "Drain", "Watch"),
    width=6,
    unit="none",
    decimals=0,
    stacked=True,
    colours={"Fatal": RED, "Drain": ORANGE, "Watch": GREY},
)

INCIDENTS = Table(
    title="Incidents",
    says="The latest hundred that were open in this time. Out is how long the host was out of service in it, lost "
    "the GPU-hours of that, refunded what runs lost with it and got back.",
    sql=f"""
SELECT
    fromUnixTimestamp64Milli(began_ms) AS "Began",
    host AS "Host",
    replaceAll(replaceOne(reason, 'host_', ''), '_', ' ') AS "Cause",
    state AS "State",
    ending AS "Ended by",
    answered_by AS "Who",
    detect_ms / 1000 AS "Detect",
    if(drained_ms = 0, NULL, (drained_ms - began_ms) / 1000) AS "Drain",
    {_OUT} / 1000 AS "Out",
    gpus * {_OUT} / {HOURS} AS "GPU-hours lost",
    refunded_gpu_ms / {HOURS} AS "Refunded"
FROM {_INCIDENTS}
ORDER BY began_ms DESC, host
LIMIT 100
""",
    columns=(
        "Began",
        "Host",
        "Cause",
        "State",
        "Ended by",
        "Who",
        "Detect",
        "Drain",
        "Out",
        "GPU-hours lost",
        "Refunded",
    ),
    width=24,
    height=12,
    unit="s",
    units={"GPU-hours lost": "locale", "Refunded": "locale"},
    widths={"Began": 160, "Cause": 150},
)

WORST = Bars(
    title="GPU-hours out of service, by host",
    says="The ten hosts that cost most. One host far above the others is a candidate for replacement.",
    sql=f"""
SELECT host AS "Host", sum(gpus * {_OUT}) / {HOURS} AS "GPU-hours"
FROM {_INCIDENTS}
GROUP BY host
ORDER BY "GPU-hours" DESC, host
LIMIT 10
""",
    columns=("Host", "GPU-hours"),
    width=5,
    unit="locale",
    decimals=0,
    colours={"GPU-hours": BLUE},
)

BOARD = Board(
    name="hosts",
    title="Hosts and repairs",
    says="What is out of service, why, for how long, and who mended it.",
    reading="An **incident** begins when a host leaves service and ends with its return. The aim is that most are "
    "mended without a person, and that nobody's contract was broken for it: a drain waits for the ends of "
    "contracts unless the host is beyond use. `tenure host report` prints the same numbers.",
    variables=("cluster", "host"),
    rows=(
        Row(title="In and out of service", panels=(SUMMARY, OUT_OVER_TIME, HOST_STATES)),
        Row(title="Why, and how long", panels=(CAUSES, STEPS, SIGNALS, WORST)),
        Row(title="One by one", panels=(INCIDENTS,)),
    ),
)
