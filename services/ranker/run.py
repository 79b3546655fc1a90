"""What the ranker knows of a run: whose it is, and since when each replica holds its GPUs."""

import msgspec

from tenure.domain.ids import BudgetPath, HostId, JobId, RunId, UserName
from tenure.domain.units import GpuMillis, Millis


class Held(msgspec.Struct, array_like=True):
    """The GPUs of one replica. The first start and the first end that are heard of hold.

    `end` is its exit, or the last sign of life of its host if that was lost first. `paused` is the last sign of life of
    a host that is silent now. `charged_to` is up to when the books have it at present: None is "goes on".
    """

    host: HostId
    gpus: int
    start: Millis | None = None
    end: Millis | None = None
    paused: Millis | None = None
    charged_to: Millis | None = None

    @property
    def held_to(self) -> Millis | None:
        """The end of its occupancy, never before its start; None while it goes on."""
        last = self.paused if self.end is None else self.end
        return last if last is None or self.start is None else max(last, self.start)


class Run(msgspec.Struct, kw_only=True, array_like=True):
    """A run from its assignment until its books are closed. Unallocated runs have `min_runtime_ms` 0 and no books."""

    run: RunId
    job: JobId
    budget: BudgetPath
    user: UserName
    gpus: int
    min_runtime_ms: Millis
    replicas: dict[int, Held]
    protected_until: Millis | None = None
    ended_at: Millis | None = None
    gpu_type: str = ""
    """Of all its GPUs: a gang lies in one pool."""

    @property
    def allocated(self) -> bool:
        """Charged to its budget and protected."""
        return self.min_runtime_ms > 0

    def commitment_at(self, now: Millis) -> GpuMillis:
        """P3: what the run is promised and has not had at `now`."""
        ahead = self.min_runtime_ms if self.protected_until is None else max(0, self.protected_until - now)
        return self.gpus * ahead if self.allocated else 0
