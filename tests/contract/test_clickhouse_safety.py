"""Nothing outside its own tables can be read or written through the embedded database, whoever has the token."""

import pytest

from tests.contract.clickhouse_role import ClickHouseRole

CANARY = "the-canary-sings"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    process = ClickHouseRole(tmp_path_factory.mktemp("clickhouse") / "data", "--memory", "640MiB")
    process.ask("CREATE TABLE t (a String) ENGINE = MergeTree ORDER BY a")
    process.ask("CREATE TABLE n (a Int64) ENGINE = MergeTree ORDER BY a")
    yield process
    assert process.stop() == 0


@pytest.fixture(scope="module")
def secret(server):
    path = server.data.parent / "secret.tsv"
    path.write_text(f"{CANARY}\n")
    return path


READS = [
    "SELECT * FROM file('{path}', 'LineAsString')",
    "SELECT * FROM default.`{path}`",
    "SELECT * FROM `{path}`",
    "SELECT * FROM '{path}'",
    "SELECT * FROM filesystem('{folder}')",
    "SELECT file('{path}')",
    "SELECT `file`('{path}')",
    "SELECT \"file\"('{path}')",
    "SELECT `\\x66ile`('{path}')",
    "SELECT file /* ( */ ('{path}')",
    "SELECT file -- (\n('{path}')",
    "SELECT 1 // '\n, file('{path}') // '",
    "SELECT /* /* */ ' */ file('{path}') -- '",
    "SELECT $$ ' $$, file('{path}'), $$ ' $$",
    "SELECT ‘'’, file('{path}'), ‘'’",
    "SELECT 'it\\'s', file('{path}'), 'x'",
    "SELECT 'a''b', file('{path}')",
    "SELECT {{f:Identifier}}('{path}')",
    "SELECT * FROM {{d:Identifier}}.{{p:Identifier}}",
    "WITH (SELECT file('{path}')) AS x SELECT x",
    "SELECT * FROM view(SELECT file('{path}'))",
    "SELECT * FROM eval('SELECT file(\\'{path}\\')') SETTINGS allow_experimental_eval_table_function = 1",
    "EXPLAIN SELECT file('{path}')",
    "DESCRIBE TABLE file('{path}')",
    "INSERT INTO t VALUES (file('{path}'))",
    "INSERT INTO t FORMAT Values (file('{path}'))",
    "INSERT INTO t SELECT file('{path}')",
    "INSERT INTO t FROM INFILE '{path}' FORMAT LineAsString",
    "INSERT INTO t (a) FROM INFILE '{path}' FORMAT TSV",
    "CREATE VIEW v AS SELECT file('{path}')",
    "CREATE TABLE c (a String DEFAULT file('{path}')) ENGINE = Memory",
    "ALTER TABLE t ADD COLUMN c String DEFAULT file('{path}')",
    "CREATE TABLE f (a String) ENGINE = File(LineAsString, '{path}')",
    "CREATE TABLE f (a String) ENGINE = FileLog('{folder}', 'LineAsString')",
    "CREATE TABLE f (a String) ENGINE = `FileLog`('{folder}', 'LineAsString')",
    "CREATE TABLE f (a String) ENGINE = QueryRunner",
    "CREATE DATABASE d ENGINE = Filesystem('{folder}')",
    "CREATE DICTIONARY d (a UInt64, b String) PRIMARY KEY a SOURCE(FILE(path '{path}' format 'TSV')) LAYOUT(FLAT())",
    "CREATE DICTIONARY d (a UInt64, b String) PRIMARY KEY a SOURCE(EXECUTABLE(command 'cat {path}' format 'TSV')) "
    "LAYOUT(FLAT())",
    "CREATE DICTIONARY d (a UInt64) PRIMARY KEY a SOURCE(HTTP(url 'http://127.0.0.1:1' format 'TSV')) LAYOUT(FLAT())",
    "CREATE DICTIONARY d (a UInt64) PRIMARY KEY a SOURCE(NULL()) LAYOUT(FLAT()) LIFETIME(0)",
    "SELECT * FROM executable('cat {path}', 'LineAsString', 'a String')",
    "SELECT * FROM Python(self)",
    "SELECT * FROM python(token)",
    "SELECT * FROM sqlite('{path}', 't')",
    "SELECT * FROM deltaLakeLocal('{folder}')",
    "SELECT * FROM icebergLocal('{folder}')",
    "SELECT 1 AS a FORMAT Template SETTINGS format_template_resultset = '{path}'",
    "SELECT 1 AS a FORMAT Protobuf SETTINGS format_schema = '{path}:x'",
    "SELECT 1 SETTINGS dialect = 'prql'",
    "SELECT 1; SELECT file('{path}')",
    "USE default",
    "CREATE USER other",
    "GRANT ALL ON *.* TO default",
]


@pytest.mark.parametrize("attempt", READS)
def test_no_file_is_read(server, secret, attempt):
    statement = attempt.format(path=secret, folder=secret.parent)
    answer = server.ask(statement, param_f="file", param_d="default", param_p=str(secret))
    assert answer.status >= 400, answer.body
    assert answer.code in (36, 46, 60, 62, 81, 452, 497), answer.body
    assert CANARY.encode() not in answer.body
    assert server.ask("SELECT count() FROM t").body == b"0\n"


WRITES = [
    "SELECT 1 INTO OUTFILE '{path}'",
    "SELECT 1 INTO/**/OUTFILE '{path}' FORMAT TSV",
    "(SELECT 1) INTO OUTFILE '{path}' TRUNCATE",
    "INSERT INTO FUNCTION file('{path}', 'TSV', 'a Int8') SELECT 1",
    "INSERT INTO TABLE FUNCTION file('{path}', 'TSV', 'a Int8') VALUES (1)",
    "INSERT INTO default.`{path}` SELECT 1",
    "BACKUP TABLE t TO File('{path}')",
    "BACKUP DATABASE tenure TO Disk('default', 'b')",
    "INSERT INTO n SETTINGS input_format_record_errors_file_path = '{path}', input_format_allow_errors_num = 9 "
    "FORMAT TSV\nx\n",
    "CREATE TABLE w (a String) ENGINE = MergeTree ORDER BY a SETTINGS disk = disk(type = local, path = '{path}/')",
    "CREATE TABLE w (a String) ENGINE = EmbeddedRocksDB(0, '{path}') PRIMARY KEY a",
]


@pytest.mark.parametrize("attempt", WRITES)
def test_no_file_is_written(server, attempt):
    target = server.data.parent / "written.tsv"
    answer = server.ask(attempt.format(path=target))
    assert answer.status >= 400, answer.body
    assert not target.exists()


CONNECTS = [
    "url('http://127.0.0.1:{port}/ping', 'LineAsString')",
    "s3('http://127.0.0.1:{port}/bucket/key', 'TSV')",
    "remote('127.0.0.1:{port}', system.one)",
    "mysql('127.0.0.1:{port}', 'd', 't', 'u', 'p')",
    "postgresql('127.0.0.1:{port}', 'd', 't', 'u', 'p')",
    "hdfs('hdfs://127.0.0.1:{port}/a', 'TSV', 'a String')",
    "iceberg('http://127.0.0.1:{port}/bucket/key', 'a', 'b')",
]


@pytest.mark.parametrize("function", CONNECTS)
def test_no_server_is_asked(server, function):
    answer = server.ask(f"SELECT * FROM {function.format(port=server.port)}")
    assert (answer.status, answer.code) == (403, 497)


def test_settings_in_the_address_are_held_to_the_same_rules(server, secret):
    assert server.ask("SELECT 1 AS a FORMAT Template", format_template_resultset=str(secret)).code == 452
    assert server.ask("from t", dialect="prql").code == 452
    assert server.ask("SELECT 1", **{"max_threads = 1, x": "1"}).code == 36
    assert server.ask("SELECT getSetting('log_comment')", log_comment="it's', readonly = '0").body == (
        b"it\\'s\\', readonly = \\'0\n"
    )


def test_what_looks_like_an_attempt_inside_quotes_is_data(server):
    text = "INTO OUTFILE 'x'; file('/etc/passwd') $$ // /* `"
    assert server.ask("SELECT {x:String}", param_x=text).status == 200
    quoted = text.replace("'", "''")
    assert server.ask(f"SELECT '{quoted}', 'naïve’'").status == 200
    assert server.ask(f"INSERT INTO t VALUES ('{quoted}')").status == 200
    assert server.ask("SELECT length(a) FROM t").body == f"{len(text)}\n".encode()
    server.ask("TRUNCATE TABLE t")


def test_there_is_no_log_of_queries_and_the_memory_is_capped(server):
    assert server.ask("EXISTS TABLE system.query_log").body == b"0\n"
    cap = server.ask("SELECT value FROM system.server_settings WHERE name = 'max_server_memory_usage'").body
    assert int(cap) == 640 << 20
    big = server.ask("SELECT length(groupArray(number)) FROM numbers(2000000000)")
    assert big.code == 241, big.body
    assert server.ask("SELECT 1").body == b"1\n"
