"""Which classes of waiting jobs are worth a look now. Cheap, and never too strict: who is left out cannot start.

A class may fit into what is free; or it may get in the place of loose runs, where it fits into the free GPUs and all
loose runs together, and P5 gives it as many GPUs as it needs. Everybody else stands still until something is freed, a
protection ends or the ratios move.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

from services.placer.alike import Line
from services.placer.policy.openings import Openings
from services.placer.state import State
from tenure.domain.ids import BudgetPath


@dataclass(slots=True)
class Hope:
    """The classes that may get GPUs in this decision: free ones, or those of victims."""

    free: dict[Line, None] = field(default_factory=dict)
    victims: dict[Line, None] = field(default_factory=dict)


def hopeful(state: State, openings: Openings) -> Hope:
    """Who may get something in this decision."""
    hope = Hope()
    room, reach, loose = state.room, state.reach, state.loose.bunches
    free = room.free
    look = bool(loose) and state.looks.barren != (state.grown, state.ratios)
    if not free and not look:
        return hope
    given: dict[tuple[BudgetPath, int], tuple[int, tuple[int, Hashable]]] = {}
    for shape, lines in state.waiting.of_shape.items():
        if shape[1] * shape[2] <= free and room.fits(*shape):
            hope.free.update(lines)
        elif look and reach.fits(*shape):
            for line in lines:
                if not line.alike.min_runtime_ms:
                    continue
                asker = line.alike.budget, line.alike.priority
                if asker not in given:
                    given[asker] = _gpus_given(openings, *asker), within_reach(state, openings, line)
                gpus, reach_now = given[asker]
                if gpus and line.alike.gpus <= free + gpus and line.barren != reach_now:
                    hope.victims[line] = None
    return hope


def within_reach(state: State, openings: Openings, line: Line) -> tuple[int, Hashable]:
    """What may be taken for the class: while it is the same, a search that found no victims finds none again.

    What reservations forbid (P8) only grows meanwhile: when one ends, that counts as growth.
    """
    return state.grown, tuple(openings.of(line.alike.budget, line.alike.priority))


def _gpus_given(openings: Openings, budget: BudgetPath, priority: int) -> int:
    """GPUs of the loose runs that P5 gives to such an asker."""
    return sum([bunch.gpus for bunch in openings.of(budget, priority).values()])
