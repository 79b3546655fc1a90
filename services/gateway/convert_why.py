"""What stands before a job, as messages. Lists are cut to what is told by name; what they hold is counted in full."""

from services.gateway.answers import say_expected
from services.gateway.entries import HostEntry, JobEntry, ReservedEntry
from services.gateway.policy.expected_start import Basis, Expected
from services.gateway.policy.sides import Side, Sides
from services.gateway.policy.stands_before import NAMED_MAX, Before, JobBefore, Room, RunBefore
from tenure.domain.units import Millis
from tenure.v1 import jobs_pb2


def fill_before(message: jobs_pb2.StandsBefore, before: Before) -> None:
    """All of it."""
    message.jobs.extend(_from_job(job) for job in before.jobs)
    message.jobs_count, message.jobs_gpus = before.jobs_count, before.jobs_gpus
    message.runs.extend(_from_run(run) for run in before.runs[:NAMED_MAX])
    message.runs_count, message.runs_gpus = len(before.runs), before.runs_gpus
    message.reservations.extend(_from_promise(*promise) for promise in before.promised[:NAMED_MAX])
    message.reservations_count = len(before.promised)
    message.room.extend(_from_room(room) for room in before.room)
    message.hosts.extend(_from_host(entry) for entry in before.out[:NAMED_MAX])
    message.hosts_count = len(before.out)
    message.hosts_gpus = sum(entry.spec.gpus for entry in before.out)
    message.standing.extend(_from_side(side) for side in before.standing)
    message.SetInParent()


def fill_expected(message: jobs_pb2.ExpectedStart, expected: Expected, asker: JobEntry, *, now: Millis) -> None:
    """The instants and what they follow from."""
    message.earliest_at_ms, message.earliest_basis = expected.earliest or 0, expected.basis
    message.latest_at_ms = expected.latest or 0
    message.latest_basis = Basis.NONE if expected.latest is None else Basis.RESERVATION
    message.text = say_expected(expected, asker, now=now)


def from_sides(sides: Sides) -> jobs_pb2.Sides:
    """Both budgets."""
    return jobs_pb2.Sides(own=_from_side(sides.own), other=_from_side(sides.other), same_budget=sides.same_budget)


def _from_side(side: Side) -> jobs_pb2.BudgetSide:
    return jobs_pb2.BudgetSide(
        budget=side.budget,
        ratio=side.ratio,
        ahead_gpu_ms=side.ahead_gpu_ms,
        used_gpu_ms=side.used_gpu_ms,
        entitlement_gpu_ms=side.entitlement_gpu_ms,
    )


def _from_job(before: JobBefore) -> jobs_pb2.JobBefore:
    entry, spec = before.entry, before.entry.spec
    return jobs_pb2.JobBefore(
        job_id=entry.job,
        name=spec.name,
        user=spec.user,
        budget=spec.budget,
        rank=before.rank,
        gpus=spec.gpus,
        sides=from_sides(before.sides),
        because=before.because,
        priority=spec.priority,
        submitted_at_ms=entry.submitted_at,
    )


def _from_run(before: RunBefore) -> jobs_pb2.RunBefore:
    spec, run = before.entry.spec, before.run
    return jobs_pb2.RunBefore(
        run_id=run.run,
        job_id=before.entry.job,
        name=spec.name,
        user=spec.user,
        budget=spec.budget,
        gpus=run.gpus,
        state=run.state,
        protected_until_ms=(run.protected_until or 0) if run.allocated else 0,
        kept=before.kept or "",
        drained_at_ms=before.drained_at or 0,
        sides=None if before.sides is None else from_sides(before.sides),
    )


def _from_promise(entry: JobEntry, reservation: ReservedEntry) -> jobs_pb2.ReservationBefore:
    spec = entry.spec
    return jobs_pb2.ReservationBefore(
        job_id=entry.job,
        name=spec.name,
        user=spec.user,
        budget=spec.budget,
        gpus=sum(len(place.gpus) for place in reservation.placement),
        hosts=len({place.host for place in reservation.placement}),
        latest_start_ms=reservation.latest_start,
    )


def _from_room(room: Room) -> jobs_pb2.RoomBefore:
    return jobs_pb2.RoomBefore(
        cluster=room.cluster,
        gpu_type=room.gpu_type,
        hosts=room.hosts,
        gpus=room.gpus,
        gpus_free=room.free,
        hosts_with_gpus_free=room.hosts_with_free,
        largest_hole=room.largest_hole,
        replicas_fit=room.replicas_fit,
        gpus_in_escrow=room.in_escrow,
        gpus_reserved=room.reserved,
    )


def _from_host(entry: HostEntry) -> jobs_pb2.HostBefore:
    return jobs_pb2.HostBefore(
        host=entry.spec.host,
        state=entry.state,
        gpus=entry.spec.gpus,
        since_ms=entry.state_since,
        comment=entry.comment,
    )
