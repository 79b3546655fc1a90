-- Occupancy as the hosts report it (P2), append-only. `segment`: a run held `gpus` of a host during [since_ms, until_ms).
-- `refund`: a host fault took it back; gpu_ms is negative, spread evenly over [since_ms, until_ms): it was occupied, is
-- neither charged nor delivered, and counts as infrastructure loss. No row crosses a full hour (UTC).

CREATE TABLE IF NOT EXISTS occupancy
(
    kind LowCardinality(String),
    position UInt64 CODEC(Delta, ZSTD(1)),
    cluster LowCardinality(String),
    host LowCardinality(String),
    run String CODEC(ZSTD(1)),
    job String CODEC(ZSTD(1)),
    budget LowCardinality(String),
    user LowCardinality(String),
    charged Bool,
    gpus Int64,
    since_ms Int64 CODEC(Delta, ZSTD(1)),
    until_ms Int64 CODEC(Delta, ZSTD(1)),
    gpu_ms Int64,
    busy_milli Nullable(Int64) COMMENT 'mean utilisation of the GPUs in thousandths, NULL where it is unknown',
    hour DateTime('UTC') DEFAULT toDateTime(intDiv(since_ms, 3600000) * 3600, 'UTC') CODEC(Delta, ZSTD(1)),
    INDEX position_index position TYPE minmax GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(hour)
ORDER BY (hour, budget, user, charged, since_ms)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE TABLE IF NOT EXISTS occupancy_hourly
(
    hour DateTime('UTC'),
    cluster LowCardinality(String),
    budget LowCardinality(String),
    user LowCardinality(String),
    charged Bool,
    kind LowCardinality(String),
    gpu_ms Int64,
    measured_gpu_ms Int64 COMMENT 'the part of gpu_ms whose utilisation is known',
    busy_gpu_ms Int64 COMMENT 'that part times its utilisation',
    last_position SimpleAggregateFunction(max, UInt64)
)
ENGINE = SummingMergeTree((gpu_ms, measured_gpu_ms, busy_gpu_ms))
PARTITION BY toYYYYMM(hour)
ORDER BY (hour, cluster, budget, user, charged, kind)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE MATERIALIZED VIEW IF NOT EXISTS occupancy_to_hourly TO occupancy_hourly AS
SELECT
    toDateTime(intDiv(since_ms, 3600000) * 3600, 'UTC') AS hour,
    cluster,
    budget,
    user,
    charged,
    kind,
    sum(rows.gpu_ms) AS gpu_ms,
    sumIf(rows.gpu_ms, busy_milli IS NOT NULL) AS measured_gpu_ms,
    intDiv(sum(rows.gpu_ms * ifNull(busy_milli, 0)), 1000) AS busy_gpu_ms,
    max(position) AS last_position
FROM occupancy AS rows
GROUP BY hour, cluster, budget, user, charged, kind;

-- Exactly what was occupied during [since_ms, until_ms): whole hours from the rollup, the two edges from the rows.
-- Of charged time gpu_ms is net of refunds, and refunded_gpu_ms says how much they were.
CREATE VIEW IF NOT EXISTS window_usage AS
SELECT budget, user, charged, sum(part_gpu_ms) AS gpu_ms, -sumIf(part_gpu_ms, kind = 'refund') AS refunded_gpu_ms
FROM
(
    SELECT budget, user, charged, kind, gpu_ms AS part_gpu_ms
    FROM occupancy_hourly
    WHERE hour >= toDateTime(intDiv({since_ms:Int64} + 3599999, 3600000) * 3600, 'UTC')
      AND hour < toDateTime(intDiv({until_ms:Int64}, 3600000) * 3600, 'UTC')
    UNION ALL
    SELECT
        budget, user, charged, kind,
        if(
            since_ms >= {since_ms:Int64} AND until_ms <= {until_ms:Int64},
            gpu_ms,
            intDiv(
                gpu_ms * (least(until_ms, {until_ms:Int64}) - greatest(since_ms, {since_ms:Int64})),
                until_ms - since_ms
            )
        ) AS part_gpu_ms
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
GROUP BY budget, user, charged;
