"""What the deciding part asks of the hands of this role."""

import msgspec

from tenure.domain.host import RepairStep
from tenure.domain.ids import HostId
from tenure.domain.reasons import Reason
from tenure.domain.units import Millis


class Mend(msgspec.Struct, frozen=True, kw_only=True):
    """Have the repair plug do this, once: `key` stays the same however often it is asked."""

    host: HostId
    incident: str
    step: RepairStep
    reason: Reason
    asked_at: Millis
    gpus: int
    """How many GPUs it is to have: the most that it registered, whatever it has now; none if it counts CPUs."""
    evidence: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The plug may do this once for each key."""
        return f"{self.incident}-{self.step}-{self.asked_at}"
