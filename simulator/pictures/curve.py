"""Running integrals of step functions: how GPU-time adds up, exact at every instant."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from simulator.pictures.history import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The integral from the first knot on of a rate that is `rates[i]` from `knots[i]` until the next knot.

    Knots are instants in milliseconds, in order; a rate in GPUs gives GPU-milliseconds.
    """

    knots: Ints
    rates: Floats
    values: Floats
    """The integral at each knot."""

    @classmethod
    def of_rates(cls, knots: Ints, rates: Floats) -> Self:
        """The curve of a rate that is given from each knot on."""
        passed = rates[:-1] * np.diff(knots)
        return cls(knots=knots, rates=rates, values=np.concatenate([np.zeros(min(1, len(knots))), np.cumsum(passed)]))

    @classmethod
    def of_spans(cls, starts: Ints, ends: Ints, weights: Ints) -> Self:
        """The curve of things that each add a weight to the rate from their start until their end."""
        at, by = changes(starts, ends, weights)
        return cls.of_rates(at, np.cumsum(by).astype(np.float64))

    def at(self, instants: Ints) -> Floats:
        """The integral from the beginning to each instant."""
        if not len(self.knots):
            return np.zeros(len(instants))
        inside = np.interp(instants, self.knots, self.values, left=0.0)
        return np.asarray(inside + self.rates[-1] * np.maximum(0, instants - self.knots[-1]))

    def between(self, edges: Ints) -> Floats:
        """The integral from each edge to the next."""
        return np.diff(self.at(edges))


def changes(starts: Ints, ends: Ints, weights: Ints) -> tuple[Ints, Ints]:
    """Instants in order, and by how much the sum of the weights changes at each."""
    at = np.concatenate([starts, ends])
    by = np.concatenate([weights, -weights])
    order = np.argsort(at, kind="stable")
    return at[order], by[order]


def value_at(knots: Ints, values: Ints | Floats, instants: Ints) -> Floats:
    """What a step function is at each instant: `values[i]` from `knots[i]` on, 0 before the first."""
    place = np.searchsorted(knots, instants, side="right")
    return np.concatenate([[0.0], values])[place]
