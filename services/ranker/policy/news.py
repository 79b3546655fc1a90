"""When a ranking is worth saying: the queue has changed, or a ratio has moved so far that it matters.

Ratios jump when a run is assigned, ends early or is refunded: jumps are added up as they are folded. Between jumps they
drift: that is looked at now and then, the seldomer the slower they can move. All of it is a function of the facts and
the instant, so a restarted ranker says the same.
"""

import math
from itertools import pairwise

from services.ranker.policy.spare_order import spare_ratios
from services.ranker.policy.standing import Weights, user_used, weigh
from services.ranker.state import State
from tenure.domain.ids import BudgetPath
from tenure.domain.units import MINUTE, SECOND, GpuMillis, Millis
from tenure.events.ranking import RankingPublished

RELATIVE = 0.01
"""A ratio has moved when it differs from the one that was said by this part of it, or by a quarter of P5's margin."""
LOOK_SOONEST: Millis = SECOND
LOOK_LATEST: Millis = 5 * MINUTE
LOOKS_IN_WINDOW = 1_000
"""In this part of the window a budget with five times its share moves its ratio by a quarter of the default margin."""


def jump(state: State, budget: BudgetPath, gpu_ms: GpuMillis) -> None:
    """A fact has changed the use of a budget at once. It is news when the jumps since the last ranking add up."""
    if gpu_ms:
        state.note_jump((state.position, budget, gpu_ms))
        _weigh_jumps(state, budget)


def note_ranking(state: State, ranking: RankingPublished) -> None:
    """A ranking was folded: from now on only those jumps count that it does not know of."""
    state.note_said(ranking)
    state.note_look(ranking.at)
    jumps = [jump for jump in state.jumps if jump[0] > ranking.basis]
    state.jumps, state.jumped = [], {}
    for later in jumps:
        state.note_jump(later)
        _weigh_jumps(state, later[1])


def look(state: State) -> None:
    """To be called as facts are folded: look at the drift when it is time to."""
    if len(state.queue) and not _changed(state) and state.clock >= state.looked_at + look_every(state):
        state.note_look(state.clock)
        if moved(state, weigh(state, state.clock)):
            state.news_at = state.position


def look_every(state: State) -> Millis:
    """How long to let ratios drift: they move the slower, the more of the window lies behind us."""
    every = state.look_every_ms
    if every is None:
        began = state.looked_at if state.capacity_since is None else state.capacity_since
        behind = min(state.looked_at - began, state.window_ms)
        every = state.look_every_ms = max(LOOK_SOONEST, min(LOOK_LATEST, behind // LOOKS_IN_WINDOW))
    return every


def next_look(state: State, now: Millis) -> Millis:
    """The next instant worth looking at."""
    due = state.looked_at + look_every(state)
    return due if due > now else now + look_every(state)


def is_news(state: State, now: Millis) -> bool:
    """Whether the last ranking no longer holds."""
    return _changed(state) or (now >= state.looked_at + look_every(state) and moved(state, weigh(state, now)))


def moved(state: State, weights: Weights) -> bool:
    """Whether any ratio differs from the one that was said by as much as matters."""
    charged, committed = weights.charged, weights.committed
    if state.said_ratios is None:
        margin = state.policy.ratio_margin / 4
        ratios = [(standing.path, standing.ratio) for standing in state.said_standings.values()]
        state.said_ratios = {path: (ratio, max(margin, RELATIVE * ratio)) for path, ratio in ratios}
    for path, entitled in weights.entitled.items():
        said = state.said_ratios.get(path)
        if said is None:
            return True
        ratio, most = said
        if not entitled or ratio == math.inf:  # coming from there or going there always matters
            if bool(entitled) == (ratio == math.inf):
                return True
        elif abs((charged[path] + committed[path]) / entitled - ratio) > most:
            return True
    return _users_moved(state, weights) or _spare_out_of_order(state, weights)


def _changed(state: State) -> bool:
    return state.said is None or state.news_at > state.said.basis


def _weigh_jumps(state: State, budget: BudgetPath) -> None:
    """Whether the jumps of a budget and of those above it have moved a ratio by as much as matters."""
    margin = state.policy.ratio_margin / 4
    for path in state.ledger.lineage(budget):
        said = state.said_standings.get(path)
        total = abs(state.jumped[path])
        if said is None or total > max(margin * said.entitlement_gpu_ms, RELATIVE * said.used_gpu_ms):
            state.news_at = state.position
            return


def _users_moved(state: State, weights: Weights) -> bool:
    """The same for the users of budgets where they are equal: each is entitled to an equal part."""
    said, margin = state.said, state.policy.ratio_margin / 4
    assert said is not None
    for standing in said.users:
        entitled = weights.entitled.get(standing.path, 0)
        count = len(state.queue.allocated.get(standing.path, ()))
        now = user_used(state, standing.path, standing.user, weights.now)
        if count and abs(now - standing.used_gpu_ms) > max(margin * entitled / count, RELATIVE * standing.used_gpu_ms):
            return True
    return False


def _spare_out_of_order(state: State, weights: Weights) -> bool:
    """Whether a budget of the unallocated part has had clearly more than the one that was said after it."""
    said, margin = state.said, state.policy.ratio_margin / 4
    assert said is not None
    budgets = [standing.path for standing in said.spare if standing.path in state.queue.unallocated]
    ratios = [ratio for ratio, *_ in spare_ratios(state, weights, budgets)]
    return any(one > other + max(margin, RELATIVE * other) for one, other in pairwise(ratios) if not math.isinf(other))
