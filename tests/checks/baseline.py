"""What holds of a log of the baseline: I1, I2, I4, I5, I7 and I10 as anywhere, and its own rules B2-B5 and B7."""

from collections import Counter
from collections.abc import Iterable, Sequence

from simulator.baseline.limits import team_limits
from tenure.domain.ids import BudgetPath, HostId, JobId, RunId
from tenure.domain.job import JobSpec
from tenure.domain.reasons import EndCause, Reason
from tenure.domain.tree import BudgetTree
from tenure.events.budgets import BudgetTreeChanged, JobAdmitted
from tenure.events.fact import Fact, Recorded
from tenure.events.placing import RunAssigned, RunEnded, RunPreemptionRequested, RunStarted
from tenure.events.reports import HostRegistered
from tests.checks.invariants import check_gangs, check_holding, check_jobs, check_occupancy, check_segments


def check_baseline(recorded: Sequence[Recorded]) -> None:
    """Assert all that can be seen in a log of the baseline, which may end at any moment."""
    facts = [entry.fact for entry in recorded]
    check_holding(facts)
    check_jobs(facts)
    check_gangs(facts)
    check_occupancy(facts)
    check_segments(facts)
    check_limits(facts)
    check_preemptions(facts)


def at_risk(facts: Iterable[Fact]) -> set[RunId]:
    """The runs that were started beyond their team's limit."""
    started = (fact for fact in facts if isinstance(fact, RunAssigned))
    return {fact.run for fact in started if fact.why.reason is Reason.START_AT_RISK}


def check_limits(facts: Sequence[Fact]) -> None:
    """B2: no run starts protected beyond its team's limit of that moment."""
    gpus: dict[HostId, int] = {}
    tree, risky = BudgetTree(), at_risk(facts)
    held: Counter[BudgetPath] = Counter()
    placed: dict[RunId, RunAssigned] = {}
    for fact in facts:
        if isinstance(fact, HostRegistered):
            gpus.update({spec.host: spec.gpus for spec in fact.hosts})
        elif isinstance(fact, BudgetTreeChanged):
            tree = fact.tree
        elif isinstance(fact, RunAssigned) and fact.allocated and fact.run not in risky:
            placed[fact.run] = fact
            held[fact.budget] += gpus_of(fact)
            limit = team_limits(tree, gpus=sum(gpus.values()))[fact.budget]
            assert held[fact.budget] <= limit, f"B2: {fact.run} brings {fact.budget} to {held[fact.budget]} of {limit}"
        elif isinstance(fact, RunEnded) and fact.run in placed:
            held[placed[fact.run].budget] -= gpus_of(placed[fact.run])


def gpus_of(assigned: RunAssigned) -> int:
    """GPUs of the whole gang."""
    return sum(len(place.gpus) for place in assigned.placement)


def check_preemptions(facts: Sequence[Fact]) -> None:
    """B3-B5, B7, I8, I10: who had to give way, to whom, and that it was said."""
    risky = at_risk(facts)
    specs: dict[JobId, JobSpec] = {}
    placed: dict[RunId, RunAssigned] = {}
    told: dict[RunId, RunPreemptionRequested] = {}
    for fact in facts:
        if isinstance(fact, JobAdmitted):
            specs[fact.job] = fact.spec
        elif isinstance(fact, RunAssigned):
            placed[fact.run] = fact
        elif isinstance(fact, RunStarted):
            ahead = 0 if fact.run in risky else placed[fact.run].min_runtime_ms
            assert fact.protected_until == fact.at + ahead and fact.charged == placed[fact.run].allocated
        elif isinstance(fact, RunPreemptionRequested):
            assert fact.run not in told, f"{fact.run} was told to end twice"
            told[fact.run] = fact
            fatal = fact.why.reason is Reason.DISRUPT_HOST_FATAL
            safe = placed[fact.run].allocated and fact.run not in risky
            assert fatal or not safe, f"B3: {fact.run} opted out of preemption: {fact}"
            if fact.escrow:
                assert specs[JobId(fact.by)].allocated, f"I8: unallocated {fact.by} displaces {fact.run}"
        elif isinstance(fact, RunEnded):
            assert fact.why.rule and fact.why.numbers, f"I10: {fact}"
            early = fact.cause_of_end in (EndCause.PREEMPTED, EndCause.DRAINED)
            assert not early or fact.run in told, f"I10: {fact} was never asked for"
