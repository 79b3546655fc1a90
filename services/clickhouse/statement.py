"""What a statement is, and whether it may run: read word by word, before the engine sees it.

The engine runs as its own administrator and reaches the whole file system. Its grants (`engine_config.py`) close most
of that; what they do not cover is refused here: INTO OUTFILE and FROM INFILE, the functions and engines in
`_REFUSED_CALLS`, and several statements in one request. The reading is strict on purpose: wherever the engine's own
reading might differ (escapes in quoted names, `$$` strings, curly quotes, `//` and nested comments), it refuses.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from services.clickhouse.trouble import ACCESS_DENIED, NOT_IMPLEMENTED, SYNTAX_ERROR, DatabaseError

HEAD_BYTES_MAX = 256 * 1024
"""The engine's own limit for a statement without its data."""

_TOKEN = re.compile(
    rb"""
    (?: [ \t\r\n\f\v]++ | --[^\n]*+ | /\*(?:[^*/]++|\*(?!/)|/(?!\*))*+\*/ | \#[ !][^\n]*+ )*+
    (?:
        (?P<word>    [A-Za-z_][A-Za-z0-9_]*+ )
      | (?P<quoted>  `(?:[^`\\]++|``)*+` | "(?:[^"\\]++|"")*+" )
      | (?P<string>  '(?:[^'\\]++|\\.|'')*+' )
      | (?P<bracket> [()\[\]{};] )
      | (?P<other>   (?: [0-9][A-Za-z0-9_.]*+ | [,:.*+%=<>!?|^&~@] | -(?!-) | /(?![/*]) )++ )
      | (?P<end>     \Z )
    )
    """,
    re.VERBOSE | re.DOTALL,
)
"""One token with the blanks and comments before it. `other` takes a run of numbers and signs, which decide nothing."""

_REFUSED_WORDS = frozenset({b"outfile", b"infile", b"queryrunner"})
_REFUSED_CALLS = frozenset(
    {
        b"file",  # the scalar function needs no grant
        b"filelog",
        b"filesystem",
        b"executable",
        b"executablepool",
        b"embeddedrocksdb",
        b"python",  # reads objects of this very process
        b"arrowstream",
        b"eval",  # runs text that nobody has read
        b"fuzzquery",
        b"disk",
    }
)
_SUSPECT = re.compile(
    b"|".join(sorted(_REFUSED_WORDS | _REFUSED_CALLS)) + rb"|[^\n\t\r -~]|[`\";$#]|--|//|/\*", re.IGNORECASE
)
"""Whatever could matter in the rows of VALUES: rows without any of it need not be read word by word."""

_RETURNS_ROWS = frozenset({"SELECT", "WITH", "FROM", "SHOW", "DESCRIBE", "DESC", "EXPLAIN", "EXISTS", "CHECK", "KILL"})
_KILL_BY_ID = re.compile(rb"(?is)\s*KILL\s+QUERY\s+WHERE\s+query_id\s*=\s*('(?:[^'\\]|\\.)*')(.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A statement that may run. `text` is all of it, or for an insert with rows its head without FORMAT.

    `verb`: its first word, upper case. `format`: what its FORMAT clause names. `rows_at`: where in the text that was
    read the rows of an insert begin; None if there are none, or if they are SQL (VALUES) and so part of `text`.
    """

    text: bytes
    verb: str
    format: str | None = None
    rows_at: int | None = None
    has_totals: bool = False

    @property
    def returns_rows(self) -> bool:
        """Whether it has a result, be it empty."""
        return self.verb in _RETURNS_ROWS

    @property
    def can_stream(self) -> bool:
        """Whether the engine can give the result block by block."""
        return self.verb in ("SELECT", "WITH") and not self.has_totals


def read_statement(text: bytes, *, complete: bool = True) -> Statement | None:
    """Read `text`: a statement, perhaps followed by the rows of an insert. Raises `DatabaseError` if it may not run.

    With `complete` False, `text` is only a beginning; None says that the rest is needed.
    """
    reader = _Reader(text)
    insert = reader.read_insert_head()
    if insert is not None and insert.rows_at is not None:
        return insert
    if not complete:
        return None
    return insert or reader.read_rest()


class _Reader:
    """One pass over the tokens, each of them checked."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._tokens = _checked_tokens(text)
        self._depth = 0
        self._verb = ""
        self._has_totals = False
        self._format: str | None = None
        self._expects_format = False
        self._in_settings = False

    def read_insert_head(self) -> Statement | None:
        """The statement if it is an insert of rows; else None, with at least the first word read."""
        for token, word, start, end in self._tokens:
            self._note(token, word)
            if self._verb not in ("", "INSERT"):
                return None
            if self._depth:
                continue
            if word in (b"select", b"with"):
                return None
            if word == b"values":
                return self._values(end)
            if word == b"format":
                return self._rows(start)
        return None

    def read_rest(self) -> Statement:
        """The statement when it is not an insert of rows."""
        for token, word, _, _ in self._tokens:
            self._note(token, word)
        if not self._verb:
            raise DatabaseError(SYNTAX_ERROR, "Empty query: give a statement in the body or in the query parameter")
        return Statement(text=self._text, verb=self._verb, format=self._format, has_totals=self._has_totals)

    def _note(self, token: bytes, word: bytes) -> None:
        if not self._verb and word:
            self._verb = word.decode().upper()
        if token in _OPENING:
            self._depth += 1
        elif token in _CLOSING:
            self._depth -= 1
        elif self._depth == 0 and token != b";":
            self._note_outside(token, word)

    def _note_outside(self, token: bytes, word: bytes) -> None:
        """A token outside all brackets, where clauses begin."""
        if word and self._expects_format:
            self._format = token.decode()
            self._expects_format = False
        elif word == b"format":
            self._expects_format = True
        elif word == b"settings":
            self._in_settings = True
        elif not self._in_settings:
            # It was a column or an alias: after the clause itself comes nothing but SETTINGS.
            self._expects_format = False
            self._format = None
            self._has_totals |= word == b"totals"
            if word == b"insert" and self._verb == "WITH":
                self._verb = "INSERT"

    def _values(self, rows_at: int) -> Statement:
        if _SUSPECT.search(self._text, rows_at):
            for _ in self._tokens:
                pass
        return Statement(text=self._text, verb="INSERT", format="Values")

    def _rows(self, head_ends: int) -> Statement | None:
        _, word, start, end = next(self._tokens, _NOTHING)
        if not word:
            return None
        if word == b"values":
            return self._values(end)
        # The engine skips blanks and one line end between the name and the rows.
        rows = re.compile(rb"[ \t\f]*\r?\n?").match(self._text, end)
        assert rows is not None, "the pattern also matches nothing"
        name = self._text[start:end].decode()
        return Statement(text=self._text[:head_ends], verb="INSERT", format=name, rows_at=rows.end())


_Token = tuple[bytes, bytes, int, int]
"""The token, the same in lower case if it is an unquoted word (else nothing), where it starts, where it ends."""
_NOTHING: _Token = (b"", b"", 0, 0)
_OPENING = frozenset({b"(", b"[", b"{"})
_CLOSING = frozenset({b")", b"]", b"}"})


def _checked_tokens(text: bytes) -> Iterator[_Token]:
    """The tokens of `text`. Raises at the first that cannot be read, or that makes it a statement that may not run."""
    match_next = _TOKEN.scanner(text).match  # type: ignore[attr-defined]  # the type stubs do not know it
    called = b""
    ended = False
    position = 0
    while (match := match_next()) is not None:
        kind = match.lastgroup
        if kind == "end":
            return
        token, start, position = match[kind], match.start(kind), match.end()
        if ended and token != b";":
            raise DatabaseError(SYNTAX_ERROR, "Multi-statements are not allowed: send one statement a request")
        if kind == "word":
            called = word = token.lower()
            if word in _REFUSED_WORDS:
                raise _refused(word)
            yield token, word, start, position
            continue
        if token == b"(" and called:
            _check_call(called)
        ended = ended or token == b";"
        called = token[1:-1].lower() if kind == "quoted" else b""
        yield token, b"", start, position
    here = text[position : position + 200].strip()[:20]
    raise DatabaseError(
        SYNTAX_ERROR,
        f"Cannot read the statement after byte {position} ({here!r}): close every quote and comment, and outside "
        "quotes write plain ASCII without $, //, nested comments and escapes in names",
    )


def _check_call(name: bytes) -> None:
    if name in _REFUSED_CALLS:
        raise _refused(name + b"()")
    if name == b"input":
        raise DatabaseError(NOT_IMPLEMENTED, "The embedded database has no input(): insert the rows themselves")


def _refused(what: bytes) -> DatabaseError:
    return DatabaseError(
        ACCESS_DENIED,
        f"{what.decode()} is not allowed: the embedded database reads and writes nothing outside its own tables",
    )


def kill_by_client_id(text: bytes) -> bytes:
    """`KILL QUERY WHERE query_id = 'x'` so that it also finds the id a client gave (kept as its log_comment)."""
    match = _KILL_BY_ID.fullmatch(text)
    if match is None:
        return text
    query_id, rest = match.groups()
    return b"KILL QUERY WHERE (query_id = %b OR Settings['log_comment'] = %b)%b" % (query_id, query_id, rest)
