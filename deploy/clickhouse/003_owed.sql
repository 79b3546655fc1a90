-- What is owed (P1; the words `demand` and `owed` of the glossary). Three step functions, one row a step, and views over
-- them: available GPUs by host, GPUs of allocated jobs queued or running, each budget's fraction of the whole.

CREATE TABLE IF NOT EXISTS capacity
(
    position UInt64,
    at_ms Int64,
    cluster LowCardinality(String),
    host String,
    gpus Int64,
    gpu_type LowCardinality(String)
)
ENGINE = MergeTree ORDER BY (host, position)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE TABLE IF NOT EXISTS demand
(
    position UInt64,
    at_ms Int64,
    job String,
    budget LowCardinality(String) COMMENT 'empty where the job finished',
    gpus Int64 COMMENT '0 where the job finished',
    finished Bool
)
ENGINE = MergeTree ORDER BY (job, position)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE TABLE IF NOT EXISTS shares
(
    position UInt64 COMMENT 'of the tree; a later tree replaces the whole earlier one',
    at_ms Int64,
    path String,
    fraction Float64 COMMENT 'of the whole: the product of the shares down the path',
    leaf Bool
)
ENGINE = MergeTree ORDER BY (position, path)
SETTINGS non_replicated_deduplication_window = 1000;

-- GPU-milliseconds available in each hour of [since_ms, until_ms), by the tree that was in force.
CREATE VIEW IF NOT EXISTS available_hourly AS
SELECT hour, tree, sum(gpus * length_ms) AS gpu_ms
FROM
(
    SELECT
        intDiv(at_ms, 3600000) AS hour,
        sum(delta) OVER (ORDER BY at_ms ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS gpus,
        max(tree_from) OVER (ORDER BY at_ms ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS tree,
        leadInFrame(at_ms, 1, {until_ms:Int64})
            OVER (ORDER BY at_ms ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) - at_ms AS length_ms
    FROM
    (
        SELECT at_ms, sum(delta) AS delta, max(tree_from) AS tree_from
        FROM
        (
            SELECT
                greatest(at_ms, {since_ms:Int64}) AS at_ms,
                gpus - lagInFrame(gpus, 1, 0) OVER (
                    PARTITION BY host ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
                ) AS delta,
                toUInt64(0) AS tree_from
            FROM capacity
            WHERE capacity.at_ms < {until_ms:Int64}
            UNION ALL
            SELECT greatest(at_ms, {since_ms:Int64}) AS at_ms, toInt64(0) AS delta, position AS tree_from
            FROM shares
            WHERE shares.at_ms < {until_ms:Int64}
            GROUP BY at_ms, position
            UNION ALL
            SELECT
                arrayJoin(arrayConcat([{since_ms:Int64}], arrayMap(
                    h -> toInt64(h * 3600000),
                    range(intDiv({since_ms:Int64}, 3600000) + 1, intDiv({until_ms:Int64} + 3599999, 3600000))
                ))) AS at_ms,
                toInt64(0) AS delta,
                toUInt64(0) AS tree_from
        )
        GROUP BY at_ms
    )
)
GROUP BY hour, tree;

-- GPU-milliseconds that allocated jobs wanted in each hour of [since_ms, until_ms), by leaf.
CREATE VIEW IF NOT EXISTS demand_hourly AS
SELECT hour, budget, sum(gpus * length_ms) AS gpu_ms
FROM
(
    SELECT
        intDiv(at_ms, 3600000) AS hour,
        budget,
        sum(delta) OVER (PARTITION BY budget ORDER BY at_ms ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS gpus,
        leadInFrame(at_ms, 1, {until_ms:Int64}) OVER (
            PARTITION BY budget ORDER BY at_ms ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
        ) - at_ms AS length_ms
    FROM
    (
        WITH jobs AS
        (
            SELECT
                anyIf(budget, NOT finished) AS budget,
                maxIf(gpus, NOT finished) AS gpus,
                minIf(at_ms, NOT finished) AS began,
                if(countIf(finished) > 0, minIf(at_ms, finished), {until_ms:Int64}) AS ended
            FROM demand
            WHERE demand.at_ms < {until_ms:Int64}
            GROUP BY job
            HAVING countIf(NOT finished) > 0 AND ended > {since_ms:Int64} AND ended > began
        )
        SELECT at_ms, budget, sum(delta) AS delta
        FROM
        (
            SELECT greatest(began, {since_ms:Int64}) AS at_ms, budget, gpus AS delta FROM jobs
            UNION ALL
            SELECT ended AS at_ms, budget, -gpus AS delta FROM jobs WHERE ended < {until_ms:Int64}
            UNION ALL
            SELECT
                arrayJoin(arrayMap(
                    h -> toInt64(h * 3600000),
                    range(intDiv({since_ms:Int64}, 3600000) + 1, intDiv({until_ms:Int64} + 3599999, 3600000))
                )) AS at_ms,
                budget,
                toInt64(0) AS delta
            FROM (SELECT DISTINCT budget FROM jobs)
        )
        GROUP BY at_ms, budget
    )
)
GROUP BY hour, budget;

-- Leaf by leaf and hour by hour: its share of what was available, what it wanted, and the smaller of the two.
CREATE VIEW IF NOT EXISTS owed_hourly AS
SELECT
    toDateTime(entitled.hour * 3600, 'UTC') AS hour,
    entitled.path AS path,
    entitled.gpu_ms AS entitlement_gpu_ms,
    wanted.gpu_ms AS demand_gpu_ms,
    least(entitled.gpu_ms, toFloat64(ifNull(wanted.gpu_ms, 0))) AS owed_gpu_ms
FROM
(
    SELECT available.hour AS hour, shares.path AS path, sum(shares.fraction * available.gpu_ms) AS gpu_ms
    FROM available_hourly(since_ms = {since_ms:Int64}, until_ms = {until_ms:Int64}) AS available
    INNER JOIN shares ON shares.position = available.tree
    WHERE shares.leaf
    GROUP BY hour, path
) AS entitled
LEFT JOIN demand_hourly(since_ms = {since_ms:Int64}, until_ms = {until_ms:Int64}) AS wanted
    ON wanted.hour = entitled.hour AND wanted.budget = entitled.path;
