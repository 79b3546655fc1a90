"""Seeds that once found something find nothing any more; and the harness itself can be relied on."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from services.health.policy.silence import Silence
from services.health.state import Core, Host
from tenure.domain.host import HostState
from tenure.domain.reasons import Reason, Why
from tenure.events.hosts import HostStateChanged
from tenure.events.intake import JobSubmitted
from tenure.events.reports import Heartbeat
from tests.property.test_promises import met_promises
from tests.simulation.whole import seeds
from tests.simulation.whole.checking import CALM_LATE_MAX, check_service
from tests.simulation.whole.plan import Fault, make_plan
from tests.simulation.whole.seeds import kept_seeds, run_seed


@pytest.mark.parametrize("seed", kept_seeds())
def test_a_kept_seed_is_well(seed: int) -> None:
    outcome = run_seed(seed)
    assert outcome.problem is None, str(outcome)


@pytest.mark.parametrize("seed", [1, 6, 57])
def test_a_seed_is_the_same_every_time(seed: int) -> None:
    once, again = run_seed(seed), run_seed(seed)
    assert [msgspec.json.encode(entry) for entry in once.recorded] == [
        msgspec.json.encode(entry) for entry in again.recorded
    ]
    assert once.story == again.story


def test_every_kind_of_fault_happens_in_the_first_seeds() -> None:
    kinds = {fault.kind for seed in range(200) for fault in make_plan(seed).faults}
    assert kinds == {
        *("crash", "lost-ack", "stale", "slow", "cut", "log-full"),
        *("spool-full", "clock", "power-loss", "drain", "tree-edit"),
    }


def test_what_a_kept_seed_found_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 6 with the rule it found wanting; and its story can be read."""

    def on_record_only(self: Silence, host: Host, core: Core) -> int:
        rest = self.policy.lost_after_ms - self.policy.suspect_after_ms
        return max(host.suspected_at, self.watched_since(core, host.spec.cluster)) + rest

    monkeypatch.setattr(Silence, "lost_at", on_record_only)
    story = str(run_seed(6))
    assert "P2: h002 is lost, and was heard" in story
    assert "fault: stale health for 300 s" in story
    assert "HostStateChanged: " in story and "make sim-soak SEED=6" in story


def test_a_promise_is_given_up_only_for_a_host_that_left_service() -> None:
    """Jobs that fail by themselves, by chance all on one host, are evidence against it also where nothing is wrong."""
    outcome = run_seed(1040)
    facts = [entry.fact for entry in outcome.recorded]
    left = [fact for fact in facts if isinstance(fact, HostStateChanged) and fact.state is not HostState.HEALTHY]
    assert [fact.host for fact in left] == ["h000", "h000"] and left[0].why.reason is Reason.HOST_JOBS_FAIL
    check_service(facts)
    assert met_promises(facts, end=facts[-1].at, late_max=CALM_LATE_MAX)
    with pytest.raises(AssertionError, match="no host was lost"):
        met_promises([fact for fact in facts if fact not in left], end=facts[-1].at, late_max=CALM_LATE_MAX)
    silent = Why(rule="P2", reason=Reason.HOST_SILENT, numbers={})
    with pytest.raises(AssertionError, match="h000 is suspect although nothing is wrong"):
        check_service([msgspec.structs.replace(left[0], state=HostState.SUSPECT, why=silent)])


@pytest.mark.parametrize(
    ("seed", "cut_at_s", "cut_for_s", "health"),
    [(7, 884.35, 293.97, {"writes_after_s": 20.0}), (25, 722.32, 297.23, {"hears_after_s": 20.0})],
)
def test_a_host_that_is_heard_while_it_is_being_given_up_is_counted_once(
    monkeypatch: pytest.MonkeyPatch, seed: int, cut_at_s: float, cut_for_s: float, health: dict[str, Any]
) -> None:
    """I5: its heartbeat is in the log before the verdict, or right behind it, and tells more than the books have."""
    cut = Fault(at_s=cut_at_s, kind="cut", target="agent-0", for_s=cut_for_s)
    slow = Fault(at_s=cut_at_s + 200, kind="slow", target="health", for_s=200, detail=health)
    plan = replace(make_plan(seed), calm=False, faults=(cut, slow))
    monkeypatch.setattr(seeds, "make_plan", lambda _: plan)
    outcome = run_seed(seed)
    assert outcome.problem is None, str(outcome)
    beats = [entry.fact for entry in outcome.recorded if isinstance(entry.fact, Heartbeat)]
    assert any(part.gpus < 0 for beat in beats for on in beat.hosts for part in on.segments), "something is taken back"


def test_jobs_come_and_are_acknowledged() -> None:
    outcome = run_seed(3)
    submitted = [entry for entry in outcome.recorded if isinstance(entry.fact, JobSubmitted)]
    assert len(submitted) == outcome.jobs_acknowledged == len(make_plan(3).jobs) >= 6
