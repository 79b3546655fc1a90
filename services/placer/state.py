"""What the placer knows: hosts, unfinished jobs, their runs, the order, and what is held for whom.

`Core` is folded from the log and is what a snapshot holds. `State` adds indexes that are rebuilt from it.
"""

from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from services.placer.alike import Waiting
from services.placer.blocks import Layouts
from services.placer.core import Core, Escrow, Host, Job, Reservation, Run, Said, Stop, all_gpus, gpu_mask, masks_of
from services.placer.loose import Holding, Loose
from services.placer.policy.openings import Openings
from services.placer.room import Room
from tenure.domain.host import HostState
from tenure.domain.ids import HostId, JobId, Position, RunId
from tenure.domain.reasons import Reason
from tenure.domain.units import Millis


@dataclass(slots=True)
class Reasons:
    """Scratch: for what the reasons to wait were last looked at."""

    order: tuple[JobId, ...] | None = None
    """Jobs that are listed in it have been told."""
    room: tuple[int, ...] | None = None
    """Free GPUs by pool: while they are the same no reason turns into another."""
    again_at: Millis | None = None
    """When a reason that has turned may be said."""


@dataclass(slots=True)
class Looks:
    """Scratch: what the last looks at runs that may be had found, and when that holds."""

    barren: tuple[int, int] | None = None
    """At this `grown` and `ratios` no victims were found for anybody who waited."""
    openings: tuple[Openings, tuple[int, int]] | None = None
    """What P5 gives to whom, at this `ratios` and version of its standings."""


class Firm(NamedTuple):
    """What an allocated run inside its protection holds, for whom and how long: kept at hand, as it never changes."""

    until: Millis
    gpus: int
    grace_ms: Millis
    holding: Holding


class State:
    """The core with its indexes. One owner, one thread; `evolve` changes it in place."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.reasons = Reasons()
        self.looks = Looks()
        self.held: dict[HostId, int] = {}
        """Per host a bit for each GPU that a run holds, whatever the host says of its GPUs meanwhile."""
        self.escrowed: dict[HostId, int] = {}
        """The same of GPUs that are kept for an asker, or for more than one (P8)."""
        self.kept: dict[JobId, dict[HostId, int]] = {}
        """By asker what is kept for it."""
        self.runs_on: dict[HostId, dict[RunId, None]] = {}
        """The runs that hold something on each host."""
        self.masks: dict[RunId, dict[HostId, int]] = {}
        """What each run holds where."""
        self.layouts = Layouts(host.spec for host in core.hosts.values())
        """How the registered hosts, healthy or not, lie in blocks."""
        self.room = Room(self.layouts)
        """What is free, on healthy hosts."""
        self.reach = Room(self.layouts)
        """The same with all that `loose` runs hold: nobody can ever get more now."""
        self.windows = Room(self.layouts)
        """What is free on hosts that take contracts which end before their maintenance window (P9)."""
        self.loose = Loose()
        self.firm: dict[RunId, Firm] = {}
        """Allocated runs that started, were not told to end, and are not known to be past their protection."""
        self.unstarted: dict[RunId, None] = {}
        """Allocated runs that did not start yet and were not told to end."""
        self.stopping: dict[RunId, None] = {}
        """Runs that were told to end."""
        self.waiting = Waiting()
        """Jobs that may be started: queued, not cancelled, and nothing is being freed for them."""
        self.unsaid: dict[JobId, None] = {}
        """Queued jobs that were not told why they wait."""
        self.waited_for: dict[str, int] = {}
        """By asker: victims of it that are on their way out."""
        self.ports: dict[int, int] = {}
        """MASTER_PORTs in use, by how many runs."""
        self.held_jobs: dict[JobId, Millis] = {}
        """Queued jobs that are not started before an instant: hosts gave up their launches."""
        self.draining: dict[HostId, None] = {}
        self.overdue: dict[HostId, dict[RunId, None]] = {}
        """Hosts that did not release in time what these runs hold (P7): nothing starts there until they are over."""
        self.reserved: dict[JobId, dict[HostId, int]] = {}
        """By job with a reservation a bit for each GPU that is kept for it, by host."""
        self.attention: dict[RunId, None] = {}
        """Runs that changed and may need a fact of ours, in that order. Scratch: emptied when none is due."""
        self.cancelled: dict[JobId, None] = {}
        """Queued jobs that are to be finished as cancelled."""
        self.ending: dict[JobId, None] = {}
        """Jobs of whose last run it is not said yet what it means for them."""
        self.grown = 0
        """Counts how often `room` or `reach` grew."""
        self.ratios = 0
        """Counts how often the ratios may have moved: a ranking, a start, an escrow, a reservation."""
        self.idle_until: Millis | None = None
        """Scratch of `decide`: nothing to decide before this instant unless a fact comes. None: look again."""
        self._index()

    def _index(self) -> None:
        """Make all indexes from the core."""
        core = self.core
        for reservation in core.reservations.values():
            self.reserve(reservation)
        for escrow in core.escrows.values():
            self._keep(escrow)
        for run in core.runs.values():
            self.hold(run)
            self.attention[run.run] = None
        for name, host in core.hosts.items():
            self.refresh(name)
            if host.state is HostState.DRAINING:
                self.draining[name] = None
        for job in core.jobs.values():
            if job.ending is not None:
                self.ending[job.job] = None
            elif job.cancelled_by is not None and job.run is None:
                self.cancelled[job.job] = None
            self.index_job(job)

    @property
    def position(self) -> Position:
        """How far the log has been folded."""
        return self.core.position

    @position.setter
    def position(self, value: Position) -> None:
        self.core.position = value

    def hold(self, run: Run) -> None:
        """Mark the GPUs of `run` as held. I1: asserts that nobody held them."""
        masks = self.masks[run.run] = {host: gpu_mask(gpus) for host, gpus in run.hosts.items()}
        for host, mask in masks.items():
            held = self.held.get(host, 0)
            assert held & mask == 0, f"I1: {run.run} would hold GPUs of {host} that another run holds"
            self.held[host] = held | mask
            self.runs_on.setdefault(host, {})[run.run] = None
        self.ports[run.master_port] = self.ports.get(run.master_port, 0) + 1
        for host in run.overdue:
            self.overdue.setdefault(host, {})[run.run] = None
        if run.stop is not None:
            self.stopping[run.run] = None
            if not run.written_off:
                self._wait_for(run.stop.by, +1)
            return
        spec = self.core.jobs[run.job].spec
        if not spec.allocated:
            self.loosen(run)
        elif run.protected_until is None:
            self.unstarted[run.run] = None
        else:
            self._protect(run, run.protected_until)

    def release(self, run: Run) -> None:
        """Mark the GPUs of `run` as free."""
        if run.stop is None:
            self.fasten(run)
        elif not run.written_off:
            self._wait_for(run.stop.by, -1)
        self.stopping.pop(run.run, None)
        for host in run.overdue:
            del self.overdue[host][run.run]
            if not self.overdue[host]:
                del self.overdue[host]
        for host, mask in self.masks.pop(run.run).items():
            self.held[host] &= ~mask
            del self.runs_on[host][run.run]
            self.refresh(host)
        self.ports[run.master_port] -= 1
        if not self.ports[run.master_port]:
            del self.ports[run.master_port]

    def loosen(self, run: Run) -> None:
        """P5 may give the run to an asker from now on."""
        spec, masks = self.core.jobs[run.job].spec, self.masks[run.run]
        key = Holding(spec.budget, spec.priority) if spec.allocated else None
        self.loose.add(run.run, key, (spec.gpus, spec.resumable), safe_until=run.safe_until, masks=masks)
        for host in masks:
            self.refresh(host)

    def fasten(self, run: Run) -> None:
        """The run was told to end, or is over: nobody can ask for it any more."""
        self.firm.pop(run.run, None)
        self.unstarted.pop(run.run, None)
        masks = self.masks[run.run]
        if self.loose.remove(run.run, masks=masks):
            for host in masks:
                self.refresh(host)

    def start(self, run: Run, protected_until: Millis) -> None:
        """Every replica of the run is there."""
        if run.stop is not None:
            return
        if run.run in self.unstarted:
            del self.unstarted[run.run]
            self._protect(run, protected_until)
        else:
            self.loose.saved(run.run, safe_until=run.safe_until)

    def _protect(self, run: Run, until: Millis) -> None:
        spec = self.core.jobs[run.job].spec
        self.firm[run.run] = Firm(until, spec.gpus, spec.grace_ms, Holding(spec.budget, spec.priority))
        self.loose.protect(run.run, until)

    def expire(self, now: Millis) -> None:
        """Runs whose protection ends by now become loose."""
        for run in self.loose.due(now):
            if run in self.firm:
                del self.firm[run]
                self.loosen(self.core.runs[run])

    def stop(self, run: Run, stop: Stop) -> None:
        """The run is told to end."""
        if run.stop is None:
            self.fasten(run)
            self._wait_for(stop.by, +1)
            self.stopping[run.run] = None
            run.stop = stop

    def be_overdue(self, run: Run, host: HostId) -> None:
        """The run should have left the host by now."""
        run.overdue = (*run.overdue, host)
        self.overdue.setdefault(host, {})[run.run] = None
        self.refresh(host)

    def write_off(self, host: HostId) -> None:
        """Health hears the host, but it keeps its overdue runs: their askers may ask for others."""
        for run_id in self.overdue.get(host, ()):
            run = self.core.runs[run_id]
            if run.stop is not None and not run.written_off:
                self._wait_for(run.stop.by, -1)
            run.written_off = True

    def reserve(self, reservation: Reservation) -> None:
        """These GPUs are kept for a gang from a latest start on."""
        self.ratios += 1
        self.core.reservations[reservation.job] = reservation
        self.reserved[reservation.job] = masks_of(reservation.placement)

    def unreserve(self, job: JobId) -> bool:
        """Nothing is reserved for the job any more. Returns whether something was."""
        if self.core.reservations.pop(job, None) is None:
            return False
        del self.reserved[job]
        self.ratios += 1
        self.grown += 1  # who was kept out may look again
        self.idle_until = None
        return True

    def keep(self, escrow: Escrow) -> None:
        """These GPUs are kept for an asker, who does not wait for others meanwhile."""
        known = self.core.escrows.get(escrow.job)
        if known is None:
            self.ratios += 1  # the asker's commitment counts from now on
        elif known.placement != escrow.placement:
            self.give_up(escrow.job)
        self.core.escrows[escrow.job] = escrow
        self._keep(escrow)
        self.waiting.remove(escrow.job)

    def give_up(self, job: JobId) -> bool:
        """Nothing is kept for the job any more. Returns whether something was."""
        if self.core.escrows.pop(job, None) is None:
            return False
        gone = self.kept.pop(job)
        for host, mask in gone.items():
            self.escrowed[host] &= ~mask
        for masks in self.kept.values():
            for host in masks.keys() & gone.keys():
                self.escrowed[host] |= masks[host]
        for host in gone:
            self.refresh(host)
        return True

    def index_job(self, job: Job) -> None:
        """Count it among those who wait, if it does."""
        if job.queued and job.cancelled_by is None:
            if job.held_until is not None:
                self.held_jobs[job.job] = job.held_until
            elif job.job not in self.core.escrows:
                self.waiting.add(job.job, job.spec)
                self._note_told(job.job)
            said = self.core.said.get(job.job)
            if said is None or (said.reason is Reason.DEFER_ESCROW_EXPIRED and job.job not in self.core.escrows):
                self.unsaid[job.job] = None
                self.reasons.order = None

    def tell(self, job: JobId, said: Said) -> None:
        """It was told why it waits."""
        self.core.said[job] = said
        self.unsaid.pop(job, None)
        self._note_told(job)

    def _note_told(self, job: JobId) -> None:
        """Keep in its class whether it was told that there is no timetable."""
        line, said = self.waiting.line_of.get(job), self.core.said.get(job)
        if line is not None:
            line.told.pop(job, None)
            if said is not None and said.reason is Reason.DEFER_NO_TIMETABLE:
                line.told[job] = said.at

    def release_held(self, now: Millis) -> None:
        """Jobs that were held long enough wait like the others."""
        for job_id in [job_id for job_id, until in self.held_jobs.items() if until <= now]:
            del self.held_jobs[job_id]
            if job_id not in self.core.escrows:
                self.waiting.add(job_id, self.core.jobs[job_id].spec)
                self._note_told(job_id)
            self.idle_until = None

    def unindex_job(self, job: JobId) -> None:
        """It does not wait any more."""
        self.held_jobs.pop(job, None)
        self.waiting.remove(job)
        self.unsaid.pop(job, None)

    def free(self, host: HostId) -> int:
        """A bit for each GPU that the host has and no run holds."""
        return all_gpus(self.core.hosts[host].spec.gpus) & ~self.held.get(host, 0)

    def takes_runs(self, name: HostId) -> bool:
        """Whether a run may start on the host (I7)."""
        return self.core.hosts[name].state is HostState.HEALTHY and name not in self.overdue

    def refresh(self, name: HostId) -> None:
        """What the host has and what is held of it has changed: bring `room` and `reach` in line."""
        host = self.core.hosts[name]
        if not self.takes_runs(name):
            self.room.drop(name)
            self.reach.drop(name)
            self._refresh_window(name, host)
            return
        self.windows.drop(name)
        spec = host.spec
        everything = all_gpus(spec.gpus)
        free = everything & ~self.held.get(name, 0) & ~self.escrowed.get(name, 0)
        pool = (spec.cluster, spec.gpu_type)
        within = free | self.loose.held_on.get(name, 0) & everything
        freed = free & ~(self.room.set(pool, name, free) or 0)
        if within & ~(self.reach.set(pool, name, within) or 0) or freed:
            self.grown += 1

    def _refresh_window(self, name: HostId, host: Host) -> None:
        if host.open_until is None:
            self.windows.drop(name)
            return
        free = all_gpus(host.spec.gpus) & ~self.held.get(name, 0) & ~self.escrowed.get(name, 0)
        self.windows.set((host.spec.cluster, host.spec.gpu_type), name, free)

    def _keep(self, escrow: Escrow) -> None:
        masks = self.kept[escrow.job] = masks_of(escrow.placement)
        for host, mask in masks.items():
            self.escrowed[host] = self.escrowed.get(host, 0) | mask
            self.refresh(host)

    def _wait_for(self, asker: str | None, change: int) -> None:
        if asker is not None:
            self.waited_for[asker] = self.waited_for.get(asker, 0) + change
            if not self.waited_for[asker]:
                del self.waited_for[asker]
                self.looks.barren = None  # it may ask for others now


def initial() -> State:
    """Nothing known."""
    return State(Core())


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Core)


def dump(state: State) -> bytes:
    """The core as bytes."""
    return _encoder.encode(state.core)


def load(payload: bytes) -> State:
    """The inverse of `dump`. Raises ValueError on damage."""
    return State(_decoder.decode(payload))
