"""Properties of the read model: snapshots, bounds, and the same job told from its own facts."""

import random

import pytest

from services.gateway import keys as keys_module
from services.gateway import state as state_module
from services.gateway.evolve import evolve
from services.gateway.history import job_from_story
from services.gateway.keys import KeyEntry
from services.gateway.policy.listing import count_jobs, list_jobs
from services.gateway.policy.totals import budgets_in_use, cluster_total
from services.gateway.state import State, dump, initial, load
from tenure.domain.ids import BudgetPath, JobId, Position, UserName
from tenure.domain.job import JobSpec, Launch
from tenure.domain.reasons import EndCause, JobState, Reason, Why
from tenure.events.budgets import BudgetTreeChanged, JobAdmitted
from tenure.events.fact import Fact, Recorded
from tenure.events.intake import BatchPart, JobSubmitted
from tenure.events.placing import JobFinished, JobRequeued, RunEnded, RunStarted
from tenure.events.ranking import RankingPublished
from tests.contract.gateway_rig import NOW, a_cluster, assigned, place, tree

WHY = Why(rule="P10", reason=Reason.END_COMPLETED)


def a_log(seed: int, jobs: int = 40) -> list[Recorded]:
    """A random but legal history of some jobs on four hosts."""
    chance, state, facts = random.Random(seed), initial(), []

    def write(fact: Fact) -> None:
        facts.append(Recorded(Position(len(facts) + 1), fact))
        evolve(state, facts[-1])

    for fact in a_cluster():
        write(fact)
    todo = [JobId(f"j{number:03}") for number in range(jobs)]
    while todo:
        job = chance.choice(todo)
        entry = state.jobs.get(job)
        if entry is None:
            write(a_submission(job, chance))
        elif entry.state is JobState.SUBMITTED:
            write(JobAdmitted(at=NOW, job=job, spec=entry.spec, submitted_at=NOW))
        elif entry.state is JobState.QUEUED and chance.random() < 0.2:
            write(JobFinished(at=NOW, job=job, state=JobState.CANCELLED, why=WHY))
            todo.remove(job)
        elif entry.state is JobState.QUEUED:
            write(assigned(state, job, place(f"h{chance.randrange(4):03}", gpus=1), number=len(entry.runs) + 1))
        elif entry.state is JobState.STARTING:
            run = entry.runs[-1].run
            write(RunStarted(at=NOW, run=run, job=job, protected_until=NOW, charged=True, hosts={}))
        elif entry.state is JobState.RUNNING:
            write(RunEnded(at=NOW, run=entry.runs[-1].run, job=job, cause_of_end=EndCause.PREEMPTED, why=WHY))
        elif chance.random() < 0.4:
            write(JobRequeued(at=NOW, job=job, run=entry.runs[-1].run, submitted_at=NOW, resume_count=1, why=WHY))
        else:
            write(JobFinished(at=NOW, job=job, state=JobState.COMPLETED, why=WHY))
            todo.remove(job)
    write(RankingPublished(at=NOW, order=(JobId("j001"),), standings=(), basis=Position(1)))
    return facts


def a_submission(job: JobId, chance: random.Random) -> JobSubmitted:
    spec = JobSpec(
        budget=BudgetPath(chance.choice(["science/bio", "science/chem", "robotics"])),
        user=UserName(chance.choice(["ana", "ben"])),
        gpus_per_replica=1,
        launch=Launch(command=("true",), environment={"A": job}),
        min_runtime_ms=chance.choice([0, 900]),
    )
    return JobSubmitted(at=NOW, job=job, spec=spec, idempotency_key=chance.choice([None, f"key-{job}"]))


def fold(facts: list[Recorded], state: State | None = None) -> State:
    state = initial() if state is None else state
    for recorded in facts:
        evolve(state, recorded)
    return state


@pytest.mark.parametrize("seed", range(8))
def test_a_snapshot_and_the_rest_is_the_same_as_all(seed: int) -> None:
    facts = a_log(seed)
    cut = random.Random(seed).randrange(len(facts))
    resumed = fold(facts[cut:], load(dump(fold(facts[:cut]))))
    assert dump(resumed) == dump(fold(facts))


@pytest.mark.parametrize("seed", range(4))
def test_totals_agree_with_the_jobs_they_count(seed: int) -> None:
    facts = a_log(seed)
    for cut in range(0, len(facts), 7):
        state = fold(facts[:cut])
        live = [entry for entry in state.jobs.values() if not entry.state.final]
        counts = count_jobs(state, budget="", user="")
        assert sum(counts.values()) == len(state.jobs)
        assert {entry.job for entry in live} == {job for jobs in state.live.values() for job in jobs}
        assert set(budgets_in_use(state)) == {entry.spec.budget for entry in live}
        held = sum(run.gpus for entry in live for run in entry.runs if run.cause_of_end is None)
        total = cluster_total(state)
        assert total.allocated + total.unallocated == held
        assert sum(host.held for host in state.hosts.values()) == held
        assert len(list_jobs(state, states=(), budget="", user="", limit=1000)) == len(state.jobs)


@pytest.mark.parametrize("seed", range(4))
def test_a_job_told_from_its_own_facts_is_the_same(seed: int) -> None:
    facts = a_log(seed)
    state = fold(facts)
    for job, entry in state.jobs.items():
        told = job_from_story([r for r in facts if getattr(r.fact, "job", None) == job], job)
        assert told == entry
    assert job_from_story([], JobId("j000")) is None


def test_only_the_newest_jobs_that_are_over_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "OVER_KEPT", 5)
    state = fold(a_log(1))
    over = [recorded.fact for recorded in a_log(1) if isinstance(recorded.fact, JobFinished)]
    assert list(state.over) == [fact.job for fact in over[-5:]]
    assert (state.forgotten, len(state.jobs)) == (35, 5)
    assert sum(count_jobs(state, budget="", user="").values()) == 40


def test_only_the_newest_keys_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_module, "KEYS_KEPT", 3)
    facts = a_log(2)
    keyed = [r.fact for r in facts if isinstance(r.fact, JobSubmitted) and r.fact.idempotency_key]
    kept = fold(facts).keys
    first = [
        known and known.first for known in (kept.get(fact.spec.user, fact.idempotency_key or "") for fact in keyed)
    ]
    assert first == [None] * (len(keyed) - 3) + [fact.job for fact in keyed[-3:]] and len(kept) == 3


def test_a_key_counts_how_much_of_its_batch_is_there() -> None:
    spec = JobSpec(budget="science/chem", user=UserName("ana"), gpus_per_replica=1, launch=Launch(command=("true",)))
    state = initial()
    for number in range(3):
        part = BatchPart(first=JobId("j0"), number=number, count=4, body="b")
        fact = JobSubmitted(at=NOW, job=JobId(f"j{number}"), spec=spec, idempotency_key="k", batch=part)
        evolve(state, Recorded(Position(number + 1), fact))
    known = state.keys.get(UserName("ana"), "k")
    assert known == KeyEntry(first=JobId("j0"), count=4, body="b", seen=3)
    assert state.keys.get(UserName("anak"), "") is state.keys.get(UserName("bo"), "k") is None


def test_damaged_snapshots_are_refused() -> None:
    with pytest.raises(ValueError, match=r"."):
        load(b"\x93\x01\x02\x03")


def test_every_change_of_a_share_is_kept_with_before_and_after() -> None:
    state = fold([Recorded(Position(n), fact) for n, fact in enumerate(a_cluster(), start=1)])
    change = BudgetTreeChanged(
        at=NOW + 5, tree=tree(science=50, science__bio=50, art=10), by=UserName("mia"), comment="cut"
    )
    evolve(state, Recorded(Position(state.position + 1), change))
    last = [(c.path, c.share_ppm_before, c.share_ppm_after) for c in state.changes if c.comment == "cut"]
    assert last == [
        ("art", None, 100_000),
        ("robotics", 400_000, None),
        ("science", 600_000, 500_000),
        ("science/chem", 500_000, None),
    ]
