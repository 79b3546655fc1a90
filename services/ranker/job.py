"""What the ranker knows of a job that is not over: what it asks for and since when."""

import msgspec

from tenure.domain.ids import BudgetPath, JobId, UserName
from tenure.domain.job import HostChoice, Topology
from tenure.domain.units import GpuMillis, Millis
from tenure.events.budgets import JobAdmitted


class Job(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The part of a submission that its place in the order depends on."""

    job: JobId
    budget: BudgetPath
    user: UserName
    replicas: int
    gpus_per_replica: int
    gpu_type: str | None
    min_runtime_ms: Millis
    priority: int
    submitted_at: Millis
    topology: Topology = Topology.ANY
    choice: HostChoice | None = None
    cluster: str | None = None

    @property
    def gpus(self) -> int:
        """GPUs of the whole gang."""
        return self.replicas * self.gpus_per_replica

    @property
    def allocated(self) -> bool:
        """Charged to its budget and protected."""
        return self.min_runtime_ms > 0

    @property
    def commitment_gpu_ms(self) -> GpuMillis:
        """GPU-time that starting it promises (P3); 0 for an unallocated job."""
        return self.gpus * self.min_runtime_ms


def job_from(fact: JobAdmitted) -> Job:
    """The job of an admission."""
    spec = fact.spec
    return Job(
        job=fact.job,
        budget=spec.budget,
        user=spec.user,
        replicas=spec.replicas,
        gpus_per_replica=spec.gpus_per_replica,
        gpu_type=spec.gpu_type,
        min_runtime_ms=spec.min_runtime_ms,
        priority=spec.priority,
        submitted_at=fact.submitted_at,
        topology=spec.topology,
        choice=spec.choice,
        cluster=spec.cluster,
    )
