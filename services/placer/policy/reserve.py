"""P8 in the placer: reserved hosts may be used meanwhile only by contracts that end before the latest start.

Reservations are facts (`ReservationMade`); this is the one place that says what they forbid. Making them is decided
here too once the placer plans timetables.
"""

from services.placer.policy.view import View
from services.placer.state import State
from tenure.domain.ids import JobId
from tenure.domain.job import JobSpec
from tenure.domain.units import Millis


def without_reserved(view: View, state: State, *, job: JobId, spec: JobSpec, now: Millis) -> View:
    """What of `view` the job may use: all of it if its contract ends in time or it is unallocated."""
    forbidden = [
        reservation
        for reservation in state.core.reservations.values()
        if reservation.job != job and spec.allocated and now + spec.min_runtime_ms > reservation.latest_start
    ]
    if not forbidden:
        return view
    allowed = view.copy()
    for reservation in forbidden:
        allowed.take(reservation.placement)
    return allowed
