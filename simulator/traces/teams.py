"""The teams of a constructed month: one for each leaf of the tree, with people, office hours, deadlines and pauses."""

import math
from random import Random

import msgspec

from tenure.domain.tree import BudgetTree

HOUR_S, DAY_S, WEEK_S = 3_600, 86_400, 7 * 86_400
WEEKEND = 0.35
"""How much of the work that people do by hand is done on a Saturday or Sunday."""
NIGHT = 0.15
AT_WORK_ON_AVERAGE = (NIGHT + (1 - NIGHT) / math.pi) * (5 + 2 * WEEKEND) / 7
BASE_APPETITE = 0.8


class Season(msgspec.Struct, frozen=True, kw_only=True):
    """A deadline: the appetite of its team rises for `rise_s` to `peak`, then rests for `rest_s` and recovers."""

    at_s: int
    rise_s: int
    peak: float
    rest_s: int
    rest: float


class Team(msgspec.Struct, frozen=True, kw_only=True):
    """The people of one budget. `fraction` is their part of the whole; `noon_s` when their day is busiest, in UTC."""

    budget: str
    fraction: float
    users: tuple[str, ...]
    priorities: tuple[int, ...]
    """The priority that each user always gives."""
    noon_s: int
    seasons: tuple[Season, ...]

    def appetite(self, at_s: float) -> float:
        """How much the team wants then, against its share: about 1 on average, from a tenth to three."""
        wanted = BASE_APPETITE
        for season in self.seasons:
            since_s = at_s - season.at_s
            if -season.rise_s <= since_s < 0:
                wanted = max(wanted, BASE_APPETITE + (season.peak - BASE_APPETITE) * (1 + since_s / season.rise_s))
            elif 0 <= since_s < season.rest_s:
                wanted = min(wanted, season.rest)
            elif season.rest_s <= since_s < 2 * season.rest_s:
                recovered = since_s / season.rest_s - 1
                wanted = min(wanted, season.rest + (BASE_APPETITE - season.rest) * recovered)
        return wanted * (0.85 + 0.3 * self.at_work(at_s))

    def at_work(self, at_s: float) -> float:
        """From 0 to 1: how much of the team is at its desks. Day 0 is a Monday."""
        local_s = at_s - self.noon_s + DAY_S / 2
        daily = max(0.0, math.cos(2 * math.pi * (local_s / DAY_S - 0.5)))
        weekend = (local_s // DAY_S) % 7 >= 5
        return (NIGHT + (1 - NIGHT) * daily) * (WEEKEND if weekend else 1.0)


def make_teams(tree: BudgetTree, *, users: int, days: int, random: Random) -> tuple[Team, ...]:
    """A team for each leaf with a share, in order of path; people by share, at least two each.

    Fractions are made to sum to 1. When no leaf has a share, all leaves are equal.
    """
    leaves = [leaf for leaf in tree.leaves if tree.fractions[leaf] > 0] or list(tree.leaves)
    weights = [tree.fractions[leaf] or 1.0 for leaf in leaves]
    total = sum(weights)
    teams = []
    for leaf, weight in zip(leaves, weights, strict=True):
        count = max(2, round(users * weight / total))
        name = leaf.rpartition("/")[2]
        teams.append(
            Team(
                budget=leaf,
                fraction=weight / total,
                users=tuple(f"{name[:48]}-{number:03d}" for number in range(1, count + 1)),
                priorities=tuple(random.choices((0, 1, 2), weights=(65, 17, 18), k=count)),
                noon_s=random.choice((11, 14, 19, 22)) * HOUR_S,
                seasons=_seasons(days, random),
            )
        )
    return tuple(teams)


def _seasons(days: int, random: Random) -> tuple[Season, ...]:
    """About a deadline in three weeks, so that some teams have none in a month."""
    seasons = []
    at_s = random.randrange(0, 3 * WEEK_S)
    while at_s < days * DAY_S + WEEK_S:
        seasons.append(
            Season(
                at_s=at_s,
                rise_s=random.randrange(5 * DAY_S, 10 * DAY_S),
                peak=random.uniform(1.5, 3.0),
                rest_s=random.randrange(DAY_S, 4 * DAY_S),
                rest=random.uniform(0.05, 0.4),
            )
        )
        at_s += random.randrange(2 * WEEK_S, 5 * WEEK_S)
    return tuple(seasons)
