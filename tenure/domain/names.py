"""What a name may be made of, so that it is safe in a path, a subject, a file name and on a terminal."""

import re

from tenure.domain.refusal import Refusal

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_PRINTABLE_MAX = 128
BLOCK_LEVELS_MAX = 4
"""Blocks in blocks: racks, rows, halls, sites."""


def check_word(text: str, *, field: str) -> str:
    """`text` if it can name a budget, host, block or GPU type. Raises `Refusal` otherwise."""
    if not _WORD.fullmatch(text):
        raise Refusal(
            field=field,
            problem=f"{text[:64]!r} is not a usable name",
            fix="use 1 to 63 letters, digits, '.', '_' or '-', starting with a letter or digit",
        )
    return text


def check_block(text: str, *, field: str) -> str:
    """`text` if it is a block: a name, or a path of names, the largest block first. Raises `Refusal` otherwise."""
    names = text.split("/")
    if len(names) > BLOCK_LEVELS_MAX:
        raise Refusal(field=field, problem=f"{len(names)} levels", fix=f"use at most {BLOCK_LEVELS_MAX}")
    for name in names:
        check_word(name, field=field)
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
