-- What became of the occupied GPU-time of each hour: charged (delivered), unallocated, or lost to a host fault and
-- refunded. The three add up to all that was occupied. For dashboards.

CREATE VIEW IF NOT EXISTS usage_hourly AS
SELECT
    hour,
    cluster,
    budget,
    sumIf(rollup.gpu_ms, charged) AS charged_gpu_ms,
    sumIf(rollup.gpu_ms, NOT charged) AS unallocated_gpu_ms,
    -sumIf(rollup.gpu_ms, kind = 'refund') AS infrastructure_loss_gpu_ms,
    sumIf(rollup.gpu_ms, kind = 'segment') AS occupied_gpu_ms,
    sum(rollup.busy_gpu_ms) / nullIf(sum(rollup.measured_gpu_ms), 0) AS utilisation
FROM occupancy_hourly AS rollup
GROUP BY hour, cluster, budget;
