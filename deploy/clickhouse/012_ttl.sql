-- What is kept for how long: heartbeats 30 days, occupancy two years, all other facts and the rollups for ever. It counts from when a
-- row was written, by the server's clock: what a fact says of its time is its sender's word, and a batch that was written is
-- looked at again. Rows of before this file count from now. Nothing here waits for the rows that are there, and all of it may run
-- while a journal writes.

-- A part is written anew without its old heartbeats once a week at most: so one of a month is, some five times.
ALTER TABLE events MODIFY SETTING merge_with_ttl_timeout = 604800, materialize_ttl_recalculate_only = 1;
ALTER TABLE events ADD COLUMN IF NOT EXISTS written DateTime('UTC') DEFAULT now() CODEC(Delta, ZSTD(1));
ALTER TABLE events MATERIALIZE COLUMN written SETTINGS mutations_sync = 0;
ALTER TABLE events MODIFY TTL written + INTERVAL 30 DAY DELETE WHERE kind = 'Heartbeat' SETTINGS alter_sync = 0, mutations_sync = 0;

-- Whole parts are dropped, none is written anew. `occupancy_hourly` and `held_samples` stay.
ALTER TABLE occupancy MODIFY SETTING ttl_only_drop_parts = 1, materialize_ttl_recalculate_only = 1;
ALTER TABLE occupancy ADD COLUMN IF NOT EXISTS written DateTime('UTC') DEFAULT now() CODEC(Delta, ZSTD(1));
ALTER TABLE occupancy MATERIALIZE COLUMN written SETTINGS mutations_sync = 0;
ALTER TABLE occupancy MODIFY TTL written + INTERVAL 2 YEAR DELETE SETTINGS alter_sync = 0, mutations_sync = 0;
