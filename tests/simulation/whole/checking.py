"""What must hold of the log that a run leaves, whatever went wrong. Reads the log, and what clients were told."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tenure.domain.host import HostState
from tenure.domain.ids import FactId, JobId
from tenure.domain.reasons import Reason
from tenure.domain.units import MINUTE, Millis
from tenure.events.budgets import JobRejected
from tenure.events.fact import Fact, Recorded
from tenure.events.hosts import HostStateChanged
from tenure.events.intake import JobSubmitted
from tenure.events.placing import (
    JobFinished,
    ReservationDropped,
    ReservationMade,
    RunAssigned,
)
from tenure.export.jsonl import lines
from tenure.runtime.options import build_policy
from tenure.runtime.role import Role
from tests.checks.export_lines import broken_invariants
from tests.checks.invariants import check_log
from tests.property.test_promises import met_promises
from tests.simulation.whole.plan import POLICY

LOST_AFTER: Millis = build_policy(POLICY).lost_after_ms
CALM_LATE_MAX: Millis = MINUTE
"""What short crashes and slow roads may add to the start of a gang whose time has come."""


def check_run(
    recorded: Sequence[Recorded], *, acknowledged: Mapping[str, JobId], refused: Mapping[str, str], calm: bool
) -> None:
    """Raise AssertionError with what is wrong."""
    once = first_of_each(recorded)
    facts = [entry.fact for entry in once]
    check_log(once)
    check_latest_starts(facts)
    check_acknowledged(facts, acknowledged=acknowledged, refused=refused)
    check_losses(facts)
    if calm:
        told = [msgspec.json.decode(line) for line in lines(once)]
        broken = [found for found in broken_invariants(told) if "GPU-s" not in found]  # counts gangs, not replicas
        assert not broken, f"the export: {broken[:5]}"
        check_service(facts)
        met_promises(facts, end=facts[-1].at, late_max=CALM_LATE_MAX)


def first_of_each(recorded: Iterable[Recorded]) -> list[Recorded]:
    """Facts that were sent again after the log had forgotten their ids stand twice; readers must bear that."""
    seen: dict[FactId, Recorded] = {}
    for entry in recorded:
        seen.setdefault(entry.fact.id, entry)
    return list(seen.values())


def check_latest_starts(facts: Iterable[Fact]) -> None:
    """P8: while a reservation stands its latest start never moves later."""
    standing: dict[JobId, Millis] = {}
    for fact in facts:
        if isinstance(fact, ReservationMade):
            assert fact.latest_start <= standing.get(fact.job, fact.latest_start), f"P8: {fact.job} slips: {fact}"
            standing[fact.job] = fact.latest_start
        elif isinstance(fact, ReservationDropped | JobFinished | RunAssigned):
            standing.pop(fact.job, None)


def check_losses(facts: Iterable[Fact]) -> None:
    """P2: a host is lost only on evidence: it has been silent, and by the numbers for long enough."""
    for fact in facts:
        if isinstance(fact, HostStateChanged) and fact.why.reason is Reason.HOST_SILENT_TOO_LONG:
            silent_ms = int(fact.why.numbers["silent_ms"] or 0)
            assert silent_ms >= LOST_AFTER, f"P2: {fact.host} is lost, and was heard {silent_ms} ms before"


def check_service(facts: Iterable[Fact]) -> None:
    """Calm: no host leaves service, but one on which the jobs of several users kept dying (P9)."""
    for fact in facts:
        if isinstance(fact, HostStateChanged) and fact.state is not HostState.HEALTHY:
            on_evidence = fact.why.reason in (Reason.HOST_JOBS_FAIL, Reason.HOST_EMPTY)
            assert on_evidence, f"P9: {fact.host} is {fact.state} although nothing is wrong: {fact.why}"


def check_acknowledged(facts: Sequence[Fact], *, acknowledged: Mapping[str, JobId], refused: Mapping[str, str]) -> None:
    """No acknowledged submission is lost, none is doubled, and each has come to its end: every wait is bounded."""
    submitted = [fact for fact in facts if isinstance(fact, JobSubmitted)]
    keys: dict[str, list[JobId]] = defaultdict(list)
    for fact in submitted:
        keys[f"{fact.spec.user}/{fact.idempotency_key}"].append(fact.job)
    doubled = {key: jobs for key, jobs in keys.items() if len(jobs) > 1}
    assert not doubled, f"submitted twice under one key: {doubled}"
    jobs = {fact.job for fact in submitted}
    for key, job in acknowledged.items():
        assert job in jobs, f"lost: {job} ({key}) was acknowledged and is not in the log"
    ended = {fact.job for fact in facts if isinstance(fact, JobFinished | JobRejected)}
    waiting = sorted(jobs - ended)
    assert not waiting, f"bounded wait: {waiting} should long be over"
    assert not refused, f"good submissions were refused: {refused}"


def check_fold(role: Role[Any], recorded: Sequence[Recorded], state: Any, *, now: Millis) -> None:
    """I6: the state a process came to, through snapshots and restarts, is what the whole log folds to."""
    fresh = role.initial()
    for entry in recorded:
        if type(entry.fact) in role.reads and entry.position <= state.position:
            role.evolve(fresh, entry)
    once, again = role.decide(fresh, now), role.decide(role.load(role.dump(state)), now)
    assert [*once.facts] == [*again.facts], f"I6: {role.name} decides {again.facts}, by the whole log {once.facts}"
