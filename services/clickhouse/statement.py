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
    (?P<blank>   [ \t\r\n\f\v]+ | --[^\n]* | /\*(?:[^*/]|\*(?!/)|/(?!\*))*\*/ | \#[ !][^\n]* )
  | (?P<string>  '(?:[^'\\]|\\.|'')*' )
  | (?P<quoted>  `(?:[^`\\]|``)*` | "(?:[^"\\]|"")*" )
  | (?P<word>    [A-Za-z_][A-Za-z0-9_]* )
  | (?P<number>  [0-9][A-Za-z0-9_.]* )
  | (?P<symbol>  /(?![/*]) | [()\[\]{},;:.*+%=<>!?|^&~@-] )
    """,
    re.VERBOSE | re.DOTALL,
)

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


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: bytes
    start: int
    end: int

    @property
    def word(self) -> bytes:
        """The token in lower case if it is an unquoted word, else nothing."""
        return self.text.lower() if self.kind == "word" else b""


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
    """One pass over the tokens, checking each of them."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._tokens = _checked(_tokens(text))
        self._depth = 0
        self._verb = ""
        self._has_totals = False
        self._format: str | None = None
        self._expects_format = False
        self._in_settings = False

    def read_insert_head(self) -> Statement | None:
        """The statement if it is an insert of rows; else None, with at least the first word read."""
        for token in self._tokens:
            self._note(token)
            if self._verb not in ("", "INSERT"):
                return None
            if self._depth:
                continue
            if token.word in (b"select", b"with"):
                return None
            if token.word == b"values":
                return self._values(token.end)
            if token.word == b"format":
                return self._rows(token)
        return None

    def read_rest(self) -> Statement:
        """The statement when it is not an insert of rows."""
        for token in self._tokens:
            self._note(token)
        if not self._verb:
            raise DatabaseError(SYNTAX_ERROR, "Empty query: give a statement in the body or in the query parameter")
        return Statement(text=self._text, verb=self._verb, format=self._format, has_totals=self._has_totals)

    def _note(self, token: _Token) -> None:
        if token.text in b"([{":
            self._depth += 1
        elif token.text in b")]}":
            self._depth = max(0, self._depth - 1)
        word = token.word
        if not self._verb and word:
            self._verb = word.decode().upper()
        self._has_totals |= word == b"totals"
        if self._depth or token.text == b";":
            return
        if self._verb == "WITH" and word == b"insert":
            self._verb = "INSERT"
        if self._expects_format and word:
            self._format = token.text.decode()
            self._expects_format = False
        elif word == b"format":
            self._expects_format = True
        elif word == b"settings":
            self._in_settings = True
        elif not self._in_settings:
            # It was a column or an alias: after the clause itself comes nothing but SETTINGS.
            self._expects_format = False
            self._format = None

    def _values(self, rows_at: int) -> Statement:
        if _SUSPECT.search(self._text, rows_at):
            for _ in self._tokens:
                pass
        return Statement(text=self._text, verb="INSERT", format="Values")

    def _rows(self, clause: _Token) -> Statement | None:
        name = next(self._tokens, None)
        if name is None or not name.word:
            return None
        if name.word == b"values":
            return self._values(name.end)
        # The engine skips blanks and one line end between the name and the rows.
        rows = re.compile(rb"[ \t\f]*\r?\n?").match(self._text, name.end)
        assert rows is not None, "the pattern also matches nothing"
        return Statement(text=self._text[: clause.start], verb="INSERT", format=name.text.decode(), rows_at=rows.end())


def _tokens(text: bytes) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise DatabaseError(
                SYNTAX_ERROR,
                f"Cannot read the statement at byte {position} ({text[position : position + 20]!r}): close every quote "
                "and comment, and outside quotes write plain ASCII without $, // and escapes in names",
            )
        position = match.end()
        if match.lastgroup != "blank":
            yield _Token(str(match.lastgroup), match.group(), match.start(), position)


def _checked(tokens: Iterator[_Token]) -> Iterator[_Token]:
    """The same tokens; raises at the first that makes the statement one that may not run."""
    previous = _Token("symbol", b"", 0, 0)
    ended = False
    for token in tokens:
        if ended and token.text != b";":
            raise DatabaseError(SYNTAX_ERROR, "Multi-statements are not allowed: send one statement a request")
        ended = ended or token.text == b";"
        if token.word in _REFUSED_WORDS:
            raise _refused(token.word)
        if token.text == b"(" and previous.kind in ("word", "quoted"):
            called = previous.text.strip(b'`"').lower()
            if called in _REFUSED_CALLS:
                raise _refused(called + b"()")
            if called == b"input":
                raise DatabaseError(NOT_IMPLEMENTED, "The embedded database has no input(): insert the rows themselves")
        previous = token
        yield token


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
