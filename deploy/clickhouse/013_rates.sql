-- Budgets in the unit of account: what hours of GPU types cost (docs/decisions/0023-several-clusters.md). What the views of 002, 003 and
-- 008 have in GPU-time of whatever type, those at the end have weighed by the rates of each hour.

-- What an hour of a type costs, in thousandths, while no rate names it, as `tenure/domain/rates.py` has it; of all others 1,000.
CREATE VIEW IF NOT EXISTS default_rates AS
SELECT CAST(map('CPU', 20), 'Map(String, Int64)') AS rates;

-- From which hour on which rates count, in thousandths by GPU type; a type that is not in the map costs 1,000. The first policy of a log
-- counts for all that came before it.
CREATE VIEW IF NOT EXISTS rate_eras AS
SELECT
    if(position = first_position, 0, said_hour) AS from_hour,
    mapUpdate((SELECT rates FROM default_rates), argMax(said, position)) AS rates
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
GROUP BY from_hour
UNION ALL
SELECT 0, rates
FROM default_rates
WHERE notEmpty(rates) AND (SELECT count() FROM facts WHERE kind = 'PolicyChanged') = 0;

-- Whether a type that there is costs another than 1, or did.
CREATE VIEW IF NOT EXISTS has_rates AS
SELECT countIf(arrayExists(of -> if(mapContains(rates, of), rates[of], 1000) != 1000, types)) > 0 AS is_so
FROM rate_eras
CROSS JOIN (SELECT groupUniqArray(toString(gpu_type)) AS types FROM capacity) AS there;

-- The GPU type of each host from when on: a host may come back under its old name with another one. The first it had counts before that.
CREATE VIEW IF NOT EXISTS host_types AS
SELECT host, from_ms, argMax(gpu_type, position) AS gpu_type
FROM
(
    SELECT
        host, position,
        if(position = min(position) OVER (PARTITION BY host), 0, at_ms) AS from_ms,
        toString(capacity.gpu_type) AS gpu_type
    FROM capacity
)
GROUP BY host, from_ms;

-- What hosts offer: so many GPUs more or less from `at_ms` on of a pool, which is a cluster of hosts and a type. A host that changes its
-- pool leaves the one and comes to the other. (The `cluster` of facts is the name of their log.)
CREATE VIEW IF NOT EXISTS pool_steps AS
SELECT at_ms, (arrayJoin([(old_cluster, old_type, -old_gpus), (new_cluster, new_type, new_gpus)]) AS step).1 AS in_cluster,
    step.2 AS gpu_type, step.3 AS delta
FROM
(
    SELECT
        at_ms, new_cluster, new_type, new_gpus,
        lagInFrame(new_cluster) OVER each_host AS old_cluster,
        lagInFrame(new_type) OVER each_host AS old_type,
        lagInFrame(new_gpus) OVER each_host AS old_gpus
    FROM
    (
        SELECT
            host, position, at_ms,
            argMaxIf(in_cluster, position, registers) OVER so_far AS new_cluster,
            argMaxIf(gpu_type, position, NOT registers) OVER so_far AS new_type,
            argMaxIf(gpus, position, NOT registers) OVER so_far AS new_gpus
        FROM
        (
            SELECT host, position, at_ms, false AS registers, '' AS in_cluster, toString(capacity.gpu_type) AS gpu_type, gpus
            FROM capacity
            UNION ALL
            SELECT
                JSONExtractString(arrayJoin(JSONExtractArrayRaw(payload, 'hosts')) AS spec, 'host'),
                position, at_ms, true, JSONExtractString(spec, 'cluster'), '', toInt64(0)
            FROM facts FINAL
            WHERE kind = 'HostRegistered'
        )
        WINDOW so_far AS (PARTITION BY host ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
    )
    WINDOW each_host AS (PARTITION BY host ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
)
WHERE delta != 0 AND (old_cluster, old_type, old_gpus) != (new_cluster, new_type, new_gpus);

-- The pools that offered anything in each hour that [since_ms, until_ms) touches.
CREATE VIEW IF NOT EXISTS pools_hourly AS
SELECT hour, groupUniqArray((in_cluster, gpu_type)) AS pools
FROM
(
    SELECT
        in_cluster, gpu_type,
        arrayJoin(range(
            toUInt64(greatest(intDiv(at_ms, 3600000), intDiv({since_ms:Int64}, 3600000))),
            toUInt64(least(intDiv(gone_ms + 3599999, 3600000), intDiv({until_ms:Int64} + 3599999, 3600000)))
        )) AS hour
    FROM
    (
        SELECT
            in_cluster, gpu_type, at_ms,
            sum(change) OVER (
                PARTITION BY in_cluster, gpu_type ORDER BY at_ms ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
            ) AS gpus,
            leadInFrame(at_ms, 1, {until_ms:Int64} + 3600000) OVER (
                PARTITION BY in_cluster, gpu_type ORDER BY at_ms ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
            ) AS gone_ms
        FROM (SELECT at_ms, in_cluster, gpu_type, sum(delta) AS change FROM pool_steps GROUP BY at_ms, in_cluster, gpu_type)
    )
    WHERE gpus > 0 AND gone_ms > {since_ms:Int64} - 3600000 AND at_ms < {until_ms:Int64} + 3600000
)
GROUP BY hour;

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
        WITH types AS (SELECT DISTINCT toString(capacity.gpu_type) AS gpu_type FROM capacity)
        SELECT at_ms, gpu_type, sum(delta) AS delta, max(tree_from) AS tree_from
        FROM
        (
            SELECT greatest(steps.at_ms, {since_ms:Int64}) AS at_ms, gpu_type, steps.delta AS delta, toUInt64(0) AS tree_from
            FROM pool_steps AS steps
            WHERE steps.at_ms < {until_ms:Int64}
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

-- Owed of every leaf, hour by hour, in GPU-milliseconds of account. A job wants GPUs at the rate of the type that it names, or of
-- the cheapest that it accepts of those that were offered in that hour; of none at 1.
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
            sum(asked.gpu_ms * arrayMin(
                arrayMap(of -> if(mapContains(eras.rates, of), eras.rates[of], 1000), if(empty(asked.types), [''], asked.types))
            )) / 1000 AS gpu_ms
        FROM
        (
            SELECT
                1 AS one,
                named.hour AS hour,
                named.budget AS budget,
                named.gpu_ms AS gpu_ms,
                if(
                    named.gpu_type != '',
                    [toString(named.gpu_type)],
                    arrayMap(
                        pool -> pool.2,
                        arrayFilter(pool -> pool.2 != 'CPU' AND toString(named.in_cluster) IN ('', pool.1), offered.pools)
                    )
                ) AS types
            FROM demand_by_pool_hourly(since_ms = {since_ms:Int64}, until_ms = {until_ms:Int64}) AS named
            LEFT JOIN pools_hourly(since_ms = {since_ms:Int64}, until_ms = {until_ms:Int64}) AS offered
                ON toInt64(offered.hour) = named.hour
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

-- Occupancy by hour, host and run, kept for ever: rates and types are looked up when it is asked for. `gpu_ms` is the sum of the rows that
-- came since its view was there, the first of them at `first_position`; `before` has a position, and the sum of all rows below it, which were
-- there when this file was applied: where that is done twice, the later counts. What lies between the two positions is read from the rows.
CREATE TABLE IF NOT EXISTS occupancy_by_run_hourly
(
    hour DateTime('UTC') CODEC(Delta, ZSTD(1)),
    host LowCardinality(String) COMMENT 'empty in refunds',
    run String CODEC(ZSTD(1)),
    budget LowCardinality(String),
    user LowCardinality(String),
    charged Bool,
    kind LowCardinality(String),
    since_ms SimpleAggregateFunction(min, Int64) CODEC(ZSTD(1)),
    gpu_ms SimpleAggregateFunction(sum, Int64) CODEC(ZSTD(1)),
    first_position SimpleAggregateFunction(min, UInt64) CODEC(ZSTD(1)),
    before SimpleAggregateFunction(max, Tuple(UInt64, Int64)) CODEC(ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(hour)
ORDER BY (hour, host, run, budget, user, charged, kind)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE MATERIALIZED VIEW IF NOT EXISTS occupancy_to_by_run_hourly TO occupancy_by_run_hourly AS
SELECT
    toDateTime(intDiv(rows.since_ms, 3600000) * 3600, 'UTC') AS hour,
    host, run, budget, user, charged, kind,
    min(rows.since_ms) AS since_ms,
    sum(rows.gpu_ms) AS gpu_ms,
    min(position) AS first_position,
    (toUInt64(0), toInt64(0)) AS before
FROM occupancy AS rows
GROUP BY hour, host, run, budget, user, charged, kind;

-- Only batches that are complete: a journal begins one when all before it are everywhere, and may write its last one again.
INSERT INTO occupancy_by_run_hourly
WITH
    (
        SELECT least(
            (SELECT max(batch) FROM events),
            (SELECT ifNull(minOrNull(first_position), 18446744073709551615) FROM occupancy_by_run_hourly)
        )
    ) AS cut
SELECT
    toDateTime(intDiv(rows.since_ms, 3600000) * 3600, 'UTC') AS hour,
    host, run, budget, user, charged, kind,
    min(rows.since_ms) AS since_ms,
    toInt64(0) AS gpu_ms,
    18446744073709551615 AS first_position,
    (toUInt64(cut), sum(rows.gpu_ms)) AS before
FROM occupancy AS rows
WHERE position < cut
GROUP BY hour, host, run, budget, user, charged, kind;

-- Occupancy in [since_ms, until_ms) by hour, budget and user, in thousandths of GPU-milliseconds of account: each hour has its own rates,
-- and each host the type it had then. Whole hours from the rollup, the two edges from the rows. Nothing is read where there are no rates.
CREATE VIEW IF NOT EXISTS usage_weighed_hourly AS
WITH
    eras AS (SELECT 1 AS one, from_hour, rates FROM rate_eras),
    toDateTime(intDiv({since_ms:Int64}, 3600000) * 3600, 'UTC') AS first_hour,
    toDateTime(intDiv({since_ms:Int64} + 3599999, 3600000) * 3600, 'UTC') AS whole_since,
    toDateTime(intDiv({until_ms:Int64}, 3600000) * 3600, 'UTC') AS whole_until,
    toDateTime(intDiv({until_ms:Int64} + 3599999, 3600000) * 3600, 'UTC') AS end_hour,
    (
        SELECT (max(before).1, ifNull(minOrNull(first_position), 18446744073709551615))
        FROM occupancy_by_run_hourly
        WHERE hour >= first_hour AND hour < end_hour
    ) AS rolled
SELECT
    toDateTime(hour_number * 3600, 'UTC') AS hour,
    budget, user, charged,
    sum(toInt128(part_gpu_ms) * milli) AS milli_gpu_ms,
    -sumIf(toInt128(part_gpu_ms) * milli, kind = 'refund') AS refunded_milli_gpu_ms
FROM
(
    SELECT
        typed.hour_number AS hour_number,
        typed.budget AS budget,
        typed.user AS user,
        typed.charged AS charged,
        typed.kind AS kind,
        typed.part_gpu_ms AS part_gpu_ms,
        if(mapContains(eras.rates, typed.gpu_type), eras.rates[typed.gpu_type], 1000) AS milli
    FROM
    (
        SELECT
            1 AS one,
            held.hour_number AS hour_number,
            held.budget AS budget,
            held.user AS user,
            held.charged AS charged,
            held.kind AS kind,
            held.part_gpu_ms AS part_gpu_ms,
            host_types.gpu_type AS gpu_type
        FROM
        (
            SELECT
                parts.hour_number AS hour_number,
                parts.budget AS budget,
                parts.user AS user,
                parts.charged AS charged,
                parts.kind AS kind,
                parts.part_gpu_ms AS part_gpu_ms,
                if(parts.kind = 'refund', of_run.first_host, parts.of_host) AS host,
                if(parts.kind = 'refund', of_run.began_ms, parts.from_ms) AS from_ms
            FROM
            (
                SELECT
                    toInt64(intDiv(toUnixTimestamp(hour), 3600)) AS hour_number,
                    budget, user, charged, kind,
                    toString(host) AS of_host,
                    if(kind = 'refund', run, '') AS refunded_run,
                    min(since_ms) AS from_ms,
                    sum(gpu_ms) + max(before).2 AS part_gpu_ms
                FROM occupancy_by_run_hourly
                WHERE hour >= whole_since AND hour < whole_until AND (SELECT is_so FROM has_rates)
                GROUP BY hour, host, run, budget, user, charged, kind
                UNION ALL
                SELECT
                    intDiv(since_ms, 3600000) AS hour_number,
                    budget, user, charged, kind,
                    toString(host) AS of_host,
                    if(kind = 'refund', run, '') AS refunded_run,
                    since_ms AS from_ms,
                    if(
                        since_ms >= {since_ms:Int64} AND until_ms <= {until_ms:Int64},
                        gpu_ms,
                        intDiv(
                            gpu_ms * (least(until_ms, {until_ms:Int64}) - greatest(since_ms, {since_ms:Int64})),
                            until_ms - since_ms
                        )
                    ) AS part_gpu_ms
                FROM occupancy
                WHERE ((hour >= first_hour AND hour < whole_since) OR (hour >= whole_until AND hour < end_hour))
                  AND since_ms < {until_ms:Int64}
                  AND until_ms > {since_ms:Int64}
                  AND (SELECT is_so FROM has_rates)
                UNION ALL
                SELECT
                    intDiv(since_ms, 3600000),
                    budget, user, charged, kind,
                    toString(host),
                    if(kind = 'refund', run, ''),
                    since_ms,
                    gpu_ms
                FROM occupancy
                WHERE hour >= whole_since AND hour < whole_until
                  AND position >= rolled.1
                  AND position < rolled.2
                  AND (SELECT is_so FROM has_rates)
            ) AS parts
            LEFT JOIN
            (
                SELECT run, any(toString(host)) AS first_host, min(started_ms) AS began_ms
                FROM run_hosts
                WHERE run IN
                (
                    SELECT run
                    FROM occupancy_by_run_hourly
                    WHERE hour >= first_hour AND hour < end_hour AND kind = 'refund' AND (SELECT is_so FROM has_rates)
                    UNION ALL
                    SELECT run
                    FROM occupancy
                    WHERE hour >= first_hour AND hour < end_hour
                      AND position >= rolled.1
                      AND position < rolled.2
                      AND kind = 'refund'
                      AND (SELECT is_so FROM has_rates)
                )
                GROUP BY run
            ) AS of_run ON of_run.run = parts.refunded_run
        ) AS held
        ASOF LEFT JOIN host_types ON host_types.host = held.host AND held.from_ms >= host_types.from_ms
    ) AS typed
    ASOF LEFT JOIN eras ON eras.one = typed.one AND typed.hour_number >= eras.from_hour
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
