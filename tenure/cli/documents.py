"""The `--json` form of everything the CLI lists. Stable: keys are added, never renamed or removed.

An instant is given twice, as ISO 8601 in UTC (`started_at`) and as epoch milliseconds (`started_at_ms`); what has not
happened is null. Sizes are raw: GPUs, GPU-milliseconds, milliseconds.
"""

import json
from typing import TYPE_CHECKING, Any

from tenure.cli.standing import ahead_gpu_ms, ratio
from tenure.cli.words import iso
from tenure.domain.units import HOUR

if TYPE_CHECKING:
    from tenure.v1 import budgets_pb2, hosts_pb2, jobs_pb2, policy_pb2

Document = dict[str, Any]


def instant(name: str, when: int) -> Document:
    """`name` as ISO 8601 and `name_ms` as epoch milliseconds."""
    return {name: iso(when), f"{name}_ms": when or None}


def why(reason: "jobs_pb2.Why") -> Document | None:
    """A reason with its numbers, null where there is none."""
    if not reason.reason and not reason.rule:
        return None
    numbers = {name: _number(reason.numbers[name]) for name in sorted(reason.numbers)}
    return {"rule": reason.rule, "reason": reason.reason, "numbers": numbers}


def job(value: "jobs_pb2.Job") -> Document:
    """A job with its contract, its place in the queue and its runs."""
    spec = value.spec
    return {
        "job": value.job_id,
        "state": value.state,
        "name": spec.name,
        "budget": spec.budget,
        "user": spec.user,
        "replicas": spec.replicas,
        "gpus_per_replica": spec.gpus_per_replica,
        "gpus": spec.replicas * spec.gpus_per_replica,
        "gpu_type": spec.gpu_type or None,
        "cluster": spec.cluster or None,
        "topology": spec.topology or "any",
        "hosts": list(spec.hosts),
        "hosts_excluded": list(spec.hosts_excluded),
        "min_runtime_ms": spec.min_runtime_ms,
        "resumable": spec.resumable,
        "priority": spec.priority,
        "grace_ms": spec.grace_ms or None,
        "command": list(spec.command),
        "working_directory": spec.working_directory or None,
        "environment": dict(sorted(spec.environment.items())),
        **instant("submitted_at", value.submitted_at_ms),
        **instant("first_started_at", value.first_started_at_ms),
        **instant("finished_at", value.finished_at_ms),
        "rank": value.rank or None,
        **instant("latest_start", value.latest_start_ms),
        **instant("forecast_start_p50", value.forecast_start_p50_ms),
        **instant("forecast_start_p90", value.forecast_start_p90_ms),
        "forecast_basis": value.forecast_basis or None,
        "reservation": reservation(value.reservation) if value.HasField("reservation") else None,
        "resume_count": value.resume_count,
        "charged_gpu_ms": value.charged_gpu_ms,
        "refunded_gpu_ms": value.refunded_gpu_ms,
        "why": why(value.why),
        "runs": [run(one) for one in value.runs],
    }


def reservation(value: "jobs_pb2.Reservation") -> Document:
    """What is kept for a blocked gang until its latest start, and the allocated runs that are still there."""
    waits_for = [
        {
            "run": one.run_id,
            "job": one.job_id,
            "budget": one.budget,
            "gpus": one.gpus,
            "state": one.state,
            **instant("protected_until", one.protected_until_ms),
        }
        for one in value.waits_for
    ]
    return {"hosts": {place.host: list(place.gpus) for place in value.hosts}, "waits_for": waits_for}


def run(value: "jobs_pb2.Run") -> Document:
    """One attempt of a job."""
    return {
        "run": value.run_id,
        "number": value.number,
        "state": value.state,
        **instant("assigned_at", value.assigned_at_ms),
        **instant("started_at", value.started_at_ms),
        **instant("protected_until", value.protected_until_ms),
        **instant("ended_at", value.ended_at_ms),
        "hosts": {place.host: list(place.gpus) for place in value.hosts},
        "exit_code": value.exit_code if value.HasField("exit_code") else None,
        "ended_by": value.ended_by or None,
    }


def queue(answer: "jobs_pb2.ListJobsResponse", budgets: "dict[str, budgets_pb2.Budget]") -> Document:
    """The jobs of a listing, each with how its budget stands, and the cluster's summary."""
    return {
        **instant("now", answer.cluster.now_ms),
        "cluster": {
            "gpus": answer.cluster.gpus,
            "gpus_available": answer.cluster.gpus_available,
            "gpus_allocated": answer.cluster.gpus_allocated,
            "gpus_unallocated": answer.cluster.gpus_unallocated,
            "gpus_free": answer.cluster.gpus_free,
        },
        "counts": dict(sorted(answer.counts.items())),
        "forecast": forecast(answer.forecast) if answer.HasField("forecast") else None,
        "jobs": [{**job(one), **_standing(budgets.get(one.spec.budget))} for one in answer.jobs],
    }


def _standing(value: "budgets_pb2.Budget | None") -> Document:
    """How the budget of a job stands; null where that is not known."""
    return {
        "budget_ratio": None if value is None else ratio(value),
        "budget_ahead_gpu_ms": None if value is None else ahead_gpu_ms(value),
    }


def forecast(value: "jobs_pb2.ForecastSummary") -> Document:
    """What the forecasts of the jobs were made of, or why there are none."""
    return {
        **instant("made_at", value.made_at_ms),
        "position": value.position or None,
        "draws": value.draws,
        **instant("followed_until", value.followed_until_ms),
        "jobs_finished": value.jobs_finished,
        "trouble": value.trouble or None,
    }


def story(job_id: str, answer: "jobs_pb2.ExplainJobResponse") -> Document:
    """A job's story: each step with its reason, its numbers and the fact itself."""
    steps = [
        {
            "position": step.position,
            **instant("at", step.at_ms),
            "kind": step.kind,
            "text": step.text,
            "why": why(step.why),
            "fact": json.loads(step.fact_json) if step.fact_json else None,
        }
        for step in answer.steps
    ]
    return {
        "job": job_id,
        "position": answer.position,
        **instant("latest_start", answer.job.latest_start_ms),
        "reservation": reservation(answer.job.reservation) if answer.job.HasField("reservation") else None,
        "steps": steps,
    }


def budget(value: "budgets_pb2.Budget") -> Document:
    """A budget with its standing over the lookback window."""
    return {
        "path": value.path,
        "leaf": value.leaf,
        "share_percent": value.share_percent,
        "fraction": value.fraction,
        "managers": list(value.managers),
        "members": list(value.members),
        "users_equal": value.users_equal,
        "entitlement_gpu_ms": value.entitlement_gpu_ms,
        "charged_gpu_ms": value.charged_gpu_ms,
        "commitment_gpu_ms": value.commitment_gpu_ms,
        "ratio": ratio(value),
        "ahead_gpu_ms": ahead_gpu_ms(value),
        "jobs_queued": value.jobs_queued,
        "jobs_running": value.jobs_running,
        "gpus_allocated": value.gpus_allocated,
        "gpus_unallocated": value.gpus_unallocated,
    }


def change(value: "budgets_pb2.BudgetChange") -> Document:
    """One change of a share; null before it existed and after it was removed."""
    return {
        "position": value.position,
        **instant("at", value.at_ms),
        "by": value.by,
        "comment": value.comment,
        "path": value.path,
        "share_percent_before": value.share_percent_before if value.HasField("share_percent_before") else None,
        "share_percent_after": value.share_percent_after if value.HasField("share_percent_after") else None,
        "asked_by": value.asked_by or None,
        "asked_how": value.asked_how or None,
        "asked_from": value.asked_from or None,
    }


def policy_change(value: "policy_pb2.PolicyChange") -> Document:
    """One change of the policy."""
    return {
        "position": value.position,
        "at_ms": value.at_ms,
        "by": value.by,
        "comment": value.comment,
        "asked_by": value.asked_by,
        "asked_how": value.asked_how,
        "asked_from": value.asked_from,
        "changes": [{"knob": each.name, "before": each.before, "after": each.after} for each in value.changes],
    }


def report(answer: "budgets_pb2.BudgetReportResponse") -> Document:
    """Owed and delivered per budget."""
    rows = [
        {
            "path": row.path,
            "leaf": row.leaf,
            "owed_gpu_ms": row.owed_gpu_ms,
            "delivered_gpu_ms": row.delivered_gpu_ms,
            "ratio": min(row.delivered_gpu_ms / row.owed_gpu_ms, 1.0) if row.owed_gpu_ms else None,
            "unallocated_gpu_ms": row.unallocated_gpu_ms,
            "entitlement_gpu_ms": row.entitlement_gpu_ms,
            "refunded_gpu_ms": row.refunded_gpu_ms,
        }
        for row in answer.rows
    ]
    return {
        **instant("since", answer.since_ms),
        **instant("until", answer.until_ms),
        "position": answer.position,
        "budgets": rows,
    }


def host(value: "hosts_pb2.Host") -> Document:
    """A host, what is on it, and when a drain will have emptied it."""
    return {
        "host": value.host,
        "state": value.state,
        "cluster": value.cluster,
        "block": value.block,
        "gpu_type": value.gpu_type,
        "gpus": value.gpus,
        "gpus_held": value.gpus_held,
        **instant("last_seen", value.last_seen_ms),
        "runs": list(value.runs),
        "comment": value.comment,
        **instant("empty_at", value.empty_at_ms),
        "waits_for": value.waits_for or None,
        "signals": [
            {
                "source": signal.source,
                "device": signal.device,
                "code": signal.code,
                "severity": signal.severity,
                "text": signal.text,
                "count": signal.count,
                **instant("first_at", signal.first_at_ms),
                **instant("last_at", signal.last_at_ms),
                "evidence": signal.evidence,
            }
            for signal in value.signals
        ],
        **instant("deadline", value.deadline_ms),
        "accepts": value.accepts,
    }


def host_report(value: "hosts_pb2.HostReportResponse") -> Document:
    """The numbers of the hosts, incidents included. GPU-time in hours, lengths of time in seconds."""
    return {
        **instant("since", value.since_ms),
        **instant("until", value.until_ms),
        "hosts": value.hosts,
        "gpus": value.gpus,
        "availability": value.availability if value.HasField("availability") else None,
        "out_gpu_hours": value.out_gpu_ms / HOUR,
        "refunded_gpu_hours": value.refunded_gpu_ms / HOUR,
        "automatic_share": value.automatic_share if value.HasField("automatic_share") else None,
        **{
            name: {
                "count": spread.count,
                "p50_s": spread.p50_ms / 1000,
                "p90_s": spread.p90_ms / 1000,
                "longest_s": spread.longest_ms / 1000,
            }
            for name, spread in (("detect", value.detect), ("drain", value.drain), ("repair", value.repair))
        },
        "causes": [
            {
                "reason": one.reason,
                "automatic": one.automatic,
                "human": one.human,
                "open": one.still_open,
                "refunded_gpu_hours": one.refunded_gpu_ms / HOUR,
            }
            for one in value.causes
        ],
        "incidents": [_incident(one) for one in value.incidents],
    }


def _incident(one: "hosts_pb2.Incident") -> Document:
    return {
        "incident": one.incident,
        "host": one.host,
        "reason": one.reason,
        "ending": one.ending,
        "state": one.state,
        **instant("began", one.began_ms),
        **instant("drained", one.drained_ms),
        **instant("ended", one.ended_ms),
        "by": one.by or None,
        "comment": one.comment,
        "refunded_gpu_hours": one.refunded_gpu_ms / HOUR,
    }


def fragmentation(answer: "hosts_pb2.FragmentationResponse") -> Document:
    """Of each pool the free GPUs and their pieces, and the largest gangs at each instant from now on."""
    return {**instant("now", answer.now_ms), "pools": [_pool(one) for one in answer.pools]}


def _pool(value: "hosts_pb2.PoolFragmentation") -> Document:
    return {
        "cluster": value.cluster,
        "gpu_type": value.gpu_type,
        "hosts": value.hosts,
        "gpus": value.gpus,
        "gpus_free": value.gpus_free,
        "hosts_with_gpus_free": value.hosts_with_gpus_free,
        "largest_hole": value.largest_hole,
        "hosts_wholly_free": value.hosts_wholly_free,
        "gpus_giving_way": value.gpus_giving_way,
        "gpus_in_escrow": value.gpus_in_escrow,
        "gpus_reserved": value.gpus_reserved,
        "gpus_past_protection": value.gpus_past_protection,
        "prospects": [
            {
                **instant("at", one.at_ms),
                "placeable": _placeable(one.placeable),
                "if_p5_gives": _placeable(one.if_p5_gives),
            }
            for one in value.prospects
        ],
    }


def _placeable(value: "hosts_pb2.Placeable") -> Document:
    replicas = {str(gang.gpus_per_replica): gang.replicas for gang in value.largest}
    return {"gpus": value.gpus, "whole_hosts": value.whole_hosts, "replicas": replicas}


def _number(text: str) -> int | float | str | bool | None:
    """A number of a reason, which the wire carries as text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float | bool | None) else text
