"""The budget role answers every submission once, in order, against the tree and the hosts it knows then."""

import msgspec
import pytest

from services.budget.decider import role
from services.budget.evolve import READS
from tenure.domain.ids import FactId, UserName
from tenure.domain.policy import Policy
from tenure.domain.reasons import Reason
from tenure.domain.units import HOUR, MINUTE
from tenure.events.budgets import JobAdmitted, JobRejected, RunCharged
from tenure.events.catalogue import KINDS
from tenure.events.fact import Lane
from tenure.events.intake import JobCancelRequested
from tenure.events.policy import PolicyChanged
from tests.unit.budget.story import CHEM, T0, Story, assigned, ended, registered, submitted, tree


@pytest.fixture
def story() -> Story:
    story = Story()
    story.tell(tree(), registered("h0", "h1"))
    return story


def test_a_good_job_is_admitted_with_all_that_others_need(story: Story) -> None:
    submission = submitted("j1", at=T0 + 5)
    story.tell(submission)
    (fact,) = story.ask(now=T0 + 9)
    assert isinstance(fact, JobAdmitted)
    assert (fact.job, fact.spec, fact.submitted_at) == ("j1", submission.spec, T0 + 5)
    assert (fact.at, fact.cause) == (T0 + 9, "gateway-j1")


def test_an_answer_is_given_once(story: Story) -> None:
    story.tell(submitted("j1"))
    assert len(story.ask()) == 1
    assert story.ask() == []
    story.restart()
    assert story.ask() == []


def test_an_answer_another_instance_gave_holds(story: Story) -> None:
    story.tell(submitted("j1"), submitted("j2"))
    spec = submitted("j1").spec
    story.tell(JobAdmitted(at=T0, job=submitted("j1").job, spec=spec, submitted_at=T0))
    assert [fact.job for fact in story.ask() if isinstance(fact, JobAdmitted)] == ["j2"]


def test_a_budget_that_has_gone_since_rejects_with_the_field(story: Story) -> None:
    story.tell(submitted("j1"), tree(bio=100))
    (fact,) = story.ask()
    assert isinstance(fact, JobRejected)
    assert (fact.job, fact.why.reason, fact.cause) == ("j1", Reason.REJECT_ADMISSION, "gateway-j1")
    assert fact.why.numbers["field"] == "budget"
    assert fact.why.numbers["problem"] == f"there is no budget '{CHEM}'"


def test_hosts_that_came_back_smaller_reject_with_the_arithmetic(story: Story) -> None:
    story.tell(submitted("j1", replicas=2), registered("h1", gpus=4))
    (fact,) = story.ask()
    assert isinstance(fact, JobRejected)
    assert fact.why.numbers["field"] == "replicas"
    assert "make 1 replicas" in str(fact.why.numbers["problem"])


def test_a_host_that_registers_again_is_counted_once(story: Story) -> None:
    story.tell(registered("h0", "h1"), registered("h0"), submitted("j1", replicas=3))
    assert isinstance(story.ask()[0], JobRejected)
    story.tell(registered("h2"), submitted("j2", replicas=3))
    assert isinstance(story.ask()[0], JobAdmitted)


def test_without_a_tree_or_hosts_jobs_are_rejected() -> None:
    story = Story()
    story.tell(submitted("j1"))
    assert isinstance(story.ask()[0], JobRejected)


def test_the_policys_cap_counts(story: Story) -> None:
    strict = Story(Policy(min_runtime_cap_ms=MINUTE))
    strict.tell(tree(), registered("h0"), submitted("j1"))
    (fact,) = strict.ask()
    assert isinstance(fact, JobRejected)
    assert fact.why.numbers["field"] == "min_runtime"


def test_a_changed_policy_counts_for_what_is_submitted_after_it(story: Story) -> None:
    """What was accepted before it is admitted, though the role had not come to it."""
    strict = PolicyChanged(at=T0, policy=Policy(min_runtime_cap_ms=MINUTE), by=UserName("ana"))
    loose = PolicyChanged(at=T0, policy=Policy(), by=UserName("ana"))
    story.tell(loose, submitted("before"), strict, submitted("after"))
    before, after = story.ask()
    assert isinstance(before, JobAdmitted)
    assert isinstance(after, JobRejected)
    restarted = story.role.load(story.role.dump(story.state))
    assert restarted.policy == strict.policy


def test_s40_the_contract_is_each_jobs_own(story: Story) -> None:
    story.tell(submitted("debug", min_runtime_ms=15 * MINUTE), submitted("training", min_runtime_ms=8 * HOUR))
    story.tell(submitted("forever", min_runtime_ms=9 * HOUR))
    debug, training, forever = story.ask()
    assert isinstance(debug, JobAdmitted)
    assert isinstance(training, JobAdmitted)
    assert (debug.spec.min_runtime_ms, training.spec.min_runtime_ms) == (15 * MINUTE, 8 * HOUR)
    assert isinstance(forever, JobRejected)


def test_a_job_that_was_cancelled_before_is_admitted_all_the_same(story: Story) -> None:
    submission = submitted("j1")
    story.tell(submission, JobCancelRequested(at=T0, job=submission.job, by=submission.spec.user))
    assert isinstance(story.ask()[0], JobAdmitted)


def test_a_flood_is_answered_in_order_a_thousand_at_a_time(story: Story) -> None:
    jobs = [f"j{(number * 7_919) % 2_500}" for number in range(2_500)]
    story.tell(*(submitted(job) for job in jobs))
    answers, sizes = [], []
    while facts := story.ask():
        sizes.append(len(facts))
        answers += [fact.job for fact in facts if isinstance(fact, JobAdmitted)]
        story.restart()
    assert answers == jobs
    assert sizes == [1_000, 1_000, 500]


def test_answers_and_charges_together_fit_one_append(story: Story) -> None:
    runs = [f"r{number}.1" for number in range(600)]
    for run in runs:
        story.tell(assigned(run, "h0"), ended(run, T0))
    story.tell(*(submitted(f"j{number}") for number in range(600)))
    first, second = story.ask(), story.ask()
    assert (len(first), len(second)) == (1_000, 200)
    assert all(isinstance(fact, JobAdmitted) for fact in first[:600])
    assert [fact.run for fact in [*first, *second] if isinstance(fact, RunCharged)] == runs


def test_the_first_of_two_submissions_of_one_job_holds(story: Story) -> None:
    again = msgspec.structs.replace(submitted("j1", replicas=2), id=FactId("gateway-j1-again"))
    story.tell(submitted("j1"), again)
    (fact,) = story.ask()
    assert isinstance(fact, JobAdmitted)
    assert fact.spec.replicas == 1


def test_nothing_is_kept_of_what_is_answered(story: Story) -> None:
    before = len(story.role.dump(story.state))
    for number in range(100):
        story.tell(submitted(f"j{number}", replicas=1 + number % 3))
        story.ask()
    assert len(story.role.dump(story.state)) <= before + 2  # the position has more digits


def test_the_role_reads_every_kind_of_the_lane_it_guards() -> None:
    guarded = {kind for kind in KINDS.values() if kind.lane is Lane.BUDGET}
    assert guarded <= set(READS)
    assert role(Policy()).guard is Lane.BUDGET


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"position": "x"}', b"\xff\xfe", b'{"runs": {"r": {}}}'])
def test_a_damaged_dump_is_refused(damage: bytes) -> None:
    with pytest.raises(ValueError, match="not a state of the budget role"):
        role(Policy()).load(damage)
