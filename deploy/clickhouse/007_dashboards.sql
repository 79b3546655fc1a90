-- What dashboards ask for, in the order in which they ask. Everything here follows from `events` and `occupancy`, a row for
-- a row of theirs and named by its position: rows that are written twice (a view while this file fills the past, a batch that is
-- written again) are one. Read these tables with FINAL.

-- Facts by kind and time. Heartbeats, most of a log, are left out, and so is what nobody asks for of rankings and starts.
CREATE TABLE IF NOT EXISTS facts
(
    kind LowCardinality(String),
    at_ms Int64 CODEC(Delta, ZSTD(1)),
    position UInt64 CODEC(Delta, ZSTD(1)),
    cluster LowCardinality(String),
    job String CODEC(ZSTD(1)),
    run String CODEC(ZSTD(1)),
    host LowCardinality(String),
    by String CODEC(ZSTD(1)),
    reason LowCardinality(String),
    payload String COMMENT 'the whole fact; empty where only its instant is asked for' CODEC(ZSTD(3))
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(fromUnixTimestamp64Milli(at_ms, 'UTC'))
ORDER BY (kind, at_ms, position)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE MATERIALIZED VIEW IF NOT EXISTS events_to_facts TO facts AS
SELECT
    kind, at_ms, position, cluster, job, run, host, by,
    if(kind = 'RankingPublished', '', JSONExtractString(events.payload, 'why', 'reason')) AS reason,
    if(kind IN ('JobSubmitted', 'JobAdmitted', 'JobRequeued', 'RunAssigned', 'RunStarted', 'RunPreemptionRequested',
        'PlacementDeferred', 'RankingPublished'), '', events.payload) AS payload
FROM events
WHERE kind NOT IN ('Heartbeat', 'ReplicasStarted', 'ReplicasExited', 'CheckpointReported');

INSERT INTO facts
SELECT
    kind, at_ms, position, cluster, job, run, host, by,
    if(kind = 'RankingPublished', '', JSONExtractString(events.payload, 'why', 'reason')) AS reason,
    if(kind IN ('JobSubmitted', 'JobAdmitted', 'JobRequeued', 'RunAssigned', 'RunStarted', 'RunPreemptionRequested',
        'PlacementDeferred', 'RankingPublished'), '', events.payload) AS payload
FROM events
WHERE kind NOT IN ('Heartbeat', 'ReplicasStarted', 'ReplicasExited', 'CheckpointReported');

-- Every admitted job.
CREATE TABLE IF NOT EXISTS jobs
(
    position UInt64,
    cluster LowCardinality(String),
    job String CODEC(ZSTD(1)),
    submitted_ms Int64,
    budget LowCardinality(String),
    user LowCardinality(String),
    gpus Int64,
    min_runtime_ms Int64 COMMENT '0: unallocated'
)
ENGINE = ReplacingMergeTree
ORDER BY (submitted_ms, position)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE MATERIALIZED VIEW IF NOT EXISTS events_to_jobs TO jobs AS
SELECT
    position, cluster, job,
    JSONExtractInt(payload, 'submitted_at') AS submitted_ms,
    budget,
    JSONExtractString(payload, 'spec', 'user') AS user,
    JSONExtractInt(payload, 'spec', 'replicas') * JSONExtractInt(payload, 'spec', 'gpus_per_replica') AS gpus,
    JSONExtractInt(payload, 'spec', 'min_runtime_ms') AS min_runtime_ms
FROM events
WHERE kind = 'JobAdmitted';

INSERT INTO jobs
SELECT
    position, cluster, job,
    JSONExtractInt(payload, 'submitted_at') AS submitted_ms,
    budget,
    JSONExtractString(payload, 'spec', 'user') AS user,
    JSONExtractInt(payload, 'spec', 'replicas') * JSONExtractInt(payload, 'spec', 'gpus_per_replica') AS gpus,
    JSONExtractInt(payload, 'spec', 'min_runtime_ms') AS min_runtime_ms
FROM events
WHERE kind = 'JobAdmitted';

-- What every run held of each of its hosts, from its start on.
CREATE TABLE IF NOT EXISTS run_hosts
(
    cluster LowCardinality(String),
    host LowCardinality(String),
    started_ms Int64,
    position UInt64,
    run String CODEC(ZSTD(1)),
    gpus Int64
)
ENGINE = ReplacingMergeTree
ORDER BY (cluster, host, started_ms, position)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE MATERIALIZED VIEW IF NOT EXISTS events_to_run_hosts TO run_hosts AS
SELECT
    cluster,
    (arrayJoin(JSONExtractKeysAndValuesRaw(payload, 'hosts')) AS held).1 AS host,
    at_ms AS started_ms,
    position,
    run,
    toInt64(JSONLength(held.2)) AS gpus
FROM events
WHERE kind = 'RunStarted';

INSERT INTO run_hosts
SELECT
    cluster,
    (arrayJoin(JSONExtractKeysAndValuesRaw(payload, 'hosts')) AS held).1 AS host,
    at_ms AS started_ms,
    position,
    run,
    toInt64(JSONLength(held.2)) AS gpus
FROM events
WHERE kind = 'RunStarted';

-- The numbers of each budget's ratio (P3) as they were last published in each five minutes.
CREATE TABLE IF NOT EXISTS standings
(
    cluster LowCardinality(String),
    path LowCardinality(String),
    period DateTime('UTC') CODEC(Delta, ZSTD(1)),
    at_ms Int64 CODEC(Delta, ZSTD(1)),
    position UInt64 CODEC(Delta, ZSTD(1)),
    charged_gpu_ms Int64,
    commitment_gpu_ms Int64,
    entitlement_gpu_ms Int64
)
ENGINE = ReplacingMergeTree(position)
PARTITION BY toYYYYMM(period)
ORDER BY (period, cluster, path)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE MATERIALIZED VIEW IF NOT EXISTS events_to_standings TO standings AS
SELECT
    cluster,
    JSONExtractString(arrayJoin(JSONExtractArrayRaw(payload, 'standings')) AS standing, 'path') AS path,
    toDateTime(intDiv(at_ms, 300000) * 300, 'UTC') AS period,
    at_ms,
    position,
    JSONExtractInt(standing, 'charged_gpu_ms') AS charged_gpu_ms,
    JSONExtractInt(standing, 'commitment_gpu_ms') AS commitment_gpu_ms,
    JSONExtractInt(standing, 'entitlement_gpu_ms') AS entitlement_gpu_ms
FROM events
WHERE kind = 'RankingPublished';

INSERT INTO standings
SELECT
    cluster,
    JSONExtractString(arrayJoin(JSONExtractArrayRaw(payload, 'standings')) AS standing, 'path') AS path,
    toDateTime(intDiv(at_ms, 300000) * 300, 'UTC') AS period,
    at_ms,
    position,
    JSONExtractInt(standing, 'charged_gpu_ms') AS charged_gpu_ms,
    JSONExtractInt(standing, 'commitment_gpu_ms') AS commitment_gpu_ms,
    JSONExtractInt(standing, 'entitlement_gpu_ms') AS entitlement_gpu_ms
FROM events
WHERE kind = 'RankingPublished';

-- What each run held of each host at every full quarter of an hour: what is free, and in how many pieces.
CREATE TABLE IF NOT EXISTS held_samples
(
    at DateTime('UTC') CODEC(Delta, ZSTD(1)),
    cluster LowCardinality(String),
    host LowCardinality(String),
    position UInt64 CODEC(Delta, ZSTD(1)),
    since_ms Int64 CODEC(Delta, ZSTD(1)),
    run String CODEC(ZSTD(1)),
    gpus Int64
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(at)
ORDER BY (at, cluster, host, position, run, since_ms)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE MATERIALIZED VIEW IF NOT EXISTS occupancy_to_held_samples TO held_samples AS
SELECT
    toDateTime(
        arrayJoin(range(toUInt64(intDiv(since_ms + 899999, 900000)), toUInt64(intDiv(until_ms + 899999, 900000)))) * 900,
        'UTC'
    ) AS at,
    cluster, host, position, since_ms, run,
    sum(rows.gpus) AS gpus
FROM occupancy AS rows
WHERE kind = 'segment'
GROUP BY at, cluster, host, position, run, since_ms;

INSERT INTO held_samples
SELECT
    toDateTime(
        arrayJoin(range(toUInt64(intDiv(since_ms + 899999, 900000)), toUInt64(intDiv(until_ms + 899999, 900000)))) * 900,
        'UTC'
    ) AS at,
    cluster, host, position, since_ms, run,
    sum(rows.gpus) AS gpus
FROM occupancy AS rows
WHERE kind = 'segment'
GROUP BY at, cluster, host, position, run, since_ms;

-- Queries of some days need not look at the months around them: instants go with positions.
ALTER TABLE events ADD INDEX IF NOT EXISTS at_index at_ms TYPE minmax GRANULARITY 1;
