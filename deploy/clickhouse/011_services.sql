-- How hosts and services fare, from `facts`. For dashboards.

-- Hosts by state in [since_ms, until_ms): so many more (or fewer) hosts are in `state` from `at` on. Those of since_ms count at since_ms.
CREATE VIEW IF NOT EXISTS host_state_steps AS
SELECT
    cluster,
    host,
    toDateTime(intDiv(greatest(changed_ms, {since_ms:Int64}), 1000), 'UTC') AS at,
    change.1 AS state,
    change.2 AS hosts
FROM
(
    SELECT
        cluster,
        host,
        at_ms AS changed_ms,
        JSONExtractString(payload, 'state') AS later_state,
        lagInFrame(later_state, 1, '') OVER (
            PARTITION BY cluster, host ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS earlier_state,
        arrayJoin([(later_state, toInt64(1)), (earlier_state, toInt64(-1))]) AS change
    FROM facts FINAL
    WHERE kind = 'HostStateChanged' AND at_ms < {until_ms:Int64}
)
WHERE change.1 != '' AND earlier_state != later_state;

-- The steps of the services' work that came to an end in [since_ms, until_ms), and how long each took.
CREATE VIEW IF NOT EXISTS step_times AS
SELECT cluster, step, toDateTime(intDiv(ended_ms, 1000), 'UTC') AS at, ended_ms - began_ms AS took_ms
FROM
(
    SELECT later.cluster AS cluster, 'admit' AS step, later.at_ms AS ended_ms, earlier.at_ms AS began_ms
    FROM
    (
        SELECT * FROM facts FINAL
        WHERE kind IN ('JobAdmitted', 'JobRejected') AND at_ms >= {since_ms:Int64} AND at_ms < {until_ms:Int64}
    ) AS later
    INNER JOIN
    (
        SELECT * FROM facts FINAL
        WHERE kind = 'JobSubmitted' AND at_ms >= {since_ms:Int64} - 86400000 AND at_ms < {until_ms:Int64}
    ) AS earlier ON earlier.cluster = later.cluster AND earlier.job = later.job
    UNION ALL
    SELECT earlier.cluster, 'rank', later.at_ms, earlier.at_ms
    FROM
    (
        SELECT * FROM facts FINAL
        WHERE kind = 'JobAdmitted' AND at_ms >= {since_ms:Int64} AND at_ms < {until_ms:Int64}
    ) AS earlier
    ASOF INNER JOIN
    (
        SELECT * FROM facts FINAL
        WHERE kind = 'RankingPublished' AND at_ms >= {since_ms:Int64} AND at_ms < {until_ms:Int64}
    ) AS later ON earlier.cluster = later.cluster AND earlier.position < later.position
    UNION ALL
    SELECT later.cluster, 'start', later.at_ms, earlier.at_ms
    FROM
    (
        SELECT * FROM facts FINAL
        WHERE kind = 'RunStarted' AND at_ms >= {since_ms:Int64} AND at_ms < {until_ms:Int64}
    ) AS later
    INNER JOIN
    (
        SELECT * FROM facts FINAL
        WHERE kind = 'RunAssigned' AND at_ms >= {since_ms:Int64} - 86400000 AND at_ms < {until_ms:Int64}
    ) AS earlier ON earlier.cluster = later.cluster AND earlier.run = later.run
    UNION ALL
    SELECT later.cluster, 'stop', later.at_ms, earlier.at_ms
    FROM
    (
        SELECT * FROM facts FINAL
        WHERE kind = 'RunEnded' AND at_ms >= {since_ms:Int64} AND at_ms < {until_ms:Int64}
    ) AS later
    INNER JOIN
    (
        SELECT cluster, run, min(asked.at_ms) AS at_ms
        FROM facts AS asked
        WHERE kind IN ('RunPreemptionRequested', 'RunStopRequested')
          AND asked.at_ms >= {since_ms:Int64} - 86400000 AND asked.at_ms < {until_ms:Int64}
        GROUP BY cluster, run
    ) AS earlier ON earlier.cluster = later.cluster AND earlier.run = later.run
    UNION ALL
    SELECT later.cluster, 'charge', later.at_ms, earlier.at_ms
    FROM
    (
        SELECT * FROM facts FINAL
        WHERE kind = 'RunCharged' AND at_ms >= {since_ms:Int64} AND at_ms < {until_ms:Int64}
    ) AS later
    INNER JOIN
    (
        SELECT * FROM facts FINAL
        WHERE kind = 'RunEnded' AND at_ms >= {since_ms:Int64} - 86400000 AND at_ms < {until_ms:Int64}
    ) AS earlier ON earlier.cluster = later.cluster AND earlier.run = later.run
);
