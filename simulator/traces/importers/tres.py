"""GPUs in Slurm's words: `billing=8,gres/gpu:a100=8,gres/gpu=8` (a whole job), `gpu:a100:4` (a host of the job)."""

import math
import re
from fractions import Fraction

from simulator.traces.source import Unreadable

_TOTAL = re.compile(r"(?:gres/)?gpu(?::([^=,]+))?=([0-9.]+)([KMG]?)", re.IGNORECASE)
_SHARD = re.compile(r"gres/shard(?::[^=,]+)?=([0-9]+)", re.IGNORECASE)
_PER_HOST = re.compile(
    r"(?:gres[:/])?gpu(?::([A-Za-z_][^:,(]*|[0-9]g\.[^:,(]+))?(?::([0-9]+))?(?:\(.*\))?", re.IGNORECASE
)
_SLICE = re.compile(r"(?:.*[_-])?([1-7])g\.[0-9]+gb.*", re.IGNORECASE)
"""A MIG profile: so many sevenths of a GPU."""
_SCALE = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}


def gpus_of_tres(text: str) -> Fraction:
    """The GPUs of AllocTRES or ReqTRES; parts of a GPU (MIG, shards) as fractions. Raises `Unreadable`."""
    plain = typed = shards = Fraction(0)
    sliced = False
    for item in text.split(","):
        match = _TOTAL.fullmatch(item.strip())
        if match is None:
            shard = _SHARD.fullmatch(item.strip())
            if shard is not None and int(shard[1]):
                shards = Fraction(1, 2)  # how many make a GPU is not said; it is one that is not whole
            continue
        kind, count, unit = match.groups()
        try:
            gpus = Fraction(count) * _SCALE[unit.upper()]
        except ValueError:
            raise Unreadable("the number of GPUs is not a number") from None
        if kind is None:
            plain = gpus
            continue
        slices = _SLICE.fullmatch(kind)
        sliced = sliced or slices is not None
        typed += gpus * Fraction(int(slices[1]), 7) if slices else gpus
    # The untyped count is the sum of the typed ones, but counts a MIG instance as a GPU.
    return (typed if sliced else max(plain, typed)) or shards


def gpus_of_gres(text: str, *, hosts: int) -> Fraction:
    """The GPUs of ReqGRES or AllocGRES, which count for each of the `hosts`."""
    total = Fraction(0)
    for item in text.split(","):
        match = _PER_HOST.fullmatch(item.strip())
        if match is not None:
            slices = _SLICE.fullmatch(match[1] or "")
            total += Fraction(int(match[2] or 1)) * (Fraction(int(slices[1]), 7) if slices else 1)
    return total * max(hosts, 1)


def rounded_up(gpus: Fraction) -> int:
    """Whole GPUs."""
    return math.ceil(gpus)
