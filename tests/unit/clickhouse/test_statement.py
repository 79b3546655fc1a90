"""Reading statements: what they are, and which may not run."""

import pytest

from services.clickhouse.statement import kill_by_client_id, read_statement
from services.clickhouse.trouble import DatabaseError


def read(text: str | bytes):
    statement = read_statement(text.encode() if isinstance(text, str) else text)
    assert statement is not None
    return statement


@pytest.mark.parametrize(
    ("text", "verb", "output_format"),
    [
        ("SELECT 1", "SELECT", None),
        ("select 1 format Native", "SELECT", "Native"),
        ("SELECT 1 FORMAT JSON;", "SELECT", "JSON"),
        ("SELECT 1 FORMAT JSON SETTINGS max_threads = 1", "SELECT", "JSON"),
        ("SELECT 1 SETTINGS max_threads = 1, log_comment = 'a'\n FORMAT CSV", "SELECT", "CSV"),
        ("SELECT format FROM t", "SELECT", None),
        ("SELECT 1 AS format", "SELECT", None),
        ("SELECT (SELECT 1 FORMAT x)", "SELECT", None),
        ("(SELECT 1) UNION ALL (SELECT 2) FORMAT TSV", "SELECT", "TSV"),
        ("-- first\n/* second */ SHOW TABLES", "SHOW", None),
        ("WITH x AS (SELECT 1) SELECT * FROM x", "WITH", None),
        ("WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x", "INSERT", None),
        ("INSERT INTO t SELECT 1", "INSERT", None),
        ("CREATE TABLE t (format String, engine String) ENGINE = MergeTree ORDER BY format", "CREATE", None),
    ],
)
def test_verb_and_format(text, verb, output_format):
    statement = read(text)
    assert (statement.verb, statement.format, statement.rows_at) == (verb, output_format, None)
    assert statement.text == text.encode()


def test_what_streams_and_what_returns_rows():
    assert read("SELECT 1").can_stream
    assert not read("SELECT a, count() FROM t GROUP BY a WITH TOTALS").can_stream
    assert not read("SHOW TABLES").can_stream
    assert read("SHOW TABLES").returns_rows
    assert not read("DROP TABLE t").returns_rows


@pytest.mark.parametrize(
    ("text", "head", "input_format", "rows"),
    [
        (b"INSERT INTO t (a, format) FORMAT Native\n\x01\x02", b"INSERT INTO t (a, format) ", "Native", b"\x01\x02"),
        (b"insert into t format TSV \r\n\n1", b"insert into t ", "TSV", b"\n1"),
        (b"INSERT INTO t FORMAT JSONEachRow {\"a\": 'file('}", b"INSERT INTO t ", "JSONEachRow", b"{\"a\": 'file('}"),
        (b"INSERT INTO t SETTINGS x = 'y' FORMAT CSV\n$$", b"INSERT INTO t SETTINGS x = 'y' ", "CSV", b"$$"),
        (b"INSERT INTO t FORMAT Native", b"INSERT INTO t ", "Native", b""),
    ],
)
def test_inserts_with_rows_are_cut_in_two(text, head, input_format, rows):
    statement = read(text)
    assert (statement.text, statement.format) == (head, input_format)
    assert text[statement.rows_at :] == rows


def test_values_are_part_of_the_statement():
    for text in ("INSERT INTO t VALUES (1, 'x; file(')", "INSERT INTO t FORMAT Values (1)"):
        assert read(text).text == text.encode()


def test_a_beginning_is_enough_only_for_rows():
    insert = read_statement(b"INSERT INTO t FORMAT TSV\n1\t'", complete=False)
    assert insert is not None
    assert insert.rows_at == 25
    assert read_statement(b"INSERT INTO t VALUES (1), ('", complete=False) is None
    assert read_statement(b"SELECT 'and so o", complete=False) is None


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1 INTO OUTFILE 'x'",
        "INSERT INTO t FROM INFILE 'x'",
        "SELECT file('x')",
        "SELECT FILE ('x')",
        "SELECT `file`('x')",
        "SELECT \"file\"/**/('x')",
        "SELECT [file('x')]",
        "INSERT INTO t VALUES (1), (file('x'))",
        "INSERT INTO t VALUES ('a\\'', file('x'))",
        "INSERT INTO t FORMAT values (file('x'))",
        "CREATE TABLE t (a Int8) ENGINE=QueryRunner",
        "SELECT * FROM Python(x)",
    ],
)
def test_the_file_system_is_refused(text):
    with pytest.raises(DatabaseError, match="ACCESS_DENIED"):
        read(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 'no end",
        "SELECT /* no end",
        "SELECT /* a /* b */ c */ 1",
        "SELECT `a\\x62`",
        "SELECT $$a$$",
        "SELECT ‘a’",
        "SELECT 1 // 2",
        "SELECT 1; SELECT 2",
        "INSERT INTO t VALUES (1); DROP TABLE t",
        "SELECT 1\0",
        "",
        " -- nothing",
    ],
)
def test_what_cannot_be_read_is_a_syntax_error(text):
    with pytest.raises(DatabaseError, match="SYNTAX_ERROR"):
        read(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 'INTO OUTFILE', 'file(', '$$', '//', 'naïve ’' -- file('x') $$ //",
        "SELECT file, disk FROM t WHERE file = 1 /* file('x') */",
        "SELECT 'it''s', 'back\\\\', 'q\\'uote' FROM `a``b`.\"c d\"",
        "SELECT {x:Array(String)}, [1, 2][1], map('a', 1)['a'], a.1, 1e-5, 0x1F, -1 - -1, 3 / 4",
        "SELECT 1;",
        "SELECT engine FROM system.tables WHERE engine = 'File'",
    ],
)
def test_what_only_looks_like_it_may_run(text):
    assert read(text).text == text.encode()


@pytest.mark.parametrize("text", ["SELECT 1" + " " * 200_000 + "$", "SELECT '" + "''" * 200_000, "/*" + "*" * 200_000])
@pytest.mark.timeout(5)
def test_long_nonsense_is_refused_in_linear_time(text):
    with pytest.raises(DatabaseError):
        read(text)


def test_kill_finds_the_ids_that_clients_gave():
    assert kill_by_client_id(b"KILL QUERY WHERE query_id = 'a' SYNC") == (
        b"KILL QUERY WHERE (query_id = 'a' OR Settings['log_comment'] = 'a') SYNC"
    )
    assert kill_by_client_id(b"KILL QUERY WHERE user = 'a'") == b"KILL QUERY WHERE user = 'a'"
