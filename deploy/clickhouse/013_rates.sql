-- Budgets in the unit of account: what hours of GPU types cost (docs/decisions/0023-several-clusters.md). What the views of 002, 003 and
-- 008 have in GPU-time of whatever type, those at the end have weighed by the rates of each hour.

-- From which hour on which rates count, in thousandths by GPU type; a type that is not named costs 1,000. The first policy of a log
-- counts for all that came before it.
CREATE VIEW IF NOT EXISTS rate_eras AS
SELECT if(position = first_position, 0, said_hour) AS from_hour, argMax(said, position) AS rates
FROM
(
    SELECT
        position,
        min(position) OVER () AS first_position,
        intDiv(at_ms + 3599999, 3600000) AS said_hour,
        JSONExtract(payload, 'policy', 'rates_milli', 'Map(String, Int64)') AS said
    FROM facts FINAL
    WHERE kind = 'PolicyChanged'
)
GROUP BY from_hour;

-- Whether any type costs another than 1, or did.
CREATE VIEW IF NOT EXISTS has_rates AS
SELECT countIf(arrayExists(milli -> milli != 1000, mapValues(rates))) > 0 AS is_so FROM rate_eras;

-- The pool that each host is in: its cluster of hosts and its type. (The `cluster` of facts is the name of their log.)
CREATE VIEW IF NOT EXISTS host_pools AS
SELECT host, argMax(host_cluster, position) AS in_cluster, argMax(host_type, position) AS gpu_type
FROM
(
    SELECT
        position,
        JSONExtractString(arrayJoin(JSONExtractArrayRaw(payload, 'hosts')) AS spec, 'host') AS host,
        JSONExtractString(spec, 'cluster') AS host_cluster,
        JSONExtractString(spec, 'gpu_type') AS host_type
    FROM facts FINAL
    WHERE kind = 'HostRegistered'
)
GROUP BY host;

-- Jobs that name a type or a cluster. Empty: any.
CREATE TABLE IF NOT EXISTS job_pools
(
    job String CODEC(ZSTD(1)),
    position UInt64,
    gpu_type LowCardinality(String),
    in_cluster LowCardinality(String)
)
ENGINE = ReplacingMergeTree
ORDER BY (job, position)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE MATERIALIZED VIEW IF NOT EXISTS events_to_job_pools TO job_pools AS
SELECT
    job, position,
    JSONExtractString(payload, 'spec', 'gpu_type') AS gpu_type,
    JSONExtractString(payload, 'spec', 'cluster') AS in_cluster
FROM events
WHERE kind = 'JobAdmitted' AND (gpu_type != '' OR in_cluster != '');

INSERT INTO job_pools
SELECT
    job, position,
    JSONExtractString(payload, 'spec', 'gpu_type') AS gpu_type,
    JSONExtractString(payload, 'spec', 'cluster') AS in_cluster
FROM events
WHERE kind = 'JobAdmitted' AND (gpu_type != '' OR in_cluster != '');

-- Available GPU-time in [since_ms, until_ms) by hour, tree and type, as `available_hourly` has it of all types.
CREATE VIEW IF NOT EXISTS available_by_type_hourly AS
SELECT hour, tree, gpu_type, sum(gpus * length_ms) AS gpu_ms
FROM
(
    SELECT
        intDiv(at_ms, 3600000) AS hour,
        gpu_type,
        sum(delta) OVER so_far AS gpus,
        max(tree_from) OVER so_far AS tree,
        leadInFrame(at_ms, 1, {until_ms:Int64}) OVER (
            PARTITION BY gpu_type ORDER BY at_ms ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
        ) - at_ms AS length_ms
    FROM
    (
        WITH types AS (SELECT DISTINCT gpu_type FROM capacity)
        SELECT at_ms, gpu_type, sum(delta) AS delta, max(tree_from) AS tree_from
        FROM
        (
            SELECT
                greatest(at_ms, {since_ms:Int64}) AS at_ms,
                gpu_type,
                gpus - lagInFrame(gpus, 1, 0) OVER (
                    PARTITION BY host ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
                ) AS delta,
                toUInt64(0) AS tree_from
            FROM capacity
            WHERE capacity.at_ms < {until_ms:Int64}
            UNION ALL
            SELECT trees.at_ms, types.gpu_type, toInt64(0) AS delta, trees.position AS tree_from
            FROM
            (
                SELECT greatest(shares.at_ms, {since_ms:Int64}) AS at_ms, position
                FROM shares
                WHERE shares.at_ms < {until_ms:Int64}
                GROUP BY at_ms, position
            ) AS trees
            CROSS JOIN types
            UNION ALL
            SELECT hours.at_ms, types.gpu_type, toInt64(0) AS delta, toUInt64(0) AS tree_from
            FROM
            (
                SELECT arrayJoin(arrayConcat([{since_ms:Int64}], arrayMap(
                    h -> toInt64(h * 3600000),
                    range(intDiv({since_ms:Int64}, 3600000) + 1, intDiv({until_ms:Int64} + 3599999, 3600000))
                ))) AS at_ms
            ) AS hours
            CROSS JOIN types
        )
        GROUP BY at_ms, gpu_type
    )
    WINDOW so_far AS (PARTITION BY gpu_type ORDER BY at_ms ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
)
GROUP BY hour, tree, gpu_type;

-- Demand as `demand_hourly` has it, apart by the type and the cluster that jobs name.
CREATE VIEW IF NOT EXISTS demand_by_pool_hourly AS
SELECT hour, budget, gpu_type, in_cluster, sum(gpus * length_ms) AS gpu_ms
FROM
(
    SELECT
        intDiv(at_ms, 3600000) AS hour,
        budget, gpu_type, in_cluster,
        sum(delta) OVER (
            PARTITION BY budget, gpu_type, in_cluster ORDER BY at_ms ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS gpus,
        leadInFrame(at_ms, 1, {until_ms:Int64}) OVER (
            PARTITION BY budget, gpu_type, in_cluster ORDER BY at_ms
            ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
        ) - at_ms AS length_ms
    FROM
    (
        WITH wanted AS
        (
            SELECT
                anyIf(demand.budget, NOT finished) AS budget,
                maxIf(demand.gpus, NOT finished) AS gpus,
                minIf(demand.at_ms, NOT finished) AS began,
                if(countIf(finished) > 0, minIf(demand.at_ms, finished), {until_ms:Int64}) AS ended,
                any(named.gpu_type) AS gpu_type,
                any(named.in_cluster) AS in_cluster
            FROM demand
            LEFT JOIN (SELECT job, any(gpu_type) AS gpu_type, any(in_cluster) AS in_cluster FROM job_pools GROUP BY job) AS named
                ON named.job = demand.job
            WHERE demand.at_ms < {until_ms:Int64}
            GROUP BY demand.job
            HAVING countIf(NOT finished) > 0 AND ended > {since_ms:Int64} AND ended > began
        )
        SELECT at_ms, budget, gpu_type, in_cluster, sum(delta) AS delta
        FROM
        (
            SELECT greatest(began, {since_ms:Int64}) AS at_ms, budget, gpu_type, in_cluster, gpus AS delta FROM wanted
            UNION ALL
            SELECT ended, budget, gpu_type, in_cluster, -gpus FROM wanted WHERE ended < {until_ms:Int64}
            UNION ALL
            SELECT
                arrayJoin(arrayMap(
                    h -> toInt64(h * 3600000),
                    range(intDiv({since_ms:Int64}, 3600000) + 1, intDiv({until_ms:Int64} + 3599999, 3600000))
                )),
                budget, gpu_type, in_cluster, toInt64(0)
            FROM (SELECT DISTINCT budget, gpu_type, in_cluster FROM wanted)
        )
        GROUP BY at_ms, budget, gpu_type, in_cluster
    )
)
GROUP BY hour, budget, gpu_type, in_cluster;

-- Owed of every leaf, hour by hour, in GPU-milliseconds of account. A job wants GPUs at the rate of the cheapest type that it accepts.
CREATE VIEW IF NOT EXISTS owed_weighed_hourly AS
WITH
    eras AS (SELECT 1 AS one, from_hour, rates FROM rate_eras),
    entitled AS
    (
        SELECT available.hour AS hour, shares.path AS path, sum(shares.fraction * available.weighed) AS gpu_ms
        FROM
        (
            SELECT
                of_type.hour AS hour,
                of_type.tree AS tree,
                sum(of_type.gpu_ms * if(mapContains(eras.rates, of_type.gpu_type), eras.rates[of_type.gpu_type], 1000)) / 1000
                    AS weighed
            FROM
            (
                SELECT 1 AS one, hour, tree, toString(gpu_type) AS gpu_type, gpu_ms
                FROM available_by_type_hourly(since_ms = {since_ms:Int64}, until_ms = {until_ms:Int64})
            ) AS of_type
            ASOF LEFT JOIN eras ON eras.one = of_type.one AND of_type.hour >= eras.from_hour
            GROUP BY hour, tree
        ) AS available
        INNER JOIN shares ON shares.position = available.tree
        WHERE shares.leaf
        GROUP BY hour, path
    ),
    wanted AS
    (
        SELECT
            asked.hour AS hour,
            asked.budget AS budget,
            sum(asked.gpu_ms * arrayMin(arrayPushBack(
                arrayMap(
                    pool -> if(mapContains(eras.rates, pool.2), eras.rates[pool.2], 1000),
                    arrayFilter(
                        pool -> if(asked.gpu_type = '', pool.2 != 'CPU', pool.2 = asked.gpu_type)
                            AND asked.in_cluster IN ('', pool.1),
                        (SELECT groupUniqArray((in_cluster, gpu_type)) FROM host_pools)
                    )
                ),
                1000000
            ))) / 1000 AS gpu_ms
        FROM
        (
            SELECT 1 AS one, hour, budget, toString(gpu_type) AS gpu_type, toString(in_cluster) AS in_cluster, gpu_ms
            FROM demand_by_pool_hourly(since_ms = {since_ms:Int64}, until_ms = {until_ms:Int64})
        ) AS asked
        ASOF LEFT JOIN eras ON eras.one = asked.one AND asked.hour >= eras.from_hour
        GROUP BY hour, budget
    )
SELECT
    toDateTime(entitled.hour * 3600, 'UTC') AS hour,
    entitled.path AS path,
    entitled.gpu_ms AS entitlement_gpu_ms,
    wanted.gpu_ms AS demand_gpu_ms,
    least(entitled.gpu_ms, ifNull(wanted.gpu_ms, 0)) AS owed_gpu_ms
FROM entitled
LEFT JOIN wanted ON wanted.hour = entitled.hour AND wanted.budget = entitled.path;

-- Occupancy in [since_ms, until_ms) by hour, budget and user, from the rows, in thousandths of GPU-milliseconds of account: each hour
-- has its own rates. Nothing is read where there are none.
CREATE VIEW IF NOT EXISTS usage_weighed_hourly AS
WITH eras AS (SELECT 1 AS one, from_hour, rates FROM rate_eras)
SELECT
    toDateTime(hour_number * 3600, 'UTC') AS hour,
    budget, user, charged,
    sum(toInt128(part_gpu_ms) * milli) AS milli_gpu_ms,
    -sumIf(toInt128(part_gpu_ms) * milli, kind = 'refund') AS refunded_milli_gpu_ms
FROM
(
    SELECT
        held.hour_number AS hour_number,
        held.budget AS budget,
        held.user AS user,
        held.charged AS charged,
        held.kind AS kind,
        held.part_gpu_ms AS part_gpu_ms,
        if(mapContains(eras.rates, held.gpu_type), eras.rates[held.gpu_type], 1000) AS milli
    FROM
    (
        SELECT
            1 AS one,
            rows.hour_number AS hour_number,
            rows.budget AS budget,
            rows.user AS user,
            rows.charged AS charged,
            rows.kind AS kind,
            rows.part_gpu_ms AS part_gpu_ms,
            if(rows.kind = 'refund', of_run.gpu_type, of_host.gpu_type) AS gpu_type
        FROM
        (
            SELECT
                intDiv(since_ms, 3600000) AS hour_number,
                budget, user, charged, kind,
                toString(host) AS of,
                if(kind = 'refund', run, '') AS refunded_run,
                sum(if(
                    since_ms >= {since_ms:Int64} AND until_ms <= {until_ms:Int64},
                    gpu_ms,
                    intDiv(
                        gpu_ms * (least(until_ms, {until_ms:Int64}) - greatest(since_ms, {since_ms:Int64})),
                        until_ms - since_ms
                    )
                )) AS part_gpu_ms
            FROM occupancy
            WHERE hour >= toDateTime(intDiv({since_ms:Int64}, 3600000) * 3600, 'UTC')
              AND hour < toDateTime(intDiv({until_ms:Int64} + 3599999, 3600000) * 3600, 'UTC')
              AND since_ms < {until_ms:Int64}
              AND until_ms > {since_ms:Int64}
              AND (SELECT is_so FROM has_rates)
            GROUP BY hour_number, budget, user, charged, kind, of, refunded_run
        ) AS rows
        LEFT JOIN host_pools AS of_host ON of_host.host = rows.of
        LEFT JOIN
        (
            SELECT run_hosts.run AS run, any(host_pools.gpu_type) AS gpu_type
            FROM run_hosts
            INNER JOIN host_pools ON host_pools.host = toString(run_hosts.host)
            WHERE run_hosts.run IN
            (
                SELECT run
                FROM occupancy
                WHERE kind = 'refund'
                  AND hour >= toDateTime(intDiv({since_ms:Int64}, 3600000) * 3600, 'UTC')
                  AND hour < toDateTime(intDiv({until_ms:Int64} + 3599999, 3600000) * 3600, 'UTC')
            )
            GROUP BY run
        ) AS of_run ON of_run.run = rows.refunded_run
    ) AS held
    ASOF LEFT JOIN eras ON eras.one = held.one AND held.hour_number >= eras.from_hour
)
GROUP BY hour, budget, user, charged;

-- What is asked: the views of 002, 003 and 008 in the unit of account; without rates just those.

CREATE VIEW IF NOT EXISTS owed_account_hourly AS
SELECT hour, path, entitlement_gpu_ms, toFloat64(demand_gpu_ms) AS demand_gpu_ms, owed_gpu_ms
FROM owed_hourly(since_ms = {since_ms:Int64}, until_ms = {until_ms:Int64})
WHERE NOT (SELECT is_so FROM has_rates)
UNION ALL
SELECT hour, path, entitlement_gpu_ms, toFloat64(demand_gpu_ms), owed_gpu_ms
FROM owed_weighed_hourly(since_ms = {since_ms:Int64}, until_ms = {until_ms:Int64})
WHERE (SELECT is_so FROM has_rates);

-- Rounded to the nearest millisecond.
CREATE VIEW IF NOT EXISTS window_usage_account AS
SELECT budget, user, charged, gpu_ms, refunded_gpu_ms
FROM window_usage(since_ms = {since_ms:Int64}, until_ms = {until_ms:Int64})
WHERE NOT (SELECT is_so FROM has_rates)
UNION ALL
SELECT
    budget, user, charged,
    toInt64(intDiv(sum(milli_gpu_ms) + 500, 1000)),
    toInt64(intDiv(sum(refunded_milli_gpu_ms) + 500, 1000))
FROM usage_weighed_hourly(since_ms = {since_ms:Int64}, until_ms = {until_ms:Int64})
GROUP BY budget, user, charged;

CREATE VIEW IF NOT EXISTS charged_account_hourly AS
SELECT hour, budget, sum(held.charged_gpu_ms) AS charged_gpu_ms
FROM held_hourly(since_ms = {since_ms:Int64}, until_ms = {until_ms:Int64}) AS held
WHERE NOT (SELECT is_so FROM has_rates)
GROUP BY hour, budget
UNION ALL
SELECT hour, budget, toInt64(intDiv(sumIf(milli_gpu_ms, charged) + 500, 1000))
FROM usage_weighed_hourly(since_ms = {since_ms:Int64}, until_ms = {until_ms:Int64})
GROUP BY hour, budget;
