"""P4, inside a budget: priority, then what is asked (small first, raised by waiting), then submit time, then id.

A job stands behind jobs that were submitted up to its *setback* later: the more GPU-time it commits, the larger, but
never more than a maximum. So a big job is passed by small ones for a while, and every wait is bounded. The key never
changes while the job waits: all jobs grow older together.
"""

from tenure.domain.ids import JobId
from tenure.domain.policy import Policy
from tenure.domain.units import HOUR, GpuMillis, Millis

Key = tuple[int, Millis, Millis, JobId]
"""Total: it ends in the id. The smallest is first."""


def setback(commitment_gpu_ms: GpuMillis, *, policy: Policy) -> Millis:
    """How much later another job may have been submitted and still stand in front."""
    return min(commitment_gpu_ms * policy.setback_per_gpu_hour_ms // HOUR, policy.setback_max_ms)


def place_in_budget(
    *, job: JobId, priority: int, submitted_at: Millis, commitment_gpu_ms: GpuMillis, policy: Policy
) -> Key:
    """The key that orders the jobs of one budget. Of unallocated jobs, which commit nothing, by age alone."""
    return (-priority, submitted_at + setback(commitment_gpu_ms, policy=policy), submitted_at, job)
