"""A host reports of replicas that are another's: no role that decides or charges believes it."""

from collections.abc import Sequence

import pytest

from services.budget.decider import role as budget
from services.placer.decider import role as placer
from services.ranker.decider import role as ranker
from tenure.domain.host import HostSpec
from tenure.domain.ids import HostId, Position
from tenure.domain.job import JobSpec, Launch
from tenure.domain.policy import Policy
from tenure.events.budgets import JobAdmitted
from tenure.events.fact import Fact, Recorded
from tenure.events.reports import (
    CheckpointReported,
    HostRegistered,
    ReplicaExit,
    ReplicasExited,
    ReplicasStarted,
    ReplicaStart,
)
from tenure.runtime.role import Role
from tests.unit.agent.runs import JOB, RUN, assigned

POLICY = Policy()
ROLES = [budget(POLICY), placer(POLICY), ranker(POLICY)]
LAUNCH = Launch(command=("true",))
SPEC = JobSpec(budget="a", user="u", gpus_per_replica=2, replicas=2, min_runtime_ms=60_000, launch=LAUNCH)  # type: ignore[arg-type]
HOSTS = tuple(HostSpec(host=HostId(host), gpus=8, gpu_type="t", block="b", cluster="c") for host in ("h0", "h1"))
REGISTERED = HostRegistered(at=0, agent="a", hosts=HOSTS)
GIVEN = (REGISTERED, JobAdmitted(at=0, job=JOB, spec=SPEC, submitted_at=0), assigned("h0", "h1", launch=LAUNCH))


def said(host: str) -> list[Fact]:
    """All that an agent can say of replica 0."""
    start = ReplicaStart(replica=0, host=HostId(host), at=5_000)
    gone = ReplicaExit(replica=0, host=HostId(host), at=9_000, started_at=5_000, code=0)
    return [
        ReplicasStarted(at=5_000, run=RUN, job=JOB, replicas=(start,)),
        CheckpointReported(at=6_000, run=RUN, job=JOB, host=HostId(host)),
        ReplicasExited(at=9_000, run=RUN, job=JOB, replicas=(gone,)),
    ]


def folded(role: Role, facts: Sequence[Fact]) -> bytes:  # type: ignore[type-arg]
    """The state after these facts, as a snapshot holds it; always at one position."""
    state = role.initial()
    for number, fact in enumerate(facts, start=1):
        if type(fact) in role.reads:
            role.evolve(state, Recorded(Position(number), fact))
    state.position = Position(99)
    return role.dump(state)


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_only_the_host_of_a_replica_is_believed(role: Role) -> None:  # type: ignore[type-arg]
    assert folded(role, [*GIVEN, *said("h9")]) == folded(role, GIVEN)
    assert folded(role, [*GIVEN, *said("h0")]) != folded(role, GIVEN)
    spoken = said("h1")
    forged = [fact for fact in spoken if not isinstance(fact, CheckpointReported)]  # a run's progress is all its hosts'
    assert folded(role, [*GIVEN, *forged]) == folded(role, GIVEN)
