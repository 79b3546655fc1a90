"""What no fact may say, whatever else is known: outside input is validated before any role folds it (decision 0018).

The answer follows from the fact alone, so every reader of the log gives the same one. What depends on the state (a run
that nobody started, a host that never registered) is no question here: `evolve` passes such a report over.
"""

from collections.abc import Callable, Iterable
from typing import Any

from tenure.domain.host import HostSpec
from tenure.domain.job import JobSpec
from tenure.domain.policy import check_policy
from tenure.domain.refusal import Refusal
from tenure.domain.units import DAY, Millis
from tenure.events.catalogue import Kind
from tenure.events.fact import Fact
from tenure.events.intake import DrainRequested, JobCancelRequested, JobSubmitted, RepairCompleted, ResumeRequested
from tenure.events.policy import PolicyChanged
from tenure.events.reports import (
    CheckpointReported,
    Heartbeat,
    HostBeat,
    HostRegistered,
    HostSignal,
    ReplicaExit,
    ReplicasExited,
    ReplicasStarted,
    ReplicaStart,
    Segment,
)

AT_MAX: Millis = 4_102_444_800_000
"""The year 2100: later instants are damage, and do not fit everywhere they are written to."""
COUNT_MAX = 1_000_000
NAME_MAX, TEXT_MAX = 256, 4_096
SEGMENT_MAX: Millis = 31 * DAY
"""Agents cut occupancy at full hours; a longer piece would be millions of rows in the books."""


def impossible(fact: Fact) -> str:
    """Why the fact cannot be true, naming the field; empty if it can."""
    if not 0 <= fact.at <= AT_MAX:
        return f"at: {_short(fact.at)} is no instant between 1970 and 2100"
    if not _is_name(fact.id):
        return f"id: {_short(fact.id)} is no id"
    check = _CHECKS.get(type(fact))
    return "" if check is None else check(fact)


def _is_name(text: str) -> bool:
    return 0 < len(text) <= NAME_MAX and text.isprintable()


def _is_instant(at: Millis) -> bool:
    return 0 <= at <= AT_MAX


def _is_count(number: int) -> bool:
    return 0 <= number <= COUNT_MAX


def _short(value: object) -> str:
    return repr(value)[:64]


def _names(fields: Iterable[tuple[str, str]]) -> str:
    for field, name in fields:
        if not _is_name(name):
            return f"{field}: {_short(name)} is no name"
    return ""


def _registered(fact: HostRegistered) -> str:
    if len({spec.host for spec in fact.hosts}) < len(fact.hosts):
        return "hosts: one is named twice"
    return _names([("agent", fact.agent)]) or next(filter(None, map(_spec, fact.hosts)), "")


def _spec(spec: HostSpec) -> str:
    if not _is_count(spec.gpus):
        return f"hosts.gpus: {_short(spec.gpus)} on {spec.host[:64]!r}"
    for field, text in (("block", spec.block), ("cluster", spec.cluster), ("address", spec.address)):
        if text and not _is_name(text):
            return f"hosts.{field}: {_short(text)} is no name"
    return _names([("hosts.host", spec.host), ("hosts.gpu_type", spec.gpu_type)])


def _heartbeat(fact: Heartbeat) -> str:
    return _names([("agent", fact.agent)]) or next(filter(None, map(_beat, fact.hosts)), "")


def _beat(beat: HostBeat) -> str:
    if not _is_name(beat.host):
        return f"hosts.host: {_short(beat.host)} is no name"
    if not _is_count(beat.gpus):
        return f"hosts.gpus: {_short(beat.gpus)} on {beat.host}"
    for run in beat.runs:
        if not _is_name(run):
            return f"hosts.runs: {_short(run)} is no run"
    return next(filter(None, map(_segment, beat.segments)), "")


def _segment(held: Segment) -> str:
    if not (0 <= held.since <= held.until <= AT_MAX and held.until - held.since <= SEGMENT_MAX):
        return f"hosts.segments: from {_short(held.since)} to {_short(held.until)} is no time that a run held GPUs"
    if not _is_count(abs(held.gpus)):
        return f"hosts.segments.gpus: {_short(held.gpus)}"
    if held.busy_milli is not None and not _is_count(held.busy_milli):
        return f"hosts.segments.busy_milli: {_short(held.busy_milli)}"
    return _names([("hosts.segments.run", held.run), ("hosts.segments.job", held.job)])


def _of_run(fact: ReplicasStarted | ReplicasExited) -> str:
    numbers = [each.replica for each in fact.replicas]
    if len(set(numbers)) < len(numbers):
        return "replicas: one is named twice"
    return _names([("run", fact.run), ("job", fact.job)]) or next(filter(None, map(_replica, fact.replicas)), "")


def _replica(each: ReplicaStart | ReplicaExit) -> str:
    if not _is_count(each.replica):
        return f"replicas.replica: {_short(each.replica)}"
    began = each.started_at if isinstance(each, ReplicaExit) else None
    if not _is_instant(each.at) or (began is not None and not _is_instant(began)):
        return f"replicas.at: {_short(each.at)} is no instant between 1970 and 2100"
    if isinstance(each, ReplicaExit) and max(abs(each.code or 0), abs(each.signal or 0)) > COUNT_MAX:
        return "replicas: no process ends with such a number"
    return _names([("replicas.host", each.host)])


def _checkpoint(fact: CheckpointReported) -> str:
    return _names([("run", fact.run), ("job", fact.job), ("host", fact.host)])


def _signal(fact: HostSignal) -> str:
    for each in fact.signals:
        if not (_is_instant(each.first_at) and _is_instant(each.last_at) and each.count <= AT_MAX):
            return f"signals: {_short(each.first_at)} to {_short(each.last_at)} is no time"
        if max(map(len, (each.device, each.source, each.code, each.text, each.evidence))) > TEXT_MAX:
            return f"signals: a text of more than {TEXT_MAX} characters"
    return _names([("host", fact.host)])


def _submitted(fact: JobSubmitted) -> str:
    return _names([("job", fact.job)]) or _job(fact.spec)


def _job(spec: JobSpec) -> str:
    sizes = {"replicas": spec.replicas, "gpus_per_replica": spec.gpus_per_replica, "priority": abs(spec.priority)}
    for field, size in sizes.items():
        if not _is_count(size):
            return f"spec.{field}: {_short(size)}"
    for field, length in (("min_runtime_ms", spec.min_runtime_ms), ("grace_ms", spec.grace_ms)):
        if not _is_instant(length):
            return f"spec.{field}: {_short(length)}"
    return ""


def _cancel(fact: JobCancelRequested) -> str:
    return _names([("job", fact.job)])


def _order(fact: DrainRequested | ResumeRequested | RepairCompleted) -> str:
    if isinstance(fact, DrainRequested) and fact.deadline is not None and not _is_instant(fact.deadline):
        return f"deadline: {_short(fact.deadline)} is no instant between 1970 and 2100"
    return _names([("host", fact.host)])


def _policy(fact: PolicyChanged) -> str:
    try:
        check_policy(fact.policy)
    except Refusal as refusal:
        return f"policy.{refusal}"
    return ""


_CHECKS: dict[Kind, Callable[[Any], str]] = {
    HostRegistered: _registered,
    Heartbeat: _heartbeat,
    ReplicasStarted: _of_run,
    ReplicasExited: _of_run,
    CheckpointReported: _checkpoint,
    HostSignal: _signal,
    JobSubmitted: _submitted,
    JobCancelRequested: _cancel,
    DrainRequested: _order,
    ResumeRequested: _order,
    RepairCompleted: _order,
    PolicyChanged: _policy,
}
"""What comes from outside: agents and people. What deciders say of it, they have derived."""
