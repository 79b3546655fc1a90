-- Every fact of one log, in its order. Written by the journal in batches: `batch` is the first position of a row's batch.
-- A batch is one block inside one month, so it is there whole or not at all; its token is made of `batch`.

CREATE TABLE IF NOT EXISTS journal_log
(
    identity String,
    at DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = MergeTree ORDER BY at;

CREATE TABLE IF NOT EXISTS events
(
    position UInt64 CODEC(Delta, ZSTD(1)),
    at_ms Int64 CODEC(Delta, ZSTD(1)),
    at DateTime64(3, 'UTC') ALIAS fromUnixTimestamp64Milli(at_ms, 'UTC'),
    cluster LowCardinality(String),
    kind LowCardinality(String),
    id String CODEC(ZSTD(1)),
    job String CODEC(ZSTD(1)),
    run String CODEC(ZSTD(1)),
    host String CODEC(ZSTD(1)),
    budget LowCardinality(String),
    by String COMMENT 'the job, host or user that asked for it' CODEC(ZSTD(1)),
    cause String CODEC(ZSTD(1)),
    payload String COMMENT 'the whole fact as JSON' CODEC(ZSTD(3)),
    batch UInt64 CODEC(Delta, ZSTD(1)),
    INDEX job_index job TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_index by TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(fromUnixTimestamp64Milli(at_ms, 'UTC'))
ORDER BY position
SETTINGS non_replicated_deduplication_window = 1000;
