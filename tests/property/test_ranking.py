"""Properties of the ranker: P4's walk and the merge that is used for it, P1-P3 against plain sums, I6."""

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.ranker.decider import role
from services.ranker.policy import order, spare_order
from services.ranker.policy.alike import Alike, at_once
from services.ranker.policy.order import fair_order
from services.ranker.policy.setback import place_in_budget
from services.ranker.policy.spare_order import spare_standings
from services.ranker.policy.standing import user_used, weigh
from services.ranker.queue import LISTED_MAX
from services.ranker.state import State
from tenure.domain.host import HostState
from tenure.domain.ids import BudgetPath, HostId, JobId, RunId
from tenure.domain.policy import Policy
from tenure.domain.rates import MILLI
from tenure.domain.reasons import EndCause, JobState
from tenure.domain.tree import PPM, ROOT, BudgetTree, lineage
from tenure.domain.units import HOUR, MINUTE, Millis
from tenure.events.budgets import BudgetTreeChanged, RunCharged
from tenure.events.fact import Recorded
from tenure.events.hosts import CapacityChanged, HostStateChanged
from tenure.events.placing import RunAssigned, RunEnded
from tenure.events.ranking import RankingPublished
from tenure.events.reports import ReplicasExited, ReplicasStarted
from tests.unit.ranker.scene import Scene

TREES: Sequence[Mapping[str, int]] = (
    {"a": 60, "b": 40},
    {"a": 50, "a/x": 70, "a/y": 30, "b": 50, "b/z": 100},
    {"a": 50, "a/x": 50, "a/x/1": 20, "a/x/2": 80, "a/y": 50, "b": 30, "c": 0},
)
BUDGETS = ("a", "b", "c", "a/x", "a/y", "b/z", "a/x/1", "a/x/2")
POLICY = Policy(lookback_ms=6 * HOUR)
steps = st.lists(
    st.tuples(st.sampled_from("jjjjjjjjjjsssaaaeerlhkctdfp"), st.integers(0, 999)), min_size=20, max_size=90
)


class Life:
    """Random but possible lives of jobs and hosts, told to a ranker."""

    def __init__(self) -> None:
        self.scene = Scene(TREES[1], gpus=40, policy=POLICY, users_equal=("a/x",))
        self.scene.capacity(40, host="h1")
        self.assigned: list[RunId] = []
        self.running: list[RunId] = []
        self.count = 0

    def queued(self) -> list[JobId]:
        """Jobs that wait, by id."""
        self.scene.actor.fold()
        return sorted(self.scene.actor.state.queue.jobs())

    def do(self, step: str, value: int) -> None:
        """One thing happens; a step that is not possible now is passed over."""
        scene = self.scene
        scene.now += value * value % (20 * MINUTE)
        if step == "j":
            self.count += 1
            scene.job(
                f"j{value % 7}-{self.count}",
                BUDGETS[value % len(BUDGETS)],
                gpus=1 + value % 5,
                replicas=1 + value % 3,
                min_runtime_ms=(0, HOUR, HOUR, 3 * HOUR)[value % 4],
                user=f"u{value % 3}",
                priority=value % 2,
            )
        elif step == "c":
            scene.capacity(value % 60, host=f"h{value % 2}")
        elif step == "t":
            scene.edit(TREES[value % len(TREES)], users_equal=("a/x", "b")[: value % 3])
        elif step == "h":
            state = (HostState.SUSPECT, HostState.HEALTHY, HostState.LOST)[value % 3]
            scene.host(f"h{value % 2}", state, last_seen=scene.now - value)
        elif step == "p":
            scene.act()
        elif step in "skrd" and self.queued():
            self._of_queued(step, self.queued()[value % len(self.queued())])
        elif step in "aelf":
            self._of_run(step, value)

    def _of_queued(self, step: str, job: JobId) -> None:
        if step == "s":
            self.assigned.append(self.scene.assign(job, hosts=("h0", "h1")))
        elif step == "k":
            self.scene.finish(job, JobState.CANCELLED)
        elif step == "r":
            self.scene.reserve(job)
        else:
            self.scene.drop(job)

    def _of_run(self, step: str, value: int) -> None:
        if step == "a" and self.assigned:
            run = self.assigned.pop(value % len(self.assigned))
            self.scene.start(run)
            self.running.append(run)
        elif step != "a" and self.running:
            run = self.running.pop(value % len(self.running))
            if step == "e":
                self.scene.complete(run)
            elif step == "f":
                self.scene.requeue(run)
            else:
                self.scene.exit(run, only=0)
                self.scene.end(run, EndCause.HOST_LOST)
                self._refund(run, since=self.scene.now - HOUR, until=self.scene.now)

    def _refund(self, run: RunId, *, since: Millis, until: Millis) -> None:
        self.scene.actor.fold()
        found = self.scene.actor.state.runs.get(run)
        if found is None:
            return
        held = [
            one.gpus * max(0, min(one.charged_to, until) - max(one.start, since))
            for one in found.replicas.values()
            if one.start is not None and one.charged_to is not None
        ]
        self.scene.charge(run, charged=0, refunded=sum(held), since=since, until=until)


def lived(story: Iterable[tuple[str, int]]) -> Life:
    """A life after these steps, all of it folded."""
    life = Life()
    for step, value in story:
        life.do(step, value)
    life.scene.actor.fold()
    return life


def walk(state: State, now: Millis, *, most: int = LISTED_MAX) -> list[JobId]:
    """P4 as it is written: from the root take the child with the lowest ratio, take its first job, add, again.

    After `most` picks only the first job of each class of which none was picked is left.
    """
    weights = weigh(state, now)
    used = {path: weights.used(path) for path in weights.entitled}
    by_user = {key: user_used(state, *key, now) for key in state.ledger.users}
    waiting = {budget: alike_cut(state, jobs) for budget, jobs in queued_by_budget(state, allocated=True).items()}

    def ratio(path: BudgetPath) -> float:
        return used[path] / weights.entitled[path] if weights.entitled[path] else math.inf

    def first(budget: BudgetPath) -> JobId:
        jobs = waiting[budget]
        node = state.tree.by_path.get(budget)
        if node is not None and node.users_equal:
            users = sorted({state.jobs[job].user for job in jobs})
            least = min(users, key=lambda user: (by_user.get((budget, user), 0), user))
            jobs = [job for job in jobs if state.jobs[job].user == least]
        return min(jobs, key=lambda job: key_of(state, job))

    picked: list[JobId] = []
    while any(waiting.values()):
        at = ROOT
        while True:
            below = {path for budget in waiting if waiting[budget] for path in lineage(budget)}
            children = sorted(path for path in below if path.rpartition("/")[0] == at and path != ROOT)
            if not children:
                break
            at = min(children, key=lambda path: (ratio(path), path))
            if waiting.get(at) and not any(path.startswith(at + "/") for path in below):
                break
        job = first(at)
        waiting[at].remove(job)
        picked.append(job)
        added = 0 if job in state.reserved else state.jobs[job].commitment_gpu_ms
        for path in lineage(at):
            used[path] += added
        owner = (at, state.jobs[job].user)
        by_user[owner] = by_user.get(owner, 0) + added
        if len(picked) == most:
            seen = {alike_to(state, job) for job in picked}
            waiting = {budget: firsts(state, jobs, seen) for budget, jobs in waiting.items()}
    return picked


def firsts(state: State, jobs: Iterable[JobId], seen: Iterable[Alike]) -> list[JobId]:
    """Of jobs in order, the first of each class that was not seen yet."""
    known, found = list(seen), []
    for job in jobs:
        if alike_to(state, job) not in known:
            known.append(alike_to(state, job))
            found.append(job)
    return found


def key_of(state: State, job: JobId) -> tuple[object, ...]:
    """The job's place in its budget."""
    found = state.jobs[job]
    return place_in_budget(
        job=job,
        priority=found.priority,
        submitted_at=found.submitted_at,
        commitment_gpu_ms=found.commitment_gpu_ms,
        policy=POLICY,
    )


def queued_by_budget(state: State, *, allocated: bool) -> dict[BudgetPath, list[JobId]]:
    """The allocated jobs in the queue, or the unallocated ones."""
    budgets: dict[BudgetPath, list[JobId]] = {}
    for job in sorted(state.queue.jobs()):
        if state.jobs[job].allocated is allocated:
            budgets.setdefault(state.jobs[job].budget, []).append(job)
    return budgets


def alike_to(state: State, name: JobId) -> Alike:
    """The class of a job."""
    job = state.jobs[name]
    node = state.tree.by_path.get(job.budget)
    return Alike(
        job.budget,
        job.user if node is not None and node.users_equal and job.allocated else None,
        job.replicas,
        job.gpus_per_replica,
        job.gpu_type,
        job.min_runtime_ms,
        job.priority,
        name in state.reserved,
        job.topology,
    )


def alike_cut(state: State, jobs: Sequence[JobId]) -> list[JobId]:
    """Of jobs that are alike, as many as could run at once; all of them in order."""
    kept: dict[Alike, int] = {}
    listed = []
    for job in sorted(jobs, key=lambda job: key_of(state, job)):
        alike = alike_to(state, job)
        kept[alike] = kept.get(alike, 0) + 1
        if kept[alike] <= at_once(alike, gpus_by_pool=state.gpus_by_pool):
            listed.append(job)
    return listed


@settings(max_examples=150, deadline=None)
@given(steps)
def test_the_order_is_the_walk_from_the_root(story: list[tuple[str, int]]) -> None:
    life = lived(story)
    state, now = life.scene.actor.state, life.scene.now
    assert fair_order(state, weigh(state, now)) == walk(state, now)


@settings(max_examples=100, deadline=None)
@given(steps, st.integers(1, 12))
def test_behind_the_jobs_in_strict_order_stands_the_first_of_each_class(
    story: list[tuple[str, int]], most: int
) -> None:
    """I4: of many jobs some are listed; every class is among them, and the rest of the walk is theirs."""
    life = lived(story)
    state, now = life.scene.actor.state, life.scene.now
    weights = weigh(state, now)
    spare = spare_standings(state, weights)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "LISTED_MAX", most)
        patch.setattr(spare_order, "LISTED_MAX", most)
        assert fair_order(state, weights) == walk(state, now, most=most)
        listed = spare_order.spare_order(state, spare)
    queued = queued_by_budget(state, allocated=False)
    free = [job for standing in spare for job in alike_cut(state, queued[standing.path])]
    assert listed == free[:most] + firsts(state, free[most:], [alike_to(state, job) for job in free[:most]])


@settings(max_examples=60, deadline=None)
@given(steps, st.integers(0, 100), st.integers(0, 6 * HOUR))
def test_a_prefix_from_a_snapshot_and_the_rest_are_the_whole(
    story: list[tuple[str, int]], cut: int, later: Millis
) -> None:
    """I6: the same bytes, and the same next decision, whatever was decided on the way."""
    life = lived(story)
    ranker, recorded = role(POLICY), life.scene.log.recorded
    kinds = frozenset(ranker.reads)
    whole, part = ranker.initial(), ranker.initial()
    middle = len(recorded) * cut // 100
    for fact in recorded:
        if type(fact.fact) in kinds:
            ranker.evolve(whole, fact)
    for fact in recorded[:middle]:
        if type(fact.fact) in kinds:
            ranker.evolve(part, fact)
            ranker.decide(part, fact.fact.at + later)
    part = ranker.load(ranker.dump(part))
    for fact in recorded[middle:]:
        if type(fact.fact) in kinds:
            ranker.evolve(part, fact)
    assert ranker.dump(part) == ranker.dump(whole)
    assert ranker.decide(part, life.scene.now + later) == ranker.decide(whole, life.scene.now + later)
    assert ranker.dump(part) == ranker.dump(whole)


Span = tuple[BudgetPath, int, Millis, Millis, HostId]
"""A budget was charged for so many GPUs of a host from an instant to another; negative where that was refunded."""


def charged_spans(recorded: Sequence[Recorded], now: Millis) -> list[Span]:
    """P2 in words, over the whole log: what every replica of every allocated run held, less what was refunded."""
    runs: dict[RunId, RunAssigned] = {}
    held: dict[tuple[RunId, int], list[Millis | None]] = {}
    silent: dict[HostId, Millis] = {}
    over: dict[RunId, None] = {}
    spans: list[Span] = []
    for fact in (one.fact for one in recorded):
        if isinstance(fact, RunAssigned) and fact.allocated:
            runs[fact.run] = fact
            held |= {(fact.run, place.replica): [None, None] for place in fact.placement}
        elif isinstance(fact, ReplicasStarted) and fact.run in runs:
            for begun in fact.replicas:
                held[fact.run, begun.replica][0] = begun.at
        elif isinstance(fact, ReplicasExited) and fact.run in runs and fact.run not in over:
            for gone in fact.replicas:
                ends = held[fact.run, gone.replica]
                ends[1] = gone.at if ends[1] is None else ends[1]
        elif isinstance(fact, HostStateChanged):
            silent.pop(fact.host, None)
            if fact.state in (HostState.SUSPECT, HostState.LOST):
                silent[fact.host] = fact.last_seen
            for (run, number), ends in held.items():
                on_it = runs[run].placement[number].host == fact.host
                if fact.state is HostState.LOST and on_it and run not in over and ends[1] is None:
                    ends[1] = fact.last_seen
        elif isinstance(fact, RunEnded) and fact.run in runs:
            over[fact.run] = None
            for place in runs[fact.run].placement:
                ends = held[fact.run, place.replica]
                ends[1] = silent.get(place.host, fact.at) if ends[1] is None else ends[1]
        elif isinstance(fact, RunCharged) and fact.refund_since is not None and fact.refund_until is not None:
            for (run, number), (start, end) in held.items():
                if run == fact.run and start is not None and end is not None:
                    begin, until = max(start, fact.refund_since), min(max(start, end), fact.refund_until)
                    place = runs[run].placement[number]
                    spans.append((fact.budget, -len(place.gpus), begin, max(begin, until), place.host))
    for (run, number), (start, end) in held.items():
        place = runs[run].placement[number]
        last = silent.get(place.host, now) if end is None else end
        if start is not None:
            spans.append((runs[run].budget, len(place.gpus), start, max(start, last), place.host))
    return spans


def available_spans(recorded: Sequence[Recorded], now: Millis) -> list[tuple[BudgetTree, int, Millis, Millis]]:
    """P1 in words: between any two of its facts the tree and the GPUs are what they were."""
    tree, gpus, since = BudgetTree(), dict[HostId, int](), 0
    spans = []
    for fact in (one.fact for one in recorded):
        if isinstance(fact, BudgetTreeChanged | CapacityChanged):
            spans.append((tree, sum(gpus.values()), since, fact.at))
            since = fact.at
        if isinstance(fact, BudgetTreeChanged):
            tree = fact.tree
        elif isinstance(fact, CapacityChanged):
            gpus[fact.host] = fact.gpus
    return [*spans, (tree, sum(gpus.values()), since, now)]


@settings(max_examples=100, deadline=None)
@given(steps, st.lists(st.integers(0, 9 * HOUR), min_size=1, max_size=3))
def test_use_and_entitlement_are_plain_sums(story: list[tuple[str, int]], later: list[Millis]) -> None:
    """P1-P3 to the millisecond, against sums over the spans that the facts speak of, at any instant asked for."""
    life = lived(story)
    for length in later:
        check_sums(life.scene.actor.state, life.scene.log.recorded, life.scene.now + length)


def check_sums(state: State, recorded: Sequence[Recorded], now: Millis) -> None:
    """The numbers of every budget at one instant."""
    since = now - POLICY.lookback_ms
    weights = weigh(state, now)
    spans = charged_spans(recorded, now)
    for path in weights.charged:
        inside = [span for span in spans if path in lineage(span[0])]
        assert weights.charged[path] == sum(
            gpus * max(0, min(until, now) - max(begin, since)) for _, gpus, begin, until, _ in inside
        )
        runs = [run for run in state.runs.values() if path in lineage(run.budget) and run.ended_at is None]
        reserved = [state.jobs[job] for job in state.reserved if path in lineage(state.jobs[job].budget)]
        assert weights.committed[path] == sum(run.commitment_at(now) for run in runs) + sum(
            job.commitment_gpu_ms for job in reserved
        )
    for path, entitled in weights.entitled.items():
        total, share = Fraction(0), Fraction(0)
        for tree, gpus, begin, until in available_spans(recorded, now):
            known = all(above in tree.by_path for above in lineage(path))
            share = Fraction(math.prod(tree.by_path[above].share_ppm for above in lineage(path)) if known else 0)
            share /= PPM ** len(list(lineage(path)))
            total += share * gpus * max(0, min(until, now) - max(begin, since))
        least = share * 1000 * Fraction(state.capacity.rate or MILLI, MILLI)
        exact = total if total > least else least
        assert entitled == (max(1, math.floor(exact + Fraction(1, 2))) if exact else 0)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 999), st.integers(0, 3)), min_size=1, max_size=25), st.randoms())
def test_the_order_does_not_depend_on_the_order_of_arrival(jobs: list[tuple[int, int]], random: Random) -> None:
    """Jobs that were submitted at the same instants stand in one order, however they were admitted. It is total."""
    numbered = list(enumerate(jobs))
    shuffled = list(numbered)
    random.shuffle(shuffled)
    orders = []
    for arrival in (numbered, shuffled):
        scene = Scene(TREES[2], gpus=1000, policy=POLICY, users_equal=("a/y",))
        for number, (value, budget) in arrival:
            scene.job(
                f"j{number}",
                ("a/x/1", "a/x/2", "a/y", "b")[budget],
                gpus=1 + value % 9,
                min_runtime_ms=value % 3 * HOUR,
                user=f"u{value % 4}",
                submitted_at=-(value % 2) * HOUR,
            )
        orders.append(scene.order(HOUR))
    assert orders[0] == orders[1]
    assert sorted(orders[0]) == sorted(f"j{number}" for number, _ in numbered)


def test_the_walk_and_the_merge_agree_on_a_worked_example() -> None:
    """Two budgets with shares 60 and 40, jobs of 10 GPU-hours: 0/60 a, 0/40 b, 10/60 a, 20/60 a, 10/40 b ..."""
    scene = Scene(TREES[0], gpus=100, policy=POLICY)
    for number in range(3):
        scene.job(f"a{number}", "a")
        scene.job(f"b{number}", "b")
    scene.actor.fold()
    expected = ["a0", "b0", "a1", "b1", "a2", "b2"]
    assert walk(scene.actor.state, HOUR) == expected
    assert scene.order(HOUR) == expected


@settings(max_examples=40, deadline=None)
@given(steps)
def test_a_ranking_lists_queued_jobs_once_and_every_class_of_them(story: list[tuple[str, int]]) -> None:
    """I4: no queued job is out of reach: whatever is not listed stands behind one that is alike and listed."""
    life = lived(story)
    state = life.scene.actor.state
    decision = life.scene.actor.role.decide(state, life.scene.now + 6 * HOUR)
    if not len(state.queue):
        assert decision.facts == ()
        return
    said = decision.facts[0] if decision.facts else state.said
    assert isinstance(said, RankingPublished)
    queued = frozenset(state.queue.jobs())
    listed = [job for job in said.order if job in queued]
    assert len(listed) == len(set(listed))
    shapes = {(j.budget, j.replicas, j.gpus_per_replica, j.min_runtime_ms) for j in map(state.jobs.__getitem__, queued)}
    assert shapes == {
        (j.budget, j.replicas, j.gpus_per_replica, j.min_runtime_ms) for j in map(state.jobs.__getitem__, listed)
    }
    allocated = [state.jobs[job].allocated for job in listed]
    assert allocated == sorted(allocated, reverse=True)
