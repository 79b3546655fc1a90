"""P2 and I6 for the budget role, whatever the order of what agents, health and placer say.

charged + refunded = occupancy of the allocated runs that ended, each once, neither ever negative (S41, S48, S49).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.domain.policy import Policy
from tenure.domain.reasons import EndCause
from tenure.domain.units import MINUTE, Millis
from tenure.events.budgets import JobAdmitted, JobRejected, RunCharged
from tenure.events.fact import Fact
from tenure.events.hosts import HostStateChanged
from tenure.events.placing import RunAssigned, RunEnded
from tenure.events.reports import ReplicasExited, ReplicasStarted
from tests.unit.budget.story import (
    T0,
    Story,
    assigned,
    checkpointed,
    ended,
    exited,
    lost,
    registered,
    started,
    submitted,
    tree,
)

POLICY = Policy(min_runtime_cap_ms=20 * MINUTE)
instants = st.integers(T0 - MINUTE, T0 + 90 * MINUTE)
Script = list[Fact]


@dataclass(frozen=True, kw_only=True)
class Books:
    """What the books of one ended run must say."""

    occupied: int
    cause_of_end: EndCause


@st.composite
def scripts(draw: st.DrawFn, *, number: int, hosts: Sequence[str]) -> Script:
    """The facts of one run: assigned, then reports in any order (some missing, some twice), then perhaps its end."""
    run = f"j{number}.1"
    places = draw(st.lists(st.sampled_from(hosts), min_size=1, max_size=4))
    indices = st.integers(0, len(places) - 1)
    reports: list[Fact] = []
    for _ in range(draw(st.integers(0, 8))):
        at = draw(instants)
        match draw(st.sampled_from(("start", "exit", "exit knowing its start", "checkpoint"))):
            case "start":
                reports.append(started(run, {draw(indices): at}))
            case "exit":
                reports.append(exited(run, {draw(indices): at}))
            case "exit knowing its start":
                reports.append(exited(run, {draw(indices): at}, started_at=draw(instants)))
            case _:
                reports.append(checkpointed(run, at))
    allocated = draw(st.booleans()) or draw(st.booleans())
    first = assigned(run, *places, gpus=draw(st.integers(1, 8)), min_runtime_ms=MINUTE if allocated else 0)
    if draw(st.integers(0, 9)) == 0:
        return [first, *reports]
    causes = st.sampled_from([EndCause.HOST_LOST, *EndCause])
    return [first, *reports, ended(run, draw(instants), draw(causes)), *draw(st.permutations(reports))]


@st.composite
def interleavings(draw: st.DrawFn, streams: Sequence[Script]) -> Script:
    """One log of several streams, each in its own order."""
    turns = draw(st.permutations([index for index, stream in enumerate(streams) for _ in stream]))
    sources = [iter(stream) for stream in streams]
    return [next(sources[turn]) for turn in turns]


@st.composite
def logs(draw: st.DrawFn) -> Script:
    """Runs that share hosts, hosts that are lost at any time, jobs that come in."""
    hosts = ["h0", "h1", "h2"]
    streams = [draw(scripts(number=number, hosts=hosts)) for number in range(draw(st.integers(1, 4)))]
    losses: Script = [
        lost(host, last_seen=at) for host, at in draw(st.lists(st.tuples(st.sampled_from(hosts), instants), max_size=4))
    ]
    intake: Script = [tree(), registered("h0", "h1", "h2")]
    intake += [submitted(f"s{number}", replicas=draw(st.integers(1, 5))) for number in range(draw(st.integers(0, 5)))]
    return draw(interleavings([*streams, losses, intake]))


def books_of(log: Script) -> dict[str, Books]:
    """The plain form of the role's fold: for each ended allocated run, read the whole log again."""
    books: dict[str, Books] = {}
    for index, end in enumerate(log):
        if not isinstance(end, RunEnded):
            continue
        opened = next(i for i, fact in enumerate(log) if isinstance(fact, RunAssigned) and fact.run == end.run)
        assignment = log[opened]
        assert isinstance(assignment, RunAssigned)
        if not assignment.allocated:
            continue
        occupied = 0
        for place in assignment.placement:
            start, stop = lifetime(log[opened:index], run=end.run, replica=place.replica, host=place.host)
            if start is not None:
                occupied += len(place.gpus) * max(0, (end.at if stop is None else stop) - start)
        books[end.run] = Books(occupied=occupied, cause_of_end=end.cause_of_end)
    return books


def lifetime(facts: Script, *, run: str, replica: int, host: str) -> tuple[Millis | None, Millis | None]:
    """The first start and the first end that the log tells of a replica."""
    starts: list[Millis] = []
    ends: list[Millis] = []
    for fact in facts:
        if isinstance(fact, HostStateChanged) and fact.host == host:
            ends.append(fact.last_seen)
        if isinstance(fact, ReplicasStarted) and fact.run == run:
            starts += [each.at for each in fact.replicas if each.replica == replica]
        if isinstance(fact, ReplicasExited) and fact.run == run:
            mine = [each for each in fact.replicas if each.replica == replica]
            starts += [each.started_at for each in mine if each.started_at is not None]
            ends += [each.at for each in mine]
    return (starts[0] if starts else None), (ends[0] if ends else None)


def charges(facts: Sequence[Fact]) -> list[RunCharged]:
    return [fact for fact in facts if isinstance(fact, RunCharged)]


def amounts(facts: Sequence[Fact]) -> dict[str, tuple[int, int, Millis | None, Millis | None]]:
    said = charges(facts)
    assert len({fact.run for fact in said}) == len(said), "a run was charged twice"
    return {
        fact.run: (fact.charged_gpu_ms, fact.refunded_gpu_ms, fact.refund_since, fact.refund_until) for fact in said
    }


def told(log: Script, *, ask_after: frozenset[int] = frozenset(), restart_after: frozenset[int] = frozenset()) -> Story:
    """The role after a log, with decisions and restarts after some of its facts and a decision at the end."""
    story = Story(POLICY)
    for index, fact in enumerate(log):
        story.tell(fact)
        if index in restart_after:
            story.restart()
        if index in ask_after:
            story.ask()
    story.ask()
    return story


def said_by_role(story: Story) -> list[Fact]:
    return [r.fact for r in story.log.recorded if isinstance(r.fact, JobAdmitted | JobRejected | RunCharged)]


some_places = st.frozensets(st.integers(0, 60))


@given(logs(), some_places)
@settings(max_examples=300, deadline=None)
def test_charged_and_refunded_are_the_occupancy_of_ended_allocated_runs(log: Script, ask_after: frozenset[int]) -> None:
    said = charges(said_by_role(told(log, ask_after=ask_after)))
    books = books_of(log)
    assert sorted(fact.run for fact in said) == sorted(books)
    for fact in said:
        assert fact.charged_gpu_ms >= 0
        assert fact.refunded_gpu_ms >= 0
        assert fact.charged_gpu_ms + fact.refunded_gpu_ms == books[fact.run].occupied
        if books[fact.run].cause_of_end is not EndCause.HOST_LOST:
            assert fact.refunded_gpu_ms == 0
        if fact.refund_since is not None and fact.refund_until is not None:
            assert 0 < fact.refund_until - fact.refund_since <= POLICY.min_runtime_cap_ms
    assert sum(f.charged_gpu_ms + f.refunded_gpu_ms for f in said) == sum(book.occupied for book in books.values())


@given(logs())
@settings(max_examples=100, deadline=None)
def test_every_submission_is_answered_once_in_order(log: Script) -> None:
    said = said_by_role(told(log))
    answers = [fact.job for fact in said if isinstance(fact, JobAdmitted | JobRejected)]
    assert answers == [job for fact in log if (job := getattr(fact, "job", "")).startswith("s")]


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_facts_of_different_runs_may_come_in_any_order(data: st.DataObject) -> None:
    streams: list[Script] = []
    for number in range(data.draw(st.integers(2, 4))):
        hosts = [f"h{number}a", f"h{number}b"]
        losses: Script = [lost(host, last_seen=data.draw(instants)) for host in hosts if data.draw(st.booleans())]
        streams.append(data.draw(interleavings([data.draw(scripts(number=number, hosts=hosts)), losses])))
    one, other = data.draw(interleavings(streams)), data.draw(interleavings(streams))
    assert amounts(said_by_role(told(one))) == amounts(said_by_role(told(other)))


@given(logs(), some_places, some_places)
@settings(max_examples=150, deadline=None)
def test_a_restart_anywhere_changes_no_state_and_no_decision(
    log: Script, ask_after: frozenset[int], restart_after: frozenset[int]
) -> None:
    plain, restarted = (
        told(log, ask_after=ask_after),
        told(log, ask_after=ask_after, restart_after=restart_after),
    )
    assert said_by_role(restarted) == said_by_role(plain)
    assert restarted.state == plain.state
    assert restarted.role.dump(restarted.state) == plain.role.dump(plain.state)


@given(logs())
@settings(max_examples=50, deadline=None)
def test_when_the_role_decides_changes_no_charge(log: Script) -> None:
    always = told(log, ask_after=frozenset(range(len(log))))
    assert amounts(said_by_role(always)) == amounts(said_by_role(told(log)))
