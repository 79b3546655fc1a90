"""A start as a fact: which run it is, where it lives, and where its ranks meet."""

from services.placer.core import Job
from services.placer.state import State
from tenure.domain.ids import run_id
from tenure.domain.job import Placement
from tenure.domain.reasons import Why
from tenure.domain.units import Millis
from tenure.events.placing import RunAssigned

PORT_FIRST, PORT_COUNT = 20_000, 10_000
"""Ports for MASTER_PORT: below the ephemeral range of Linux."""


class Ports:
    """Deals out rendezvous ports, in turn, so that a port rests before it is used again."""

    def __init__(self, state: State) -> None:
        self._next = int(state.position)
        self._used, self._taken = state.ports, set[int]()

    def take(self) -> int:
        """A port that no run has now; the next in turn if all are used."""
        for turn in range(PORT_COUNT):
            port = PORT_FIRST + (self._next + turn) % PORT_COUNT
            if port not in self._used and port not in self._taken:
                break
        self._taken.add(port)
        self._next = port - PORT_FIRST + 1
        return port


def assign(state: State, job: Job, placement: Placement, now: Millis, *, port: int, why: Why) -> RunAssigned:
    """The fact that gives `job` these GPUs."""
    spec, number = job.spec, job.runs + 1
    return RunAssigned(
        at=now,
        cause=job.admitted_by,
        run=run_id(job=job.job, number=number),
        job=job.job,
        number=number,
        budget=spec.budget,
        user=spec.user,
        placement=placement,
        launch=spec.launch,
        min_runtime_ms=spec.min_runtime_ms,
        resumable=spec.resumable,
        grace_ms=spec.grace_ms,
        resume_count=job.resume_count,
        master_address=state.core.hosts[placement[0].host].spec.address,
        master_port=port,
        name=spec.name,
        why=why,
    )
