"""When a queued job can start, as the recorded facts have it: the first instant and, with a promise, the last (P8).

Nothing is guessed: no run is taken to end before its protection does, and ratios are taken to stay as they are. So the
first instant is what the contracts in its way allow, and not yet a turn: that, only a forecast tells.
"""

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from services.gateway.entries import JobEntry
from services.gateway.policy.stands_before import Before, RunBefore
from services.gateway.policy.usable import Place
from tenure.domain.ids import HostId
from tenure.domain.job import JobSpec
from tenure.domain.units import Millis


class Basis(StrEnum):
    """What an instant follows from."""

    NONE = ""
    ESCROW = "escrow"
    HOLD = "hold"
    NO_HOST = "no_host"
    PROTECTION = "protection"
    RESERVATION = "reservation"
    ROOM = "room"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Instants, None where nothing that is recorded says. `decides`: the run whose protection ends then."""

    earliest: Millis | None = None
    basis: Basis = Basis.NONE
    latest: Millis | None = None
    decides: RunBefore | None = None


def expected_start(asker: JobEntry, before: Before, *, now: Millis) -> Expected:
    """The first instant at which its whole gang could be had, and the last one that it was promised."""
    latest = None if asker.reservation is None else asker.reservation.latest_start
    if asker.escrow:
        return Expected(earliest=now, basis=Basis.ESCROW, latest=latest)
    if asker.held_until is not None and now < asker.held_until:
        return Expected(earliest=asker.held_until, basis=Basis.HOLD, latest=latest)
    if not before.usable.open:
        return Expected(basis=Basis.NO_HOST, latest=latest)
    offer = _Offer(asker.spec, before, now=now)
    if offer.fits():
        return Expected(earliest=now, basis=Basis.ROOM, latest=latest)
    for ends, run in offer.to_come():
        offer.add(run)
        if offer.fits():
            return Expected(earliest=ends, basis=Basis.PROTECTION, latest=latest, decides=run)
    if latest is not None:  # promised with ratios to come, or by what the placer knows beyond the order
        return Expected(earliest=latest, basis=Basis.RESERVATION, latest=latest)
    return Expected()


class _Offer:
    """What the job could have of each open host, as protections end; how many of its replicas fit where."""

    def __init__(self, spec: JobSpec, before: Before, *, now: Millis) -> None:
        self._spec, self._before = spec, before
        self._offered = dict(before.free)
        self._shut = _shut(spec, before, now=now)
        self._place_of = before.places
        self._fitting: Counter[Place] = Counter()
        for name in self._offered:
            self._count(name, +1)
        for run in before.runs:
            if run.kept is None:
                self.add(run)

    def to_come(self) -> list[tuple[Millis, RunBefore]]:
        """Runs that may have to go when their protection is over or for a drain, with the instant, first to last."""
        later = [(run.goes_at, run) for run in self._before.runs if run.kept is not None]
        return sorted(((at, run) for at, run in later if at is not None), key=_in_order)

    def add(self, run: RunBefore) -> None:
        """The run goes."""
        escrow = self._before.usable.escrow
        for place in run.run.placement:
            if place.host in self._offered:
                kept = escrow.get(place.host)
                self._count(place.host, -1)
                self._offered[place.host] += len(set(place.gpus) - kept) if kept else len(place.gpus)
                self._count(place.host, +1)

    def fits(self) -> bool:
        """Whether the whole gang does: in one pool, or in one block if it has to."""
        return max(self._fitting.values(), default=0) >= self._spec.replicas

    def _count(self, name: HostId, change: int) -> None:
        place = self._place_of.get(name)
        if place is not None:
            gpus = self._before.usable.open[name].spec.gpus
            left = min(self._offered[name], gpus - self._shut.get(name, 0))
            self._fitting[place] += change * (max(0, left) // self._spec.gpus_per_replica)


def _in_order(one: tuple[Millis, RunBefore]) -> tuple[Millis, str]:
    return one[0], one[1].run.run


def _shut(spec: JobSpec, before: Before, *, now: Millis) -> dict[HostId, int]:
    """GPUs of each host that are promised to gangs which start before the job's contract would be over (P8)."""
    ends = now + max(spec.min_runtime_ms, 1) + spec.grace_ms
    shut: dict[HostId, set[int]] = {}
    for _, reservation in before.promised:
        if ends > reservation.latest_start:
            for place in reservation.placement:
                shut.setdefault(place.host, set()).update(place.gpus)
    return {name: len(gpus) for name, gpus in shut.items()}
