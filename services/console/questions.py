"""The questions that pages ask ClickHouse: what its tables and views hold is told in `deploy/clickhouse`.

What is charged, or stands beside what budgets were entitled to or owed, is in the unit of account (weighed by the rates
of GPU types); `real` in a name says GPU-time as hosts reported it.
"""

_WINDOW = "since_ms = {since:Int64}, until_ms = {until:Int64}"
_BELOW = "({path:String} = '' OR %(name)s = {path:String} OR startsWith(%(name)s, concat({path:String}, '/')))"
_STEP = "intDiv(toUnixTimestamp(hour), {step:UInt32}) * {step:UInt32}"


_WEIGHED = "toInt64(intDiv(sumIf(milli_gpu_ms, %s) + 500, 1000))"
"""As `charged_account_hourly` has it: without rates there are no such rows."""


def _below(name: str) -> str:
    return _BELOW % {"name": name}


USE_OVER_TIME = f"""
SELECT
    at,
    sum(entitled) AS entitled_gpu_ms, sum(wanted) AS wanted_gpu_ms, sum(owed) AS owed_gpu_ms,
    sum(charged) AS charged_gpu_ms, sum(unallocated) AS unallocated_gpu_ms
FROM
(
    SELECT
        {_STEP} AS at,
        entitlement_gpu_ms AS entitled, demand_gpu_ms AS wanted, owed_gpu_ms AS owed, 0 AS charged, 0 AS unallocated
    FROM owed_account_hourly({_WINDOW})
    WHERE {_below("path")}
    UNION ALL
    SELECT {_STEP} AS at, 0, 0, 0, charged_gpu_ms, unallocated_gpu_ms
    FROM held_hourly({_WINDOW})
    WHERE {_below("budget")} AND NOT (SELECT is_so FROM has_rates)
    UNION ALL
    SELECT {_STEP} AS at, 0, 0, 0, {_WEIGHED % "charged"}, {_WEIGHED % "NOT charged"}
    FROM usage_weighed_hourly({_WINDOW})
    WHERE {_below("budget")}
    GROUP BY hour, budget
)
GROUP BY at
ORDER BY at
"""
"""By hours: what a budget and all below it were entitled to, wanted, were owed and held, in GPU-ms of account."""

RATIO_OVER_TIME = """
SELECT
    intDiv(toUnixTimestamp(period), {step:UInt32}) * {step:UInt32} AS at,
    path,
    argMax(charged_gpu_ms + commitment_gpu_ms, at_ms) / argMax(entitlement_gpu_ms, at_ms) AS ratio
FROM standings FINAL
WHERE period >= toDateTime(intDiv({since:Int64}, 1000), 'UTC')
  AND period < toDateTime(intDiv({until:Int64}, 1000), 'UTC')
  AND has({paths:Array(String)}, path) AND entitlement_gpu_ms > 0
GROUP BY at, path
ORDER BY at, path
"""
"""The number that sorts budgets (P3) as it was published."""

USERS = f"""
SELECT user, sumIf(gpu_ms, charged) AS charged_gpu_ms, sumIf(gpu_ms, NOT charged) AS unallocated_gpu_ms
FROM window_usage_account({_WINDOW})
WHERE {_below("budget")}
GROUP BY user
ORDER BY charged_gpu_ms DESC, unallocated_gpu_ms DESC, user
LIMIT 1000
"""
"""Who held a budget's GPU-time, in the unit of account: the sums are those of its report."""

TIMELINE_ROWS_MAX = 20_000
TIMELINE = f"""
SELECT
    host,
    run,
    any(budget) AS of_budget,
    any(charged) AS is_charged,
    max(part_gpus) AS held_gpus,
    min(since_ms) AS from_ms,
    max(last_ms) AS to_ms
FROM
(
    SELECT host, run, budget, charged, since_ms, max(until_ms) AS last_ms, sum(gpus) AS part_gpus
    FROM occupancy
    WHERE kind = 'segment'
      AND hour >= toDateTime(intDiv({{since:Int64}}, 3600000) * 3600, 'UTC')
      AND until_ms > {{since:Int64}} AND since_ms < {{until:Int64}} AND gpus > 0
    GROUP BY host, run, budget, charged, since_ms
)
GROUP BY host, run
ORDER BY host, from_ms, run
LIMIT {TIMELINE_ROWS_MAX + 1}
"""
"""What each run held of each host, as the hosts reported it; one row more than are drawn says that there are more."""

PARKED = """
SELECT
    job,
    any(user) AS of_user,
    any(budget) AS of_budget,
    sumIf(gpu_ms, busy_milli < 50) AS parked_gpu_ms,
    parked_gpu_ms / sum(gpu_ms) AS part,
    sumIf(gpu_ms, busy_milli IS NOT NULL) AS measured_gpu_ms
FROM occupancy
WHERE kind = 'segment' AND charged
  AND hour >= toDateTime(intDiv({since:Int64}, 3600000) * 3600, 'UTC')
  AND hour < toDateTime(intDiv({until:Int64} + 3599999, 3600000) * 3600, 'UTC')
GROUP BY job
HAVING parked_gpu_ms >= 360000
ORDER BY parked_gpu_ms DESC, job
LIMIT 200
"""
"""Charged GPU-time by job in which its GPUs were used by less than 5 %, where that was measured."""

CHECKPOINTS = """
SELECT
    jobs.job AS of_job,
    jobs.user AS of_user,
    jobs.budget AS of_budget,
    jobs.gpus AS of_gpus,
    jobs.min_runtime_ms AS minimum_ms,
    saved.after_ms AS first_checkpoint_ms,
    jobs.min_runtime_ms / greatest(1, saved.after_ms) AS times
FROM (SELECT * FROM jobs FINAL WHERE min_runtime_ms > 0) AS jobs
INNER JOIN
(
    SELECT job, min(saved_ms - started_ms) AS after_ms
    FROM
    (
        SELECT
            job, run,
            minIf(at_ms, kind = 'RunStarted') AS started_ms,
            minIf(at_ms, kind = 'CheckpointReported') AS saved_ms,
            countIf(kind = 'RunStarted') > 0 AND countIf(kind = 'CheckpointReported') > 0 AS is_whole
        FROM events
        WHERE kind IN ('RunStarted', 'CheckpointReported') AND at_ms >= {since:Int64} AND at_ms < {until:Int64}
        GROUP BY job, run
    )
    WHERE is_whole AND saved_ms >= started_ms
    GROUP BY job
) AS saved ON saved.job = jobs.job
WHERE jobs.min_runtime_ms >= 4 * saved.after_ms
ORDER BY of_gpus DESC, times DESC, of_job
LIMIT 200
"""
"""Jobs whose declared minimum is at least four times what they needed to save for the first time."""

FREE = """
SELECT
    budget AS of_budget,
    sumIf(gpu_ms, charged) AS real_charged_gpu_ms,
    sumIf(gpu_ms, NOT charged) AS real_unallocated_gpu_ms,
    real_unallocated_gpu_ms / nullIf(real_charged_gpu_ms + real_unallocated_gpu_ms, 0) AS part
FROM window_usage(since_ms = {since:Int64}, until_ms = {until:Int64})
GROUP BY budget
ORDER BY part DESC, of_budget
"""
"""Which part of a budget's GPU-time was unallocated."""

BURSTS = """
SELECT of_budget, hour_ms, idle_hours, burst_gpu_ms, entitled_gpu_ms, burst_gpu_ms / nullIf(entitled_gpu_ms, 0) AS times
FROM
(
    SELECT
        path AS of_budget,
        hour_ms,
        sum(used) OVER after AS burst_gpu_ms,
        sum(entitled) OVER after AS entitled_gpu_ms,
        used,
        intDiv(hour_ms - lagInFrame(last_used_ms, 1, 0) OVER before, 3600000) - 1 AS idle_hours,
        lagInFrame(last_used_ms, 1, 0) OVER before AS used_before_ms
    FROM
    (
        SELECT
            path, hour_ms, used, entitled,
            max(if(used > 0, hour_ms, 0)) OVER (
                PARTITION BY path ORDER BY hour_ms ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
            ) AS last_used_ms
        FROM
        (
            SELECT path, hour_ms, sum(used_gpu_ms) AS used, sum(entitled_gpu_ms) AS entitled
            FROM
            (
                SELECT
                    path, toInt64(toUnixTimestamp(hour)) * 1000 AS hour_ms,
                    0. AS used_gpu_ms, toFloat64(entitlement_gpu_ms) AS entitled_gpu_ms
                FROM owed_account_hourly(since_ms = {since:Int64}, until_ms = {until:Int64})
                UNION ALL
                SELECT budget, toInt64(toUnixTimestamp(hour)) * 1000, toFloat64(charged_gpu_ms), 0.
                FROM charged_account_hourly(since_ms = {since:Int64}, until_ms = {until:Int64})
            )
            GROUP BY path, hour_ms
        )
    )
    WINDOW
        after AS (PARTITION BY path ORDER BY hour_ms ROWS BETWEEN CURRENT ROW AND 5 FOLLOWING),
        before AS (PARTITION BY path ORDER BY hour_ms ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
)
WHERE used > 0 AND used_before_ms > 0 AND idle_hours >= 24 AND entitled_gpu_ms > 0
  AND burst_gpu_ms > 2 * entitled_gpu_ms
ORDER BY times DESC, hour_ms, of_budget
LIMIT 200
"""
"""Budgets that held nothing for at least a day after they had held something, and then more than twice their share."""
