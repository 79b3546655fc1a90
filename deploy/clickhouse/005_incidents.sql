-- Incidents of hosts: when one left service and came back, why, and by whom. An incident is named by the facts of health;
-- planned ones (`host_drain_requested`) are drains that people asked for. For dashboards; `tenure host report` says the same. Instants are 0
-- where there is none yet.

CREATE VIEW IF NOT EXISTS incidents AS
WITH
    changes AS
    (
        SELECT
            position,
            at_ms,
            cluster,
            host,
            JSONExtractString(payload, 'incident') AS incident,
            JSONExtractString(payload, 'state') AS state,
            JSONExtractString(payload, 'why', 'reason') AS reason,
            greatest(
                JSONExtractInt(payload, 'why', 'numbers', 'lasted_ms'),
                JSONExtractInt(payload, 'why', 'numbers', 'silent_ms')
            ) AS before_ms
        FROM events
        WHERE kind = 'HostStateChanged' AND JSONExtractString(payload, 'incident') != ''
    ),
    answers AS
    (
        SELECT cluster, host, groupArray(at_ms) AS at
        FROM events
        WHERE kind = 'ResumeRequested' OR (kind = 'RepairCompleted' AND JSONExtractString(payload, 'incident') = '')
        GROUP BY cluster, host
    ),
    absences AS
    (
        SELECT
            cluster,
            incident,
            any(changes.host) AS of_host,
            argMin(changes.reason, position) AS first_reason,
            min(at_ms) AS first_at,
            argMin(before_ms, position) AS before_ms,
            minIf(at_ms, changes.state IN ('drained', 'lost')) AS empty_at,
            maxIf(at_ms, changes.state = 'healthy') AS back_at,
            argMax(changes.state, position) AS last_state
        FROM changes
        GROUP BY cluster, incident
    )
SELECT
    absences.cluster AS cluster,
    incident,
    of_host AS host,
    first_reason AS reason,
    first_at AS began_ms,
    absences.before_ms AS detect_ms,
    empty_at AS drained_ms,
    back_at AS ended_ms,
    last_state AS state,
    multiIf(
        last_state != 'healthy', 'open',
        arrayExists(at -> at BETWEEN first_at AND back_at, answers.at), 'human',
        'automatic'
    ) AS ending
FROM absences
LEFT JOIN answers ON answers.cluster = absences.cluster AND answers.host = absences.of_host;
