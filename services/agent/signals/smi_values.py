"""Values as nvidia-smi prints them: with units, in brackets, or words for "there is none"."""

import re

from services.agent.signals.gpu import UNREADABLE

_NUMBER = re.compile(r"-?\d{1,18}")
_LOST = ("gpu is lost", "gpu lost")
_NEEDS_RESET = ("gpu requires reset", "requires reset")


def number(value: str | None) -> int | None:
    """The whole number `value` begins with (`81559 MiB`, `16x`), or None: N/A, deprecated, unreadable, absent."""
    match = None if value is None else _NUMBER.match(value.strip())
    return None if match is None else int(match.group())


def yes(value: str | None) -> bool | None:
    """Whether `value` is Yes, Active or Enabled; None if it is neither that nor the opposite."""
    word = "" if value is None else value.strip().lower()
    if word in ("yes", "active", "enabled"):
        return True
    return False if word in ("no", "not active", "disabled") else None


def differ(one: str | None, other: str | None) -> bool | None:
    """Whether two of `yes` differ; None where one of them is not known."""
    first, second = yes(one), yes(other)
    return None if first is None or second is None else first is not second


def words(value: str | None) -> str | None:
    """The value where there is one: not N/A, not deprecated, not unreadable."""
    inner = "" if value is None else value.strip().strip("[]").strip()
    low = inner.lower()
    if low in ("", "n/a", "not supported", "unknown") or "deprecated" in low or is_unreadable(inner):
        return None
    return inner


def is_unreadable(value: str) -> bool:
    """Whether nvidia-smi says that it could not read it."""
    return value.strip().lower() in UNREADABLE


def is_lost(value: str) -> bool:
    """Whether the value says that the GPU is gone."""
    return value.strip().strip("[]").lower() in _LOST


def needs_reset(value: str) -> bool:
    """Whether the value says that the GPU needs a reset."""
    return value.strip().strip("[]").lower() in _NEEDS_RESET
