"""Colours of budgets: a hue for each top-level budget, its children as shades of it; told apart without red or green.

The hues are from the sets of Okabe and Ito and of Tol, without their reds: red marks a preemption.
"""

from collections.abc import Sequence
from dataclasses import dataclass

HUES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#6a51a3", "#8c5a2b", "#3fa7c9", "#8a8f2a")
RED = "#d1242f"
GREY = "#8c959f"
_SPREAD = 0.36
"""How far the shades of a hue go towards white and black."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hue:
    """A leaf's team (its top-level budget) and its colour on a light and on a dark ground."""

    team: str
    light: str
    dark: str


def hues(leaves: Sequence[str]) -> list[Hue]:
    """A colour for each leaf, in the same order. With more teams than hues some share one; labels tell them apart."""
    teams: dict[str, list[str]] = {}
    for leaf in leaves:
        teams.setdefault(leaf.partition("/")[0], []).append(leaf)
    found: dict[str, Hue] = {}
    for number, (team, members) in enumerate(teams.items()):
        base = HUES[number % len(HUES)]
        for place, leaf in enumerate(members):
            turn = 0.0 if len(members) == 1 else 2 * place / (len(members) - 1) - 1
            found[leaf] = Hue(team=team, light=_shade(base, turn * _SPREAD), dark=_shade(base, 0.24 + turn * 0.3))
    return [found[leaf] for leaf in leaves]


def rgb(colour: str) -> tuple[int, int, int]:
    """The three bytes of `#rrggbb`."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _shade(colour: str, by: float) -> str:
    """The colour on its way to white (`by` above 0) or black (below)."""
    parts = (part + (255 - part) * by if by > 0 else part * (1 + by) for part in rgb(colour))
    return "#" + "".join(f"{round(part):02x}" for part in parts)
