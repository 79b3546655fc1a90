"""How long a job will hold its GPUs: quantiles of jobs like it that are over, given how long it has had them."""

import hashlib
import math
from bisect import bisect_right
from collections.abc import Sequence

from simulator.live.book import Book, kinds_of
from tenure.domain.ids import JobId
from tenure.domain.job import JobSpec
from tenure.domain.units import HOUR, SECOND, Millis

ENOUGH = 3
"""So many jobs of a kind, longer than what this one has had, say something of it."""
UNKNOWN: Millis = HOUR
"""The length of a job that promises nothing, where nothing is known of jobs like it."""
SPREAD = 4.0
"""Where only its contract is known: a job is between a `SPREAD`-th of it and `SPREAD` times as long."""
SURE = 0.95
"""Of what was never seen no more than this quantile is believed."""


class Lengths:
    """What a book says of lengths, at one instant."""

    def __init__(self, book: Book) -> None:
        self._samples, self._sorted = book.samples, dict[str, list[Millis]]()

    def of(self, spec: JobSpec, *, had_ms: Millis, quantile: float) -> Millis:
        """The whole length of a job that has had its GPUs for `had_ms` and goes on, at a quantile in (0, 1).

        From the closest kind that has enough longer jobs. Where none has, a job that was seen for long goes on for as
        long again in the middle (its age is all that is known), another has its contract.
        """
        for kind in kinds_of(spec):
            known = self._known(kind)
            longer = known[bisect_right(known, had_ms) :] if had_ms else known
            if len(longer) >= ENOUGH:
                return max(round(_quantile(longer, quantile)), had_ms + SECOND)
        usual = spec.min_runtime_ms or UNKNOWN
        guessed = round(usual * math.pow(SPREAD, 2 * quantile - 1))
        if guessed > had_ms:
            return guessed
        return max(round(had_ms / (1 - min(quantile, SURE))), had_ms + SECOND)

    def _known(self, kind: str) -> list[Millis]:
        known = self._sorted.get(kind)
        if known is None:
            known = self._sorted[kind] = sorted(self._samples.get(kind, ()))
        return known


def _quantile(ordered: Sequence[Millis], quantile: float) -> float:
    """Between the two nearest of them; a sample of n says nothing beyond its ends."""
    place = quantile * len(ordered) - 0.5
    low = min(max(int(place), 0), len(ordered) - 1)
    high = min(low + 1, len(ordered) - 1)
    share = min(max(place - low, 0.0), 1.0)
    return ordered[low] + share * (ordered[high] - ordered[low])


def quantile_of(job: JobId, *, draw: int, draws: int, seed: int) -> float:
    """Where in its distribution a job is in one of several draws: in each of `draws` equal parts once, by chance where.

    So the draws together say the same of each job, and jobs do not go together.
    """
    digest = hashlib.blake2b(f"{seed}/{job}".encode(), digest_size=8).digest()
    part = (int.from_bytes(digest[:4], "big") + draw) % draws
    inside = hashlib.blake2b(digest, digest_size=4, salt=draw.to_bytes(4, "big")).digest()
    return (part + (int.from_bytes(inside, "big") + 0.5) / (1 << 32)) / draws
