-- Where the GPU-time of any stretch [since_ms, until_ms) went, hour by hour and cluster by cluster, to the millisecond (I5). The hours
-- at both edges count with what of them lies inside. For dashboards; the report of `tenure simulate` says the same of a simulated log.

-- What runs held, as hosts report it (P2): `charged` is net of refunds, the three of them are all that was occupied.
CREATE VIEW IF NOT EXISTS held_hourly AS
SELECT
    hour, cluster, budget,
    sumIf(part_gpu_ms, charged) AS charged_gpu_ms,
    -sumIf(part_gpu_ms, kind = 'refund') AS refunded_gpu_ms,
    sumIf(part_gpu_ms, NOT charged) AS unallocated_gpu_ms,
    sumIf(part_gpu_ms, kind = 'segment') AS held_gpu_ms,
    sum(part_measured_gpu_ms) AS measured_gpu_ms,
    sum(part_busy_gpu_ms) AS busy_gpu_ms
FROM
(
    SELECT
        hour, cluster, budget, charged, kind,
        gpu_ms AS part_gpu_ms,
        measured_gpu_ms AS part_measured_gpu_ms,
        busy_gpu_ms AS part_busy_gpu_ms
    FROM occupancy_hourly
    WHERE hour >= toDateTime(intDiv({since_ms:Int64} + 3599999, 3600000) * 3600, 'UTC')
      AND hour < toDateTime(intDiv({until_ms:Int64}, 3600000) * 3600, 'UTC')
    UNION ALL
    SELECT
        hour, cluster, budget, charged, kind,
        if(
            since_ms >= {since_ms:Int64} AND until_ms <= {until_ms:Int64},
            gpu_ms,
            intDiv(
                gpu_ms * (least(until_ms, {until_ms:Int64}) - greatest(since_ms, {since_ms:Int64})),
                until_ms - since_ms
            )
        ) AS part_gpu_ms,
        if(busy_milli IS NULL, 0, part_gpu_ms) AS part_measured_gpu_ms,
        intDiv(part_gpu_ms * ifNull(busy_milli, 0), 1000) AS part_busy_gpu_ms
    FROM occupancy
    WHERE (
            (hour >= toDateTime(intDiv({since_ms:Int64}, 3600000) * 3600, 'UTC')
                AND hour < toDateTime(intDiv({since_ms:Int64} + 3599999, 3600000) * 3600, 'UTC'))
            OR (hour >= toDateTime(intDiv({until_ms:Int64}, 3600000) * 3600, 'UTC')
                AND hour < toDateTime(intDiv({until_ms:Int64} + 3599999, 3600000) * 3600, 'UTC'))
        )
      AND since_ms < {until_ms:Int64}
      AND until_ms > {since_ms:Int64}
)
GROUP BY hour, cluster, budget;

-- Which host was there with how many GPUs, and how many of them it offered, from when on.
CREATE VIEW IF NOT EXISTS host_steps AS
SELECT cluster, host, position, at_ms, gpus AS offered, toInt64(-1) AS size
FROM capacity
UNION ALL
SELECT
    cluster,
    JSONExtractString(arrayJoin(JSONExtractArrayRaw(payload, 'hosts')) AS spec, 'host') AS host,
    position,
    at_ms,
    toInt64(-1) AS offered,
    JSONExtractInt(spec, 'gpus') AS size
FROM facts FINAL
WHERE kind = 'HostRegistered';

-- GPU-time of all hosts that ever registered, and what of it they offered.
CREATE VIEW IF NOT EXISTS offered_hourly AS
WITH steps AS
(
    SELECT
        cluster,
        greatest(at_ms, {since_ms:Int64}) AS at_ms,
        if(offered < 0, 0, offered - lagInFrame(greatest(offered, 0), 1, 0) OVER each_kind) AS offered_delta,
        if(size < 0, 0, size - lagInFrame(greatest(size, 0), 1, 0) OVER each_kind) AS size_delta
    FROM host_steps
    WHERE host_steps.at_ms < {until_ms:Int64}
    WINDOW each_kind AS (
        PARTITION BY cluster, host, size < 0 ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    )
)
SELECT
    toDateTime(intDiv(at_ms, 3600000) * 3600, 'UTC') AS hour,
    cluster,
    sum(offered * length_ms) AS offered_gpu_ms,
    sum(size * length_ms) AS size_gpu_ms
FROM
(
    SELECT
        cluster,
        at_ms,
        sum(offered_delta) OVER so_far AS offered,
        sum(size_delta) OVER so_far AS size,
        leadInFrame(at_ms, 1, {until_ms:Int64}) OVER (
            PARTITION BY cluster ORDER BY at_ms ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
        ) - at_ms AS length_ms
    FROM
    (
        SELECT cluster, at_ms, sum(offered_delta) AS offered_delta, sum(size_delta) AS size_delta
        FROM
        (
            SELECT cluster, at_ms, offered_delta, size_delta FROM steps
            UNION ALL
            SELECT
                cluster,
                arrayJoin(arrayMap(
                    h -> toInt64(h * 3600000),
                    range(intDiv({since_ms:Int64}, 3600000) + 1, intDiv({until_ms:Int64} + 3599999, 3600000))
                )) AS at_ms,
                toInt64(0) AS offered_delta,
                toInt64(0) AS size_delta
            FROM (SELECT DISTINCT cluster FROM steps)
        )
        GROUP BY cluster, at_ms
    )
    WINDOW so_far AS (PARTITION BY cluster ORDER BY at_ms ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
)
GROUP BY hour, cluster;

-- When hosts offered nothing, and what runs held of them meanwhile: the last of their contracts, before a drain is complete.
CREATE VIEW IF NOT EXISTS leaving_hourly AS
WITH
    away AS
    (
        SELECT cluster, host, at_ms AS away_ms, back_ms
        FROM
        (
            SELECT
                cluster, host, at_ms, gpus,
                leadInFrame(at_ms, 1, {until_ms:Int64}) OVER (
                    PARTITION BY cluster, host ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
                ) AS back_ms
            FROM capacity
            WHERE at_ms < {until_ms:Int64}
        )
        WHERE gpus = 0 AND back_ms > {since_ms:Int64}
    ),
    there AS
    (
        SELECT cluster, host, run, gpus, started_ms
        FROM run_hosts FINAL
        WHERE (cluster, host) IN (SELECT cluster, host FROM away) AND started_ms < {until_ms:Int64}
    ),
    ends AS
    (
        SELECT run, min(at_ms) AS ended_ms
        FROM facts
        WHERE kind = 'RunEnded' AND run IN (SELECT run FROM there)
        GROUP BY run
    )
SELECT
    toDateTime(whole_hour * 3600, 'UTC') AS hour,
    cluster,
    sum(gpus * (least(to_ms, (whole_hour + 1) * 3600000) - greatest(from_ms, whole_hour * 3600000))) AS gpu_ms
FROM
(
    SELECT
        cluster, gpus, from_ms, to_ms,
        arrayJoin(range(toUInt64(intDiv(from_ms, 3600000)), toUInt64(intDiv(to_ms + 3599999, 3600000)))) AS whole_hour
    FROM
    (
        SELECT
            there.cluster AS cluster,
            there.gpus AS gpus,
            greatest(there.started_ms, away.away_ms, {since_ms:Int64}) AS from_ms,
            least(if(ends.ended_ms = 0, {until_ms:Int64}, ends.ended_ms), away.back_ms, {until_ms:Int64}) AS to_ms
        FROM there
        INNER JOIN away ON away.cluster = there.cluster AND away.host = there.host
        LEFT JOIN ends ON ends.run = there.run
    )
    WHERE to_ms > from_ms
)
GROUP BY hour, cluster;

-- All of it: charged + refunded + unallocated + idle + unavailable = capacity. `available` is what runs could have held: what hosts
-- offered, and what runs held of hosts that leave.
CREATE VIEW IF NOT EXISTS gpu_time_hourly AS
SELECT
    hour,
    cluster,
    sum(length_of.size_gpu_ms) AS capacity_gpu_ms,
    sum(length_of.offered_gpu_ms) AS offered_gpu_ms,
    sum(length_of.offered_gpu_ms + length_of.leaving_gpu_ms) AS available_gpu_ms,
    sum(length_of.charged_gpu_ms) AS charged_gpu_ms,
    sum(length_of.refunded_gpu_ms) AS refunded_gpu_ms,
    sum(length_of.unallocated_gpu_ms) AS unallocated_gpu_ms,
    available_gpu_ms - charged_gpu_ms - refunded_gpu_ms - unallocated_gpu_ms AS idle_gpu_ms,
    capacity_gpu_ms - available_gpu_ms AS unavailable_gpu_ms,
    sum(length_of.measured_gpu_ms) AS measured_gpu_ms,
    sum(length_of.busy_gpu_ms) AS busy_gpu_ms,
    least(toInt64(toUnixTimestamp(hour)) * 1000 + 3600000, {until_ms:Int64})
        - greatest(toInt64(toUnixTimestamp(hour)) * 1000, {since_ms:Int64}) AS length_ms
FROM
(
    SELECT
        hour, cluster, size_gpu_ms, offered_gpu_ms,
        toInt64(0) AS leaving_gpu_ms, toInt64(0) AS charged_gpu_ms, toInt64(0) AS refunded_gpu_ms,
        toInt64(0) AS unallocated_gpu_ms, toInt64(0) AS measured_gpu_ms, toInt64(0) AS busy_gpu_ms
    FROM offered_hourly(since_ms = {since_ms:Int64}, until_ms = {until_ms:Int64})
    UNION ALL
    SELECT hour, cluster, 0, 0, gpu_ms, 0, 0, 0, 0, 0
    FROM leaving_hourly(since_ms = {since_ms:Int64}, until_ms = {until_ms:Int64})
    UNION ALL
    SELECT hour, cluster, 0, 0, 0, charged_gpu_ms, refunded_gpu_ms, unallocated_gpu_ms, measured_gpu_ms, busy_gpu_ms
    FROM held_hourly(since_ms = {since_ms:Int64}, until_ms = {until_ms:Int64})
) AS length_of
GROUP BY hour, cluster;

-- What was free of each host at full quarters of an hour in [since_ms, until_ms), every `step_s` seconds of them.
CREATE VIEW IF NOT EXISTS free_samples AS
SELECT
    offers.at AS at,
    offers.cluster AS cluster,
    offers.host AS host,
    offers.gpus AS offered,
    held.gpus AS held,
    greatest(0, offered - held) AS free
FROM
(
    SELECT moments.at AS at, moments.cluster AS cluster, moments.host AS host, steps.gpus AS gpus
    FROM
    (
        SELECT at, toInt64(toUnixTimestamp(at)) * 1000 AS moment_ms, cluster, host
        FROM
        (
            SELECT DISTINCT at
            FROM held_samples
            WHERE at >= toDateTime(intDiv({since_ms:Int64}, 1000), 'UTC')
              AND at < toDateTime(intDiv({until_ms:Int64}, 1000), 'UTC')
              AND toUnixTimestamp(at) % {step_s:UInt32} = 0
        ) AS times
        CROSS JOIN (SELECT DISTINCT cluster, host FROM capacity) AS hosts
    ) AS moments
    ASOF INNER JOIN
    (
        SELECT cluster, host, at_ms, argMax(capacity.gpus, position) AS gpus FROM capacity GROUP BY cluster, host, at_ms
    ) AS steps
        ON steps.cluster = moments.cluster AND steps.host = moments.host AND steps.at_ms <= moments.moment_ms
) AS offers
LEFT JOIN
(
    SELECT at, cluster, host, sum(held_samples.gpus) AS gpus
    FROM held_samples FINAL
    WHERE at >= toDateTime(intDiv({since_ms:Int64}, 1000), 'UTC')
      AND at < toDateTime(intDiv({until_ms:Int64}, 1000), 'UTC')
      AND toUnixTimestamp(at) % {step_s:UInt32} = 0
    GROUP BY at, cluster, host
) AS held ON held.at = offers.at AND held.cluster = offers.cluster AND held.host = offers.host;
