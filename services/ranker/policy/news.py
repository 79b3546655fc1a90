"""When a ranking is worth saying: the queue has changed, or a ratio has moved so far that it matters.

Everything here is a function of the state and the instant, so a restarted ranker says the same.
"""

import math
from itertools import pairwise

from services.ranker.policy.spare_order import spare_ratio
from services.ranker.policy.standing import Weights, user_used
from services.ranker.state import State
from tenure.domain.units import SECOND, Millis

RELATIVE = 0.01
"""A ratio has moved when it differs from the one that was said by this part of it, or by a quarter of P5's margin."""
LOOK_SOONEST: Millis = SECOND
LOOK_LATEST: Millis = 60 * SECOND
LOOKS_IN_WINDOW = 2_000
"""In this part of the window a budget with ten times its share moves its ratio by a quarter of the default margin."""


def is_news(state: State, weights: Weights) -> bool:
    """Whether the last ranking no longer holds."""
    said = state.said
    if said is None or state.news_at > said.basis:
        return True
    margin = state.policy.ratio_margin / 4
    ratios = state.said_ratios
    for path, used in weights.used.items():
        entitled = weights.entitled[path]
        after = used / entitled if entitled else math.inf
        before = ratios.get(path, -1.0)
        if after != before and _moved(before, after, margin):
            return True
    return _users_moved(state, weights, margin) or _spare_out_of_order(state, weights, margin)


def next_look(state: State, now: Millis) -> Millis:
    """When to look again: ratios move the slower, the more of the window lies behind us."""
    began = now if state.capacity_since is None else state.capacity_since
    behind = min(now - began, state.policy.lookback_ms)
    return now + max(LOOK_SOONEST, min(LOOK_LATEST, behind // LOOKS_IN_WINDOW))


def _moved(before: float, after: float, margin: float) -> bool:
    """Whether the difference matters. Infinite is without a share: coming from there or going there always does."""
    if math.isinf(before) or math.isinf(after):
        return before != after
    return abs(after - before) > max(margin, RELATIVE * before)


def _users_moved(state: State, weights: Weights, margin: float) -> bool:
    """The same for the users of budgets where they are equal: each is entitled to an equal part."""
    said = state.said
    assert said is not None
    for standing in said.users:
        entitled = weights.entitled.get(standing.path, 0)
        count = len(state.queue.allocated.get(standing.path, ()))
        if entitled == 0 or count == 0:
            continue
        before = standing.used_gpu_ms * count / entitled
        after = user_used(state, standing.path, standing.user, weights.now) * count / entitled
        if _moved(before, after, margin):
            return True
    return False


def _spare_out_of_order(state: State, weights: Weights, margin: float) -> bool:
    """Whether a budget of the unallocated part has had clearly more than the one that was said after it."""
    order = [budget for budget in state.said_spare if budget in state.queue.unallocated]
    ratios = [spare_ratio(state, weights, budget) for budget in order]
    return any(one > other + max(margin, RELATIVE * other) for one, other in pairwise(ratios))
