"""P1-P3 with exchange rates that change, against plain sums over the spans that the facts speak of, exactly."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from services.ranker.decider import role
from services.ranker.policy.order import fair_order
from services.ranker.policy.standing import weigh
from services.ranker.queue import Entry
from services.ranker.state import State
from tenure.domain.ids import HostId, JobId
from tenure.domain.rates import MILLI
from tenure.domain.tree import PPM, BudgetTree, lineage
from tenure.domain.units import HOUR, Millis
from tenure.events.budgets import BudgetTreeChanged
from tenure.events.fact import Recorded
from tenure.events.hosts import CapacityChanged
from tenure.events.policy import PolicyChanged
from tests.property.test_ranking import POLICY, Life, charged_spans

TYPES = {HostId("h0"): "H100", HostId("h1"): "B200"}
RATES = ({"B200": 2_500}, {"B200": 4_001, "H100": 900}, {}, {"H100": 3})
steps = st.lists(st.tuples(st.sampled_from("jjjjjjssssaaaeelfrhctww"), st.integers(0, 999)), min_size=20, max_size=70)


class WeighedLife(Life):
    """The same life on two hosts of different types, every run on one of them, under rates that change."""

    def __init__(self) -> None:
        super().__init__()
        self.scene.capacity(40, host="h1", gpu_type="B200")
        self.scene.change_policy(replace(POLICY, rates_milli=RATES[0]))

    def do(self, step: str, value: int) -> None:
        """As there; `w` changes the rates, and hosts keep their types."""
        if step == "w":
            self.scene.now += value * 7_000
            self.scene.change_policy(replace(POLICY, rates_milli=RATES[value % len(RATES)]))
        elif step == "c":
            host = HostId(f"h{value % 2}")
            self.scene.capacity(value % 60, host=host, gpu_type=TYPES[host])
        elif step == "s" and self.queued():
            job = self.queued()[value % len(self.queued())]
            self.assigned.append(self.scene.assign(job, hosts=[f"h{value % 2}"]))
        else:
            super().do(step, value)


class MovingLife(WeighedLife):
    """Hosts come, are relabelled and move between clusters as well, and jobs name a cluster, a type, or any."""

    TYPES = ("H100", "B200", "A100", "CPU")

    def do(self, step: str, value: int) -> None:
        """As there, but `c` gives a host another type or cluster, too, and `j` a job that names them."""
        scene = self.scene
        if step == "c":
            host = f"h{value % 3}"
            scene.register(host, cluster=("east", "west")[value % 2])
            scene.capacity(value % 60, host=host, gpu_type=self.TYPES[value % 4])
        elif step == "j":
            self.count += 1
            scene.job(
                f"j{self.count}",
                ("a", "b", "a/x")[value % 3],
                gpus=1 + value % 5,
                cluster=(None, "east", "west")[value % 3],
                gpu_type=(None, None, *self.TYPES)[value % 6],
            )
        else:
            super().do(step, value)


def eras(recorded: Sequence[Recorded], host: HostId) -> Iterator[tuple[float, float, int]]:
    """From when to when which rate holds on a host: from the next full hour on, the first for ever before."""
    changed = [fact for fact in (one.fact for one in recorded) if isinstance(fact, PolicyChanged)]
    since = [-math.inf, *(math.ceil(fact.at / HOUR) * HOUR for fact in changed[1:])]
    for index, fact in enumerate(changed):
        until = since[index + 1] if index + 1 < len(changed) else math.inf
        yield since[index], until, fact.policy.rates_milli.get(TYPES[host], MILLI)


def cost(recorded: Sequence[Recorded], host: HostId, gpus: int, since: Millis, until: Millis) -> Fraction:
    """What so many GPUs of a host cost in a span, in GPU-milliseconds of account."""
    return sum(
        (Fraction(gpus * milli) * int(max(0, min(until, end) - max(since, begin))) / MILLI)
        for begin, end, milli in eras(recorded, host)
    ) + Fraction(0)


def nearest(amount: Fraction) -> int:
    return math.floor(amount + Fraction(1, 2))


def available(recorded: Sequence[Recorded], now: Millis) -> Iterator[tuple[BudgetTree, HostId, int, Millis, Millis]]:
    """The tree and the GPUs of each host between any two facts that change them."""
    tree, gpus, since = BudgetTree(), dict[HostId, int](), 0
    for fact in (one.fact for one in recorded):
        if isinstance(fact, BudgetTreeChanged | CapacityChanged):
            yield from ((tree, host, number, since, fact.at) for host, number in gpus.items())
            since = fact.at
        if isinstance(fact, BudgetTreeChanged):
            tree = fact.tree
        elif isinstance(fact, CapacityChanged):
            gpus[fact.host] = fact.gpus
    yield from ((tree, host, number, since, now) for host, number in gpus.items())


@settings(max_examples=60, deadline=None)
@given(steps, st.lists(st.integers(0, 9 * HOUR), min_size=1, max_size=3), st.integers(0, 100))
def test_charge_commitment_and_entitlement_are_plain_sums(
    story: list[tuple[str, int]], later: list[Millis], cut: int
) -> None:
    """At any instant, whatever was asked before, and from a snapshot as well."""
    life = WeighedLife()
    for number, (step, value) in enumerate(story):
        life.do(step, value)
        life.scene.actor.fold()
        if number == cut:
            ranker = role(POLICY)
            life.scene.actor.state = ranker.load(ranker.dump(life.scene.actor.state))
        if number % 3 == 0:
            weigh(life.scene.actor.state, life.scene.now)  # lines are drawn, and bend as facts come
    for length in later:
        check(life, life.scene.now + length)


@settings(max_examples=100, deadline=None)
@given(steps, st.integers(0, 9))
def test_from_a_snapshot_the_order_and_what_jobs_add_are_the_same(story: list[tuple[str, int]], cut: int) -> None:
    """I6, whatever types and clusters came and went before it, and after it."""
    life, ranker = MovingLife(), role(POLICY)
    for step, value in story:
        life.do(step, value)
    life.scene.actor.fold()
    whole, part = ranker.initial(), ranker.initial()
    for number, recorded in enumerate(life.scene.log.recorded):
        if type(recorded.fact) not in ranker.reads:
            continue
        ranker.evolve(whole, recorded)
        ranker.evolve(part, recorded)
        if number % 10 == cut:
            part = ranker.load(ranker.dump(part))
            assert listed(part) == listed(whole)
    part = ranker.load(ranker.dump(part))
    assert (part.gpus_by_pool, listed(part)) == (whole.gpus_by_pool, listed(whole))
    now = life.scene.now
    assert fair_order(part, weigh(part, now)) == fair_order(whole, weigh(whole, now))
    assert ranker.dump(part) == ranker.dump(whole)


def listed(state: State) -> list[Entry]:
    """What is to be listed, each with what it adds to its budget."""
    groups = [group for users in state.queue.allocated.values() for group in users.values()]
    return sorted(entry for group in groups for entry in group.entries)


def check(life: WeighedLife, now: Millis) -> None:
    state, recorded, since = life.scene.actor.state, life.scene.log.recorded, now - POLICY.lookback_ms
    weights, newest = weigh(state, now), state.policy.rates_milli
    spans = charged_spans(recorded, now)
    for path in weights.charged:
        inside = [span for span in spans if path in lineage(span[0])]
        charged = sum(cost(recorded, host, n, max(begin, since), min(end, now)) for _, n, begin, end, host in inside)
        assert weights.charged[path] == nearest(charged + Fraction(0))
        committed = sum(
            run.commitment_at(now) * newest.get(TYPES[run.replicas[0].host], MILLI)
            for run in state.runs.values()
            if path in lineage(run.budget) and run.ended_at is None
        )
        reserved = [state.jobs[JobId(job)] for job in state.reserved]
        committed += sum(job.commitment_gpu_ms * MILLI for job in reserved if path in lineage(job.budget))
        assert weights.committed[path] == nearest(Fraction(committed, MILLI))
    for path, entitled in weights.entitled.items():
        total = Fraction(0)
        for tree, host, gpus, begin, end in available(recorded, now):
            known = all(above in tree.by_path for above in lineage(path))
            share = Fraction(math.prod(tree.by_path[above].share_ppm for above in lineage(path)) if known else 0)
            share /= PPM ** len(list(lineage(path)))
            total += share * cost(recorded, host, gpus, max(begin, since), min(end, now))

        exact = max(total, share * 1000 * Fraction(state.capacity.rate or MILLI, MILLI))
        assert entitled == (max(1, nearest(exact)) if exact else 0)
