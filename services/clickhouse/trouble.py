"""Errors as ClickHouse clients read them: a numeric code, a symbolic name and one message, with the HTTP status."""

import re

_ENGINE_MESSAGE = re.compile(r"Code: (?P<code>\d+)\. (?P<text>DB::.*)", re.DOTALL)
_SYMBOL = re.compile(r"\(([A-Z][A-Z0-9_]+)\)")
_VERSION = re.compile(r" \(version [0-9.]+[^()]*\)")

BAD_ARGUMENTS = (36, "BAD_ARGUMENTS")
NOT_IMPLEMENTED = (48, "NOT_IMPLEMENTED")
SYNTAX_ERROR = (62, "SYNTAX_ERROR")
TOO_MANY_SIMULTANEOUS_QUERIES = (202, "TOO_MANY_SIMULTANEOUS_QUERIES")
TOO_MANY_BYTES = (307, "TOO_MANY_BYTES")
CANNOT_DECOMPRESS = (271, "CANNOT_DECOMPRESS")
ACCESS_DENIED = (497, "ACCESS_DENIED")
AUTHENTICATION_FAILED = (516, "AUTHENTICATION_FAILED")

_STATUS = {
    **dict.fromkeys((6, 26, 27, 33, 36, 38, 41, 53, 62, 69, 70, 72, 117, 130, 457), 400),
    **dict.fromkeys((497, 516), 403),
    **dict.fromkeys((16, 46, 47, 50, 56, 60, 73, 81, 115), 404),
    159: 408,
    307: 413,
    48: 501,
    202: 503,
}
"""Only hints for people and proxies: clients read the code. 503 is the one that clients retry by themselves."""


class DatabaseError(Exception):
    """A statement or request that is refused or failed. `str()` is the whole line a client is sent."""

    def __init__(self, kind: tuple[int, str], message: str) -> None:
        self.code, name = kind
        super().__init__(f"Code: {self.code}. DB::Exception: {message} ({name})")

    @property
    def status(self) -> int:
        """The HTTP status that goes with the code."""
        return _STATUS.get(self.code, 500)


def from_engine(message: str) -> DatabaseError:
    """The engine's own message as an error. It nests what it rethrows; the innermost text is the one that says why."""
    text = _VERSION.sub("", message).strip()
    found = _ENGINE_MESSAGE.search(text)
    if found is None:
        return DatabaseError((1001, "STD_EXCEPTION"), text or "the engine gave no reason")
    code, inner = int(found["code"]), found["text"]
    while (nested := _ENGINE_MESSAGE.search(inner)) is not None and int(nested["code"]) == code:
        inner = nested["text"]
    inner = inner.removeprefix("DB::Exception: ")
    symbols = _SYMBOL.findall(inner)
    name = symbols[-1] if symbols else "UNKNOWN_EXCEPTION"
    while inner.rstrip(".").endswith(f"({name})"):
        inner = inner.rstrip(".").removesuffix(f"({name})").rstrip()
    return DatabaseError((code, name), inner)
