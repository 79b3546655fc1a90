"""Job ids: short, in order of time, unique across gateways. `j` + 9 characters of time + 3 of the maker + 2 counted.

The characters are Crockford's base 32 in lower case, so ids sort as text in order of time and can be read out loud. One
maker's ids rise strictly. Two makers differ in their three characters (1 in 32,768 pairs does not), whatever their
clocks say.
"""

import re

from tenure.domain.ids import JobId
from tenure.domain.units import Millis

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
_VALUES = {digit: value for value, digit in enumerate(_DIGITS)}
_SHAPE = re.compile(f"j[{_DIGITS}]{{14}}")
_COUNTED_BITS, _MAKER_BITS = 10, 15
_COUNTED = 1 << _COUNTED_BITS
MAKERS = 1 << _MAKER_BITS
"""Makers are numbered 0 .. MAKERS-1."""


class JobIdMaker:
    """Makes the ids of one process. `maker` is to be drawn by chance at its start."""

    def __init__(self, *, maker: int) -> None:
        self._maker = maker % MAKERS
        self._next = (0, 0)
        """The earliest time (ms) and count of the next id."""

    def make(self, *, now: Millis, count: int = 1) -> tuple[JobId, ...]:
        """`count` fresh ids in rising order; more than 1,024 in one millisecond borrow from the next ones."""
        first = max(self._next, (now, 0))
        ids = _following(first, maker=self._maker, count=count)
        when, counted = first
        later, counted = divmod(counted + count, _COUNTED)
        self._next = (when + later, counted)
        return ids


def ids_from(first: JobId, *, count: int) -> tuple[JobId, ...]:
    """The `count` ids that were made in one call and begin with `first`."""
    assert is_job_id(first), "only an id made here has followers"
    counted = _number(first[-2:])
    return _following((_number(first[1:10]), counted), maker=_number(first[10:13]), count=count)


def is_job_id(text: str) -> bool:
    """Whether `text` looks like an id made here."""
    return _SHAPE.fullmatch(text) is not None


def _following(first: tuple[Millis, int], *, maker: int, count: int) -> tuple[JobId, ...]:
    when, counted = first
    ids: list[JobId] = []
    prefix = ""
    for number in range(counted, counted + count):
        later, low = divmod(number, _COUNTED)
        if not prefix or low == 0:
            prefix = "j" + _text(when + later, length=9) + _text(maker, length=3)
        ids.append(JobId(prefix + _DIGITS[low >> 5] + _DIGITS[low & 31]))
    return tuple(ids)


def _text(number: int, *, length: int) -> str:
    return "".join(_DIGITS[(number >> shift) & 31] for shift in range(5 * (length - 1), -1, -5))


def _number(text: str) -> int:
    number = 0
    for digit in text:
        number = number << 5 | _VALUES[digit]
    return number
