"""What agents say of a host's devices, as the rules see it. The one place that knows the shape of that fact."""

import msgspec

from tenure.domain.ids import HostId
from tenure.domain.severity import Severity
from tenure.domain.units import Millis
from tenure.events.reports import HealthSignal, HostSignal


class Signal(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One open incident of a device: what asks for what, seen during [first_at, last_at]."""

    source: str
    device: str
    code: str
    severity: Severity
    first_at: Millis
    last_at: Millis
    text: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """Of each host one open incident at a time has it."""
        return (self.source, self.device, self.code)

    @property
    def incident(self) -> tuple[str, str, str, Millis]:
        """It is the same incident for as long as this stays the same."""
        return (*self.key, self.first_at)

    @property
    def line(self) -> str:
        """For people and for the repair plug."""
        return f"{self.severity} {self.source} {self.code} {self.device}: {self.text}"


SignalsReported = HostSignal
"""The kind of fact."""


def still_open(known: tuple[Signal, ...], fact: HostSignal) -> tuple[Signal, ...]:
    """The open incidents of a host after its agent has said more."""
    incidents = {signal.key: signal for signal in known}
    for said in fact.signals:
        incidents.pop(said.key, None)
        if not said.over:
            incidents[said.key] = Signal(
                source=said.source,
                device=said.device,
                code=said.code,
                severity=said.severity,
                first_at=said.first_at,
                last_at=said.last_at,
                text=said.text,
            )
    return tuple(incidents.values())


def as_reported(host: HostId, signal: Signal, *, at: Millis, over: bool = False) -> SignalsReported:
    """The fact by which an agent says this, for whoever stands in for one."""
    said = HealthSignal(
        device=signal.device,
        source=signal.source,
        code=signal.code,
        severity=signal.severity,
        text=signal.text,
        first_at=signal.first_at,
        last_at=signal.last_at,
        over=over,
    )
    return HostSignal(at=at, host=host, signals=(said,))
