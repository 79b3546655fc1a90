"""How long a job will hold its GPUs: quantiles of jobs like it, given how long it has had them.

Most of those that are over are short, and the long ones are still there: what is known of them counts, too. Of n jobs
that lasted at least as long as t, and of which one ended then, an n-th ends at t (Kaplan and Meier, 1958).
"""

import hashlib
import math
from collections.abc import Iterator, Sequence

from simulator.live.book import Book, kinds_of
from tenure.domain.ids import JobId
from tenure.domain.job import JobSpec
from tenure.domain.units import HOUR, SECOND, Millis

ENOUGH = 3
"""So many jobs of a kind that ended, longer than what this one has had, say something of it."""
UNKNOWN: Millis = HOUR
"""The length of a job that promises nothing, where nothing is known of jobs like it."""
SPREAD = 4.0
"""Where only its contract is known: a job is between a `SPREAD`-th of it and `SPREAD` times as long."""
SURE = 0.95
"""Of what was never seen no more than this quantile is believed."""
Known = list[tuple[Millis, bool]]
"""Lengths in order, each with whether the job ended then; the others lasted at least so long."""


class Lengths:
    """What a book says of lengths at an instant."""

    def __init__(self, book: Book, *, now: Millis) -> None:
        self._samples, self._known = book.samples, dict[str, Known]()
        self._lasting: dict[str, list[Millis]] = {}
        for doing in book.jobs.values():
            had_ms = doing.held_ms + (0 if doing.started_at is None else max(0, now - doing.started_at))
            for kind in kinds_of(doing.spec) if had_ms else ():
                self._lasting.setdefault(kind, []).append(had_ms)

    def of(self, spec: JobSpec, *, had_ms: Millis, quantile: float) -> Millis:
        """The whole length of a job that has had its GPUs for `had_ms` and goes on, at a quantile in (0, 1).

        From the closest kind that has enough longer jobs. Where none has, a job that was seen for long goes on for as
        long again in the middle (its age is all that is known), another has its contract.
        """
        for kind in kinds_of(spec):
            longer = [each for each in self._of_kind(kind) if each[0] > had_ms]
            if sum(ended for _, ended in longer) >= ENOUGH:
                return max(round(quantile_in(longer, quantile)), had_ms + SECOND)
        usual = spec.min_runtime_ms or UNKNOWN
        guessed = round(usual * math.pow(SPREAD, 2 * quantile - 1))
        if guessed > had_ms:
            return guessed
        return max(round(had_ms / (1 - min(quantile, SURE))), had_ms + SECOND)

    def _of_kind(self, kind: str) -> Known:
        known = self._known.get(kind)
        if known is None:
            known = [(abs(length), length > 0) for length in self._samples.get(kind, ())]
            known += [(length, False) for length in self._lasting.get(kind, ())]
            known.sort(key=lambda each: (each[0], not each[1]))
            self._known[kind] = known
        return known


def quantile_in(known: Sequence[tuple[Millis, bool]], quantile: float) -> float:
    """Between the two nearest of the ends; nothing is said beyond the longest that was seen."""
    before = (-1.0, 0.0)
    for share, length in _steps(known):
        if share >= quantile:
            if before[0] < 0:
                return length
            part = (quantile - before[0]) / (share - before[0])
            return before[1] + part * (length - before[1])
        before = (share, length)
    return before[1] if known[-1][1] else max(before[1], known[-1][0])


def _steps(known: Sequence[tuple[Millis, bool]]) -> Iterator[tuple[float, float]]:
    """Each end with the share of jobs that have ended by the middle of its step."""
    lasting, at_risk = 1.0, len(known)
    for length, ended in known:
        if ended:
            ending = lasting / at_risk
            yield 1 - lasting + ending / 2, length
            lasting -= ending
        at_risk -= 1


def quantile_of(job: JobId, *, draw: int, draws: int, seed: int) -> float:
    """Where in its distribution a job is in one of several draws: in each of `draws` equal parts once, by chance where.

    So the draws together say the same of each job, and jobs do not go together.
    """
    digest = hashlib.blake2b(f"{seed}/{job}".encode(), digest_size=8).digest()
    part = (int.from_bytes(digest[:4], "big") + draw) % draws
    inside = hashlib.blake2b(digest, digest_size=4, salt=draw.to_bytes(4, "big")).digest()
    return (part + (int.from_bytes(inside, "big") + 0.5) / (1 << 32)) / draws
