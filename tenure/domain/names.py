"""What a name may be made of, so that it is safe in a path, a subject, a file name and on a terminal."""

import re

from tenure.domain.refusal import Refusal

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_PRINTABLE_MAX = 128


def check_word(text: str, *, field: str) -> str:
    """`text` if it can name a budget, host, block or GPU type. Raises `Refusal` otherwise."""
    if not _WORD.fullmatch(text):
        raise Refusal(
            field=field,
            problem=f"{text[:64]!r} is not a usable name",
            fix="use 1 to 63 letters, digits, '.', '_' or '-', starting with a letter or digit",
        )
    return text


def check_label(text: str, *, field: str) -> str:
    """`text` if it can be shown on a terminal: printable, at most 128 characters. Raises `Refusal` otherwise."""
    if len(text) > _PRINTABLE_MAX:
        raise Refusal(field=field, problem=f"{len(text)} characters", fix=f"use at most {_PRINTABLE_MAX}")
    if not text.isprintable():
        raise Refusal(
            field=field, problem=f"{text[:64]!r} holds control characters", fix="use printable characters only"
        )
    return text
