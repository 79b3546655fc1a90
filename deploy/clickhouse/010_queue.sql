-- The queue, from `facts` and `jobs`: what waits, since when and why, what waited, and which promises were kept. For dashboards.

-- Jobs that wait at `until_ms`, with the last reason why they were passed over, and the latest start they are promised (0: none).
CREATE VIEW IF NOT EXISTS waiting_jobs AS
WITH waiting AS
(
    SELECT cluster, job, argMax(at_ms, position) AS since_ms
    FROM facts FINAL
    WHERE kind IN ('JobAdmitted', 'JobRequeued', 'RunAssigned', 'JobFinished') AND at_ms < {until_ms:Int64}
    GROUP BY cluster, job
    HAVING argMax(kind, position) IN ('JobAdmitted', 'JobRequeued')
)
SELECT
    waiting.cluster AS cluster,
    waiting.job AS job,
    asked.budget AS budget,
    asked.user AS user,
    asked.gpus AS gpus,
    asked.min_runtime_ms AS min_runtime_ms,
    asked.submitted_ms AS submitted_ms,
    waiting.since_ms AS waits_since_ms,
    deferred.reason AS reason,
    if(promised.open, promised.latest_start_ms, 0) AS latest_start_ms
FROM waiting
INNER JOIN (SELECT * FROM jobs FINAL) AS asked ON asked.cluster = waiting.cluster AND asked.job = waiting.job
LEFT JOIN
(
    SELECT job, argMax(facts.reason, position) AS reason
    FROM facts
    WHERE kind = 'PlacementDeferred' AND at_ms < {until_ms:Int64} AND job IN (SELECT job FROM waiting)
    GROUP BY job
) AS deferred ON deferred.job = waiting.job
LEFT JOIN
(
    SELECT
        job,
        argMax(kind, position) = 'ReservationMade' AS open,
        argMaxIf(JSONExtractInt(payload, 'latest_start'), position, kind = 'ReservationMade') AS latest_start_ms
    FROM facts
    WHERE kind IN ('ReservationMade', 'ReservationDropped', 'RunAssigned') AND at_ms < {until_ms:Int64}
      AND job IN (SELECT job FROM waiting)
    GROUP BY job
) AS promised ON promised.job = waiting.job;

-- How the queue grows and shrinks in [since_ms, until_ms): `jobs` more (or fewer) wait from `at` on. What waits already counts at since_ms.
CREATE VIEW IF NOT EXISTS queue_steps AS
SELECT
    steps.cluster AS cluster,
    toDateTime(intDiv(steps.at_ms, 1000), 'UTC') AS at,
    steps.delta AS jobs,
    steps.delta * asked.gpus AS gpus,
    asked.budget AS budget,
    asked.min_runtime_ms > 0 AS allocated
FROM
(
    SELECT cluster, job, greatest(changes.at_ms, {since_ms:Int64}) AS at_ms, waits - lagInFrame(waits, 1, 0) OVER (
        PARTITION BY cluster, job ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS delta
    FROM
    (
        SELECT cluster, job, position, at_ms, toInt64(kind IN ('JobAdmitted', 'JobRequeued')) AS waits
        FROM facts FINAL
        WHERE kind IN ('JobAdmitted', 'JobRequeued', 'RunAssigned', 'JobFinished') AND at_ms < {until_ms:Int64}
          AND job NOT IN (SELECT job FROM facts WHERE kind = 'JobFinished' AND at_ms < {since_ms:Int64})
    ) AS changes
) AS steps
INNER JOIN (SELECT * FROM jobs FINAL) AS asked ON asked.cluster = steps.cluster AND asked.job = steps.job
WHERE steps.delta != 0;

-- Jobs submitted in [since_ms, until_ms): how long each waited for its first start. One that still waits has waited until until_ms.
-- `classes` are those of the simulator's report: debug is allocated, at most 8 GPUs and 15 minutes; largest a quarter of the cluster.
CREATE VIEW IF NOT EXISTS job_waits AS
WITH
    asked AS
    (
        SELECT * FROM jobs FINAL WHERE submitted_ms >= {since_ms:Int64} AND submitted_ms < {until_ms:Int64}
    ),
    begun AS
    (
        SELECT
            job,
            minIf(at_ms, kind = 'RunStarted') AS started_ms,
            minIf(at_ms, kind = 'JobFinished') AS finished_ms
        FROM facts
        WHERE kind IN ('RunStarted', 'JobFinished') AND at_ms >= {since_ms:Int64} AND at_ms < {until_ms:Int64}
          AND job IN (SELECT job FROM asked)
        GROUP BY job
    ),
    sizes AS
    (
        SELECT cluster, sum(gpus) AS gpus
        FROM
        (
            SELECT cluster, host, argMin(size, position) AS gpus
            FROM host_steps WHERE size >= 0 AND at_ms < {until_ms:Int64} GROUP BY cluster, host
        )
        GROUP BY cluster
    )
SELECT
    asked.cluster AS cluster,
    asked.job AS job,
    asked.budget AS budget,
    asked.user AS user,
    asked.gpus AS gpus,
    asked.min_runtime_ms AS min_runtime_ms,
    asked.submitted_ms AS submitted_ms,
    multiIf(begun.started_ms > 0, begun.started_ms, begun.finished_ms > 0, begun.finished_ms, {until_ms:Int64})
        - asked.submitted_ms AS wait_ms,
    begun.started_ms > 0 AS started,
    arrayFilter(name -> name != '', [
        'all',
        if(asked.min_runtime_ms > 0, 'allocated', 'unallocated'),
        if(asked.min_runtime_ms BETWEEN 1 AND 900000 AND asked.gpus <= 8, 'debug', ''),
        if(4 * asked.gpus >= sizes.gpus AND sizes.gpus > 0, 'largest', '')
    ]) AS classes,
    toDateTime(intDiv(asked.submitted_ms, 1000), 'UTC') AS submitted
FROM asked
LEFT JOIN begun ON begun.job = asked.job
LEFT JOIN sizes ON sizes.cluster = asked.cluster;

-- Gangs that started in [since_ms, until_ms) and had been promised a latest start (P8): the one that was published last, and the start.
CREATE VIEW IF NOT EXISTS promises AS
SELECT cluster, job, latest_start_ms, started_ms, started_ms <= latest_start_ms AS kept
FROM
(
    SELECT
        cluster, job, kind, at_ms AS started_ms,
        max(JSONExtractInt(payload, 'latest_start')) OVER since_the_last_run AS latest_start_ms
    FROM
    (
        SELECT
            cluster, job, kind, at_ms, position, payload,
            countIf(kind = 'RunStarted') OVER (
                PARTITION BY cluster, job ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ) AS runs_before
        FROM facts FINAL
        WHERE (kind = 'ReservationMade' OR (kind = 'RunStarted' AND at_ms >= {since_ms:Int64})) AND at_ms < {until_ms:Int64}
          AND job IN (SELECT job FROM facts WHERE kind = 'ReservationMade' AND at_ms < {until_ms:Int64})
    )
    WINDOW since_the_last_run AS (
        PARTITION BY cluster, job, runs_before ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    )
)
WHERE kind = 'RunStarted' AND latest_start_ms > 0;
