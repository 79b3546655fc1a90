"""P2: what an ended run is charged, and what a lost host gives back."""

import pytest

from tenure.domain.host import HostState
from tenure.domain.ids import UserName
from tenure.domain.policy import Policy
from tenure.domain.reasons import EndCause, Reason
from tenure.domain.units import HOUR, MINUTE, SECOND
from tenure.events.budgets import RunCharged
from tenure.events.policy import PolicyChanged
from tests.unit.budget.story import (
    CHEM,
    T0,
    Story,
    assigned,
    checkpointed,
    ended,
    exited,
    host_state,
    lost,
    started,
)


@pytest.fixture
def story() -> Story:
    return Story()


def charge(story: Story, *, now: int = T0 + 100 * HOUR) -> RunCharged:
    (fact,) = story.ask(now)
    assert isinstance(fact, RunCharged)
    return fact


def test_a_run_is_charged_from_each_start_to_each_exit(story: Story) -> None:
    story.tell(
        assigned("j.1", "h0", "h1"),
        started("j.1", {0: T0 + 10}),
        started("j.1", {1: T0 + 20}),
        exited("j.1", {0: T0 + HOUR}),
        exited("j.1", {1: T0 + HOUR + 5}),
        ended("j.1", T0 + HOUR + 5),
    )
    fact = charge(story, now=T0 + 2 * HOUR)
    assert (fact.run, fact.job, fact.budget, fact.user) == ("j.1", "j", CHEM, "ana")
    assert fact.charged_gpu_ms == 8 * (HOUR - 10) + 8 * (HOUR + 5 - 20)
    assert (fact.refunded_gpu_ms, fact.refund_since, fact.refund_until) == (0, None, None)
    assert (fact.why.rule, fact.why.reason) == ("P2", Reason.CHARGE_RUN)
    assert fact.why.numbers["occupied_gpu_ms"] == fact.charged_gpu_ms
    assert (fact.at, fact.cause) == (T0 + 2 * HOUR, "placer-end-j.1")


def test_nothing_is_charged_before_the_end(story: Story) -> None:
    story.tell(assigned("j.1", "h0"), started("j.1", {0: T0}), exited("j.1", {0: T0 + HOUR}))
    assert story.ask() == []


def test_an_unallocated_run_is_never_charged(story: Story) -> None:
    story.tell(
        assigned("j.1", "h0", min_runtime_ms=0),
        started("j.1", {0: T0}),
        exited("j.1", {0: T0 + HOUR}),
        ended("j.1", T0 + HOUR),
    )
    assert story.ask() == []


def test_s45_a_run_is_charged_once(story: Story) -> None:
    story.tell(assigned("j.1", "h0"), started("j.1", {0: T0}), exited("j.1", {0: T0 + 1}), ended("j.1", T0 + 1))
    charge(story)
    story.tell(exited("j.1", {0: T0 + HOUR}), ended("j.1", T0 + HOUR))
    assert story.ask() == []
    story.restart()
    assert story.ask() == []


def test_an_exit_alone_tells_its_start(story: Story) -> None:
    story.tell(assigned("j.1", "h0"), exited("j.1", {0: T0 + 50}, started_at=T0 + 10), ended("j.1", T0 + 60))
    assert charge(story).charged_gpu_ms == 8 * 40


def test_a_replica_that_never_ran_costs_nothing(story: Story) -> None:
    story.tell(
        assigned("j.1", "h0", "h1"),
        started("j.1", {0: T0}),
        exited("j.1", {0: T0 + 10, 1: T0 + 5}),
        ended("j.1", T0 + 10, EndCause.FAILED),
    )
    assert charge(story).charged_gpu_ms == 80


def test_a_run_that_never_ran_is_charged_nothing(story: Story) -> None:
    story.tell(assigned("j.1", "h0"), ended("j.1", T0 + HOUR, EndCause.CANCELLED))
    assert charge(story).charged_gpu_ms == 0


def test_the_first_report_of_a_replica_holds(story: Story) -> None:
    story.tell(
        assigned("j.1", "h0"),
        started("j.1", {0: T0 + 10}),
        started("j.1", {0: T0}),
        exited("j.1", {0: T0 + 20}),
        exited("j.1", {0: T0 + 90}),
        ended("j.1", T0 + 90),
    )
    assert charge(story).charged_gpu_ms == 80


def test_a_clock_set_backwards_charges_nothing_rather_than_less(story: Story) -> None:
    story.tell(assigned("j.1", "h0"), started("j.1", {0: T0 + 100}), exited("j.1", {0: T0}), ended("j.1", T0))
    assert charge(story).charged_gpu_ms == 0


def test_a_replica_nobody_spoke_of_again_is_charged_to_the_end_of_the_run(story: Story) -> None:
    story.tell(assigned("j.1", "h0"), started("j.1", {0: T0}), ended("j.1", T0 + 30))
    assert charge(story).charged_gpu_ms == 8 * 30


def test_reports_of_unknown_runs_and_replicas_change_nothing(story: Story) -> None:
    story.tell(
        started("x.1", {0: T0}),
        checkpointed("x.1", T0),
        ended("x.1", T0),
        assigned("j.1", "h0"),
        started("j.1", {0: T0, 7: T0}),
        exited("j.1", {0: T0 + 10, 7: T0 + 10}),
        ended("j.1", T0 + 10),
    )
    assert charge(story).charged_gpu_ms == 80


def lose(story: Story, *checkpoints: int, ran_ms: int = HOUR, policy_stop_ms: int = 5 * MINUTE) -> RunCharged:
    """A gang on two hosts; h0 falls silent after `ran_ms`, the other replica is stopped when it is lost."""
    story.tell(assigned("j.1", "h0", "h1"), started("j.1", {0: T0, 1: T0}))
    story.tell(*(checkpointed("j.1", at) for at in checkpoints))
    story.tell(
        lost("h0", last_seen=T0 + ran_ms),
        exited("j.1", {1: T0 + ran_ms + policy_stop_ms}),
        ended("j.1", T0 + ran_ms + policy_stop_ms, EndCause.HOST_LOST),
    )
    return charge(story)


def test_a_lost_host_refunds_everything_without_a_checkpoint(story: Story) -> None:
    fact = lose(story)
    assert fact.charged_gpu_ms == 0
    assert fact.refunded_gpu_ms == 8 * HOUR + 8 * (HOUR + 5 * MINUTE)
    assert (fact.refund_since, fact.refund_until) == (T0, T0 + HOUR + 5 * MINUTE)
    assert fact.why.reason is Reason.CHARGE_REFUNDED
    assert fact.why.numbers["refunded_gpu_ms"] == fact.refunded_gpu_ms
    assert fact.why.numbers["checkpoint_at"] is None


def test_a_lost_host_refunds_since_the_latest_checkpoint(story: Story) -> None:
    fact = lose(story, T0 + 50 * MINUTE, T0 + 20 * MINUTE)
    assert fact.refund_since == T0 + 50 * MINUTE
    assert fact.refunded_gpu_ms == 8 * 10 * MINUTE + 8 * 15 * MINUTE
    assert fact.charged_gpu_ms == 2 * 8 * 50 * MINUTE
    assert fact.why.numbers["checkpoint_at"] == T0 + 50 * MINUTE


def test_a_checkpoint_after_the_silence_leaves_the_rest_of_the_gang_to_refund(story: Story) -> None:
    fact = lose(story, T0 + HOUR + MINUTE)
    assert fact.refunded_gpu_ms == 8 * 4 * MINUTE


def test_a_checkpoint_before_the_start_counts_from_the_start(story: Story) -> None:
    assert lose(story, T0 - HOUR).refund_since == T0


def test_a_checkpoint_at_the_very_end_leaves_nothing_to_refund(story: Story) -> None:
    fact = lose(story, T0 + 90 * MINUTE)
    assert (fact.refunded_gpu_ms, fact.refund_since, fact.why.reason) == (0, None, Reason.CHARGE_RUN)


def test_a_refund_is_at_most_the_cap() -> None:
    story = Story(Policy(min_runtime_cap_ms=10 * MINUTE))
    fact = lose(story)
    assert (fact.refund_since, fact.refund_until) == (T0 + 55 * MINUTE, T0 + 65 * MINUTE)
    assert fact.refunded_gpu_ms == 8 * 5 * MINUTE + 8 * 10 * MINUTE
    assert fact.charged_gpu_ms == 2 * 8 * 55 * MINUTE


def test_a_cap_that_is_lowered_later_takes_nothing_of_a_refund(story: Story) -> None:
    """The run was assigned when the policy allowed more."""
    story.tell(PolicyChanged(at=T0 - HOUR, policy=Policy(min_runtime_cap_ms=8 * HOUR), by=UserName("ana")))
    story.tell(
        assigned("j.1", "h0"),
        started("j.1", {0: T0}),
        PolicyChanged(at=T0 + MINUTE, policy=Policy(min_runtime_cap_ms=10 * MINUTE), by=UserName("ana")),
        lost("h0", last_seen=T0 + HOUR),
        ended("j.1", T0 + 2 * HOUR, EndCause.HOST_LOST),
    )
    fact = charge(story)
    assert (fact.refund_since, fact.refund_until) == (T0, T0 + HOUR)
    assert fact.why.numbers["refund_cap_ms"] == 8 * HOUR


@pytest.mark.parametrize("cause", [cause for cause in EndCause if cause is not EndCause.HOST_LOST])
def test_no_other_end_refunds(story: Story, cause: EndCause) -> None:
    story.tell(
        assigned("j.1", "h0"), started("j.1", {0: T0}), exited("j.1", {0: T0 + HOUR}), ended("j.1", T0 + HOUR, cause)
    )
    fact = charge(story)
    assert (fact.charged_gpu_ms, fact.refunded_gpu_ms) == (8 * HOUR, 0)


def test_a_lost_host_that_reports_late_changes_nothing(story: Story) -> None:
    story.tell(
        assigned("j.1", "h0"),
        started("j.1", {0: T0}),
        lost("h0", last_seen=T0 + HOUR),
        exited("j.1", {0: T0 + 2 * HOUR}),
        ended("j.1", T0 + 2 * HOUR, EndCause.HOST_LOST),
    )
    assert charge(story).refunded_gpu_ms == 8 * HOUR


def test_an_exit_before_the_loss_holds(story: Story) -> None:
    story.tell(
        assigned("j.1", "h0"),
        started("j.1", {0: T0}),
        exited("j.1", {0: T0 + HOUR + 4 * SECOND}),
        lost("h0", last_seen=T0 + HOUR),
        ended("j.1", T0 + HOUR + 4 * SECOND),
    )
    assert charge(story).charged_gpu_ms == 8 * (HOUR + 4 * SECOND)


def test_a_silent_host_that_comes_back_is_charged_through(story: Story) -> None:
    story.tell(
        assigned("j.1", "h0"),
        started("j.1", {0: T0}),
        host_state("h0", HostState.SUSPECT, last_seen=T0 + MINUTE),
        host_state("h0", HostState.HEALTHY, last_seen=T0 + 2 * MINUTE),
        exited("j.1", {0: T0 + HOUR}),
        ended("j.1", T0 + HOUR),
    )
    assert charge(story).charged_gpu_ms == 8 * HOUR


def test_a_loss_before_the_run_was_there_is_not_its_loss(story: Story) -> None:
    story.tell(
        lost("h0", last_seen=T0 - HOUR),
        assigned("j.1", "h0"),
        started("j.1", {0: T0}),
        exited("j.1", {0: T0 + HOUR}),
        ended("j.1", T0 + HOUR),
    )
    assert charge(story).charged_gpu_ms == 8 * HOUR


def test_replicas_of_a_run_on_one_host_all_end_with_it(story: Story) -> None:
    story.tell(
        assigned("j.1", "h0", "h0", "h1", gpus=4),
        started("j.1", {0: T0, 1: T0 + 10, 2: T0}),
        lost("h0", last_seen=T0 + 100),
        exited("j.1", {2: T0 + 300}),
        ended("j.1", T0 + 300, EndCause.HOST_LOST),
    )
    assert charge(story).refunded_gpu_ms == 4 * (100 + 90 + 300)


def test_a_replica_that_held_nothing_does_not_stretch_the_refund(story: Story) -> None:
    story.tell(
        assigned("j.1", "h0", "h1"),
        started("j.1", {0: T0, 1: T0 + 3 * HOUR}),
        lost("h0", last_seen=T0 + HOUR),
        exited("j.1", {1: T0 + 2 * HOUR}),
        ended("j.1", T0 + 3 * HOUR, EndCause.HOST_LOST),
    )
    fact = charge(story)
    assert (fact.refund_since, fact.refund_until) == (T0, T0 + HOUR)


def test_nothing_is_kept_of_a_charged_run(story: Story) -> None:
    for number in range(50):
        run = f"j{number}.1"
        story.tell(
            assigned(run, "h0", "h1"),
            started(run, {0: T0, 1: T0}),
            lost("h0", last_seen=T0 + 9),
            ended(run, T0 + 9, EndCause.HOST_LOST),
        )
        charge(story)
    assert (story.state.runs, story.state.runs_by_host, story.state.ended) == ({}, {}, {})


def test_a_restart_between_end_and_charge_charges_the_same(story: Story) -> None:
    story.tell(assigned("j.1", "h0"), started("j.1", {0: T0}))
    story.restart()
    story.tell(checkpointed("j.1", T0 + 5), lost("h0", last_seen=T0 + 10))
    story.restart()
    story.tell(ended("j.1", T0 + 50, EndCause.HOST_LOST))
    story.restart()
    fact = charge(story)
    assert (fact.charged_gpu_ms, fact.refunded_gpu_ms) == (40, 40)
