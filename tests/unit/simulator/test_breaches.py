"""Each invariant, broken once in a log told by hand: the report counts it, and so does the checker of its lines."""

import json
from collections.abc import Callable

import msgspec
import pytest

from tenure.domain.ids import HostId, JobId, RunId
from tenure.domain.reasons import EndCause, JobState, Reason, Why
from tenure.events.fact import Recorded
from tenure.events.placing import JobFinished, RunAssigned, RunEnded, RunStarted
from tests.checks.export import findings
from tests.unit.simulator.tale import LOWER, WHY, Tale, ms


def fine() -> Tale:
    """Two jobs of an hour one after the other, a third that is asked to end after its contract, a free one."""
    tale = Tale()
    tale.job("j", 0)
    tale.start("j.1", 0)
    tale.end("j.1", 1)
    tale.job("old", 1, budget="b", resumable=True)
    tale.job("new", 1)
    tale.start("old.1", 1)
    return tale


def replaced(tale: Tale, kind: type, **changes: object) -> Tale:
    """The last fact of a kind says something else."""
    index = max(index for index, entry in enumerate(tale.recorded) if type(entry.fact) is kind)
    entry = tale.recorded[index]
    tale.recorded[index] = Recorded(entry.position, msgspec.structs.replace(entry.fact, **changes))
    return tale


def held_twice(tale: Tale) -> None:
    tale.start("new.1", 1.5)


def in_parts(tale: Tale) -> None:
    tale.preempted("old.1", 2, by="new")
    tale.start("new.1", 2)
    replaced(tale, RunStarted, hosts={HostId("h0"): (0, 1)})


def while_protected(tale: Tale) -> None:
    tale.preempted("old.1", 1.5, by="new")


def finished_twice(tale: Tale) -> None:
    tale.say(JobFinished(at=ms(2), job=JobId("j"), state=JobState.COMPLETED, why=WHY))


def runs_after_its_end(tale: Tale) -> None:
    tale.preempted("old.1", 2, by="new")
    tale.start("j.2", 2)


def disappears(tale: Tale) -> None:
    tale.say(RunEnded(at=ms(2), run=RunId("old.1"), job=JobId("old"), cause_of_end=EndCause.FAILED, why=WHY))


def on_a_draining_host(tale: Tale) -> None:
    tale.preempted("old.1", 2, by="new")
    tale.offer("h0", 0, at=2)
    tale.start("new.1", 2)


def for_a_free_job(tale: Tale) -> None:
    tale.job("free", 1, contract=0)
    tale.preempted("old.1", 2, by="free")


def by_a_higher_ratio(tale: Tale) -> None:
    tale.ask("old.1", 2, by="new", numbers={**LOWER, "ratio": 1.49})
    tale.saved("old.1", 2)
    tale.end("old.1", 2, "preempted", by="new")


def without_a_reason(tale: Tale) -> None:
    tale.end("old.1", 2)
    replaced(tale, RunEnded, why=Why(rule="P10", reason=Reason.END_COMPLETED, numbers={}))


def for_nobody(tale: Tale) -> None:
    tale.end("old.1", 2, "preempted", by="new")


def free_of_charge(tale: Tale) -> None:
    tale.preempted("old.1", 2, by="new")
    tale.start("new.1", 2)
    replaced(tale, RunStarted, charged=False)


BROKEN: list[tuple[str, Callable[[Tale], None]]] = [
    ("I1", held_twice),
    ("I2", in_parts),
    ("I3", while_protected),
    ("I4", finished_twice),
    ("I4", runs_after_its_end),
    ("I4", disappears),
    ("I5", free_of_charge),
    ("I7", on_a_draining_host),
    ("I8", for_a_free_job),
    ("I9", by_a_higher_ratio),
    ("I10", without_a_reason),
    ("I10", for_nobody),
]


def test_nothing_is_found_where_nothing_is_broken() -> None:
    tale = fine()
    tale.preempted("old.1", 2, by="new")
    tale.start("new.1", 2)
    assert tale.checked(end=3).violations == 0


@pytest.mark.parametrize(("invariant", "break_it"), BROKEN, ids=[breaking.__name__ for _, breaking in BROKEN])
def test_a_breach_is_counted_and_described(invariant: str, break_it: Callable[[Tale], None]) -> None:
    tale = fine()
    break_it(tale)
    report = tale.report(end=3)
    assert report.violations == len(report.violations_shown) > 0
    assert invariant in {shown.partition(":")[0] for shown in report.violations_shown}, report.violations_shown
    told = findings(tale.lines(), json.loads(msgspec.json.encode(report)))
    assert invariant in {found.partition(":")[0] for found in told}, told


def test_a_charge_of_more_than_was_held() -> None:
    tale = fine()
    tale.end("old.1", 2)
    entry = tale.recorded[-1]
    more = msgspec.structs.replace(entry.fact, charged_gpu_ms=ms(8) + 1)
    tale.recorded[-1] = Recorded(entry.position, more)
    assert [shown.partition(":")[0] for shown in tale.report(end=3).violations_shown] == ["I5"]


def test_many_breaches_are_counted_and_some_described() -> None:
    tale = fine()
    for _ in range(150):
        finished_twice(tale)
    report = tale.report(end=3)
    assert (report.violations, len(report.violations_shown)) == (150, 100)


def test_a_gang_without_a_replica_is_not_whole() -> None:
    tale = fine()
    tale.preempted("old.1", 2, by="new")
    tale.start("new.1", 2)
    replaced(tale, RunAssigned, placement=())
    assert "I2: new.1 is not whole" in tale.report(end=3).violations_shown
