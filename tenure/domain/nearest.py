"""What somebody probably meant: the nearest known word to an unknown one, and unknown names shown safely."""

import difflib
from collections.abc import Iterable, Sequence

from tenure.domain.refusal import Refusal

_SHOWN_MAX = 48


def shown(value: object) -> str:
    """`value` as an error message may hold it: short, on one line, whatever came in."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"a number of {value.bit_length()} bits"  # Python refuses to print the largest ones
    if isinstance(value, str | bytes) and len(value) > _SHOWN_MAX:
        return f"{value[:_SHOWN_MAX]!r}..."
    if isinstance(value, dict | list | tuple | set):
        return f"a {type(value).__name__}"  # may be huge, or hold itself
    return repr(value)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean chem? ` for the nearest of `known`, or nothing when none is near."""
    near = difflib.get_close_matches(word[:_SHOWN_MAX], known, n=1)
    return f"did you mean {near[0]}? " if near else ""


def listed(words: Sequence[str], *, most: int = 12) -> str:
    """`a, b, c`, at most `most` of them."""
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def unknown_key(key: object, *, known: Iterable[str], where: str) -> Refusal:
    """The refusal of a key nobody knows below `where`, naming the nearest known one and all of them."""
    names = sorted(known)
    word = key if isinstance(key, str) else str(shown(key))
    usable = word.isprintable() and len(word) <= _SHOWN_MAX
    field = f"{where}.{word if usable else shown(key)}".lstrip(".")
    return Refusal(field=field, problem="unknown key", fix=f"{did_you_mean(word, names)}known: {', '.join(names)}")
