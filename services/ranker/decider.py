"""The ranker on one screen: weigh every budget, and when that is news, say who starts first (P1-P4)."""

from services.ranker.evolve import FOLDS, evolve
from services.ranker.policy.news import is_news, next_look
from services.ranker.policy.order import fair_order
from services.ranker.policy.spare_order import spare_order, spare_standings
from services.ranker.policy.standing import standings, user_standings, weigh
from services.ranker.state import State, dump, load
from tenure.domain.policy import Policy
from tenure.domain.units import Millis
from tenure.events.fact import Lane
from tenure.events.leading import RankerLeadTaken
from tenure.events.ranking import RankingPublished
from tenure.runtime.role import Decision, Role


def role(policy: Policy) -> Role[State]:
    """The ranker under a policy."""
    return Role(
        name="ranker",
        reads=tuple(FOLDS),
        guard=Lane.RANK,
        initial=lambda: State(policy),
        evolve=evolve,
        decide=decide,
        dump=dump,
        load=lambda payload: load(payload, policy),
        lead=RankerLeadTaken,
        policy=lambda state: state.policy_of_log,
    )


def decide(state: State, now: Millis) -> Decision:
    """A new ranking if it is news. With nothing queued there is nothing to order."""
    if not len(state.queue):
        return Decision(assumes=state.position)
    if state.idle == (state.position, now) or not is_news(state, now):  # 1. never say the same thing twice
        state.idle = (state.position, now)
        return Decision(assumes=state.position, wake_at=next_look(state, now))
    weights = weigh(state, now)  # 2. what each budget has, is promised and is entitled to (P1, P2, P3)
    allocated = fair_order(state, weights)  # 3. walk the tree, the poorest budget first (P4)
    spare = spare_standings(state, weights)  # 4. what fills the rest
    ranking = RankingPublished(
        at=now,
        order=tuple(allocated + spare_order(state, spare)),
        standings=standings(state, weights),
        users=user_standings(state, now),
        spare=spare,
        basis=state.position,
    )
    return Decision(assumes=state.position, facts=(ranking,), wake_at=next_look(state, now))
