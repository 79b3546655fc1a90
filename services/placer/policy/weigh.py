"""P3 in the unit of account: what a start promises depends on where it is, by the exchange rates in force."""

from services.placer.core import Job
from services.placer.state import State
from tenure.domain.job import Placement
from tenure.domain.policy import Policy
from tenure.domain.rates import weighed
from tenure.domain.units import GpuMillis


def promised(state: State, job: Job, placement: Placement, *, policy: Policy) -> GpuMillis:
    """The commitment of the job on these GPUs, in GPU-milliseconds of account."""
    return weighed(job.spec.commitment_gpu_ms, milli=policy.rate_milli(state.core.type_of(placement)))


def prefer_cheaper(state: State, *, policy: Policy) -> None:
    """Of pools that are as good for a job, the one with the lower exchange rate is looked at first."""
    for room in (state.room, state.reach, state.windows):
        room.rates_milli = policy.rates_milli
