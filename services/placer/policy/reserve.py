"""P8 in the placer: reserved hosts may be used meanwhile only by contracts that end before the latest start.

Reservations are facts (`ReservationMade`); this is the one place that says what they forbid. Making them is decided
here too once the placer plans timetables.
"""

from services.placer.core import Reservation
from services.placer.state import State
from tenure.domain.ids import JobId
from tenure.domain.job import JobSpec
from tenure.domain.units import Millis


def forbidden(state: State, *, job: JobId, spec: JobSpec, now: Millis) -> list[Reservation]:
    """The reservations whose hosts the job may not use: none if its contract ends in time or it is unallocated."""
    if not state.core.reservations:
        return []
    return [
        reservation
        for reservation in state.core.reservations.values()
        if reservation.job != job and spec.allocated and now + spec.min_runtime_ms > reservation.latest_start
    ]
