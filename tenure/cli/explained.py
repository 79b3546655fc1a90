"""The `--json` form of what `tenure why` says beside the story. Keys are added, never renamed or removed."""

from typing import TYPE_CHECKING

from tenure.cli.documents import Document, instant, why

if TYPE_CHECKING:
    from tenure.v1 import jobs_pb2


def explained(answer: "jobs_pb2.ExplainJobResponse") -> Document:
    """Null, or empty, where the job does not wait or nobody could tell."""
    return {
        "answer": list(answer.answer),
        "before": _before(answer.before) if answer.HasField("before") else None,
        "expected": _expected(answer.expected) if answer.HasField("expected") else None,
        "forecast": _forecast(answer.forecast) if answer.HasField("forecast") else None,
        "alternatives": [_alternative(one) for one in answer.alternatives],
        "alternatives_trouble": answer.alternatives_trouble or None,
        "gave_way": [_gave_way(one) for one in answer.gave_way],
        "rejection": _rejection(answer.rejection) if answer.HasField("rejection") else None,
    }


def _before(value: "jobs_pb2.StandsBefore") -> Document:
    return {
        "jobs": [_job(one) for one in value.jobs],
        "jobs_count": value.jobs_count,
        "jobs_gpus": value.jobs_gpus,
        "runs": [_run(one) for one in value.runs],
        "runs_count": value.runs_count,
        "runs_gpus": value.runs_gpus,
        "reservations": [_reservation(one) for one in value.reservations],
        "reservations_count": value.reservations_count,
        "room": [_room(one) for one in value.room],
        "hosts": [_host(one) for one in value.hosts],
        "hosts_count": value.hosts_count,
        "hosts_gpus": value.hosts_gpus,
        "standing": [_side(one) for one in value.standing],
    }


def _side(value: "jobs_pb2.BudgetSide") -> Document:
    return {
        "budget": value.budget,
        "ratio": value.ratio if value.HasField("ratio") else None,
        "ahead_gpu_ms": value.ahead_gpu_ms,
        "used_gpu_ms": value.used_gpu_ms,
        "entitlement_gpu_ms": value.entitlement_gpu_ms,
    }


def _sides(value: "jobs_pb2.Sides") -> Document:
    return {"own": _side(value.own), "other": _side(value.other), "same_budget": value.same_budget}


def _job(value: "jobs_pb2.JobBefore") -> Document:
    return {
        "job": value.job_id,
        "name": value.name,
        "user": value.user,
        "budget": value.budget,
        "rank": value.rank or None,
        "gpus": value.gpus,
        "priority": value.priority,
        **instant("submitted_at", value.submitted_at_ms),
        "because": value.because,
        "sides": _sides(value.sides),
    }


def _run(value: "jobs_pb2.RunBefore") -> Document:
    return {
        "run": value.run_id,
        "job": value.job_id,
        "name": value.name,
        "user": value.user,
        "budget": value.budget,
        "gpus": value.gpus,
        "state": value.state,
        **instant("protected_until", value.protected_until_ms),
        "kept": value.kept or None,
        **instant("drained_at", value.drained_at_ms),
        "sides": _sides(value.sides) if value.HasField("sides") else None,
    }


def _reservation(value: "jobs_pb2.ReservationBefore") -> Document:
    return {
        "job": value.job_id,
        "name": value.name,
        "user": value.user,
        "budget": value.budget,
        "gpus": value.gpus,
        "hosts": value.hosts,
        **instant("latest_start", value.latest_start_ms),
    }


def _room(value: "jobs_pb2.RoomBefore") -> Document:
    return {
        "cluster": value.cluster,
        "gpu_type": value.gpu_type,
        "hosts": value.hosts,
        "gpus": value.gpus,
        "gpus_free": value.gpus_free,
        "hosts_with_gpus_free": value.hosts_with_gpus_free,
        "largest_hole": value.largest_hole,
        "replicas_fit": value.replicas_fit,
        "gpus_in_escrow": value.gpus_in_escrow,
        "gpus_reserved": value.gpus_reserved,
    }


def _host(value: "jobs_pb2.HostBefore") -> Document:
    return {
        "host": value.host,
        "state": value.state,
        "gpus": value.gpus,
        **instant("since", value.since_ms),
        "comment": value.comment,
    }


def _expected(value: "jobs_pb2.ExpectedStart") -> Document:
    return {
        **instant("earliest_at", value.earliest_at_ms),
        "earliest_basis": value.earliest_basis or None,
        **instant("latest_at", value.latest_at_ms),
        "latest_basis": value.latest_basis or None,
        "text": value.text,
    }


def _forecast(value: "jobs_pb2.StartForecast") -> Document:
    return {
        **instant("earliest_at", value.earliest_at_ms),
        **instant("p50_at", value.p50_at_ms),
        **instant("p90_at", value.p90_at_ms),
        **instant("latest_at", value.latest_at_ms),
        "basis": value.basis,
        "position": value.position,
        **instant("at", value.at_ms),
    }


def _alternative(value: "jobs_pb2.Alternative") -> Document:
    return {
        "change": value.change,
        "field": value.field,
        "value": value.value,
        "outcome": value.outcome,
        **instant("start", value.start_ms),
    }


def _gave_way(value: "jobs_pb2.GaveWay") -> Document:
    return {
        "run": value.run_id,
        "position": value.position,
        **instant("at", value.at_ms),
        "by": value.by,
        "by_budget": value.by_budget or None,
        "by_user": value.by_user or None,
        "why": why(value.why),
        **instant("protected_until", value.protected_until_ms),
        "ran_ms": value.ran_ms,
        "sides": _sides(value.sides) if value.HasField("sides") else None,
        "answer": list(value.answer),
    }


def _rejection(value: "jobs_pb2.Rejection") -> Document:
    return {"field": value.field, "problem": value.problem, "fix": value.fix}
