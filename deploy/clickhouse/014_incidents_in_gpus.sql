-- As in 009, but a host that counts CPUs has no GPUs: its absence and its refunds are no GPU-time.
CREATE OR REPLACE VIEW host_incidents AS
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
            JSONExtractBool(payload, 'accepts') AS accepts,
            JSONExtractInt(payload, 'deadline') AS deadline
        FROM facts FINAL
        WHERE kind = 'HostStateChanged' AND JSONExtractString(payload, 'incident') != ''
    ),
    begun AS
    (
        SELECT
            changes.cluster AS in_cluster,
            changes.host AS of_host,
            changes.incident AS named,
            min(position) AS first_position,
            maxIf(position, state = 'healthy') AS back_position,
            argMin(if(accepts AND deadline > 0, deadline, at_ms), position) AS first_out_ms,
            minIf(at_ms, state = 'draining' AND NOT accepts) AS drain_ms
        FROM changes
        GROUP BY in_cluster, of_host, named
    ),
    sizes AS
    (
        SELECT
            cluster AS in_cluster,
            JSONExtractString(spec, 'host') AS of_host,
            argMax(if(JSONExtractString(spec, 'gpu_type') = 'CPU', 0, JSONExtractInt(spec, 'gpus')), position) AS gpus
        FROM
        (
            SELECT cluster, position, arrayJoin(JSONExtractArrayRaw(payload, 'hosts')) AS spec
            FROM facts FINAL
            WHERE kind = 'HostRegistered'
        )
        GROUP BY in_cluster, of_host
    ),
    answered AS
    (
        SELECT
            begun.in_cluster AS in_cluster,
            begun.named AS named,
            argMaxIf(answers.who, answers.position, answers.is_person) AS who,
            argMax(answers.comment, answers.position) AS comment
        FROM
        (
            SELECT
                position,
                cluster AS in_cluster,
                host AS of_host,
                JSONExtractString(payload, 'by') AS who,
                JSONExtractString(payload, 'comment') AS comment,
                kind = 'ResumeRequested' OR JSONExtractString(payload, 'incident') = '' AS is_person
            FROM facts FINAL
            WHERE kind IN ('ResumeRequested', 'RepairCompleted')
        ) AS answers
        ASOF INNER JOIN begun
            ON answers.in_cluster = begun.in_cluster AND answers.of_host = begun.of_host
            AND answers.position > begun.first_position
        WHERE begun.back_position = 0 OR answers.position < begun.back_position
        GROUP BY in_cluster, named
    ),
    refunds AS
    (
        SELECT begun.in_cluster AS in_cluster, begun.named AS named, sum(given.refunded) AS refunded
        FROM
        (
            SELECT
                charged.position AS position,
                charged.cluster AS in_cluster,
                ended.by AS of_host,
                JSONExtractInt(charged.payload, 'refunded_gpu_ms') AS refunded
            FROM (SELECT * FROM facts FINAL WHERE kind = 'RunCharged') AS charged
            INNER JOIN
            (
                SELECT cluster, run, JSONExtractString(payload, 'by') AS by
                FROM facts FINAL
                WHERE kind = 'RunEnded' AND JSONExtractString(payload, 'cause_of_end') = 'host_lost'
            ) AS ended ON ended.cluster = charged.cluster AND ended.run = charged.run
        ) AS given
        ASOF INNER JOIN begun
            ON given.in_cluster = begun.in_cluster AND given.of_host = begun.of_host
            AND given.position > begun.first_position
        GROUP BY in_cluster, named
    )
SELECT
    incidents.cluster AS cluster,
    incidents.incident AS incident,
    incidents.host AS host,
    incidents.reason AS reason,
    incidents.state AS state,
    incidents.ending AS ending,
    answered.who AS answered_by,
    answered.comment AS answered_with,
    sizes.gpus AS gpus,
    incidents.began_ms AS began_ms,
    incidents.detect_ms AS detect_ms,
    if(begun.drain_ms > 0, least(begun.first_out_ms, begun.drain_ms), begun.first_out_ms) AS out_from_ms,
    incidents.drained_ms AS drained_ms,
    incidents.ended_ms AS ended_ms,
    if(sizes.gpus = 0, 0, refunds.refunded) AS refunded_gpu_ms
FROM incidents
INNER JOIN begun ON begun.in_cluster = incidents.cluster AND begun.named = incidents.incident
LEFT JOIN sizes ON sizes.in_cluster = incidents.cluster AND sizes.of_host = incidents.host
LEFT JOIN answered ON answered.in_cluster = incidents.cluster AND answered.named = incidents.incident
LEFT JOIN refunds ON refunds.in_cluster = incidents.cluster AND refunds.named = incidents.incident;
