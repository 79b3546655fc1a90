"""The budget role on one screen: answer submissions in the order of the log, close the books of ended runs (P2)."""

from functools import partial
from itertools import islice

from services.budget.evolve import READS, evolve
from services.budget.policy.admit import decide_admission
from services.budget.policy.charge import charge_run
from services.budget.state import State, dump, initial, load
from tenure.domain.policy import Policy
from tenure.domain.units import Millis
from tenure.events.fact import Fact, Lane
from tenure.events.leading import BudgetLeadTaken
from tenure.log.port import ATOMIC_MAX
from tenure.runtime.role import Decision, Role


def role(policy: Policy) -> Role[State]:
    """The budget role under a policy."""
    return Role(
        name="budget",
        reads=READS,
        guard=Lane.BUDGET,
        initial=initial,
        evolve=evolve,
        decide=partial(decide, policy=policy),
        dump=dump,
        load=load,
        lead=BudgetLeadTaken,
        policy=lambda state: state.policy,
    )


def decide(state: State, now: Millis, *, policy: Policy) -> Decision:
    """Answers and charges, as many as one append takes whole. Costs O(what is new); nothing is timed.

    `policy` counts while the log has none.
    """
    if not state.submissions and not state.ended:
        return Decision(assumes=state.position, facts=[])
    facts: list[Fact] = [
        decide_admission(
            submission,
            tree=state.tree,
            hosts=state.shape,
            named=state.hosts,
            policy=submission.policy or policy,
            now=now,
        )
        for submission in islice(state.submissions.values(), ATOMIC_MAX)
    ]
    room = ATOMIC_MAX - len(facts)
    in_force = state.policy or policy
    facts += [charge_run(run, policy=in_force, now=now) for run in islice(state.ended.values(), room)]
    return Decision(assumes=state.position, facts=facts)
