"""The clickhouse role speaks what ClickHouse clients speak: the client that every role uses, and plain HTTP."""

import datetime
import gzip
import http.client
import threading
import uuid
from decimal import Decimal

import lz4.frame
import pytest
from backports import zstd
from clickhouse_connect.driver.exceptions import DatabaseError, StreamFailureError

from services.clickhouse.native import HELLO
from tests.contract.clickhouse_role import ClickHouseRole, wait_until


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    process = ClickHouseRole(tmp_path_factory.mktemp("clickhouse") / "data")
    yield process
    assert process.stop() == 0


@pytest.fixture(scope="module")
def client(server):
    client = server.client()
    yield client
    client.close()


@pytest.fixture
def table(client):
    name = f"t_{uuid.uuid4().hex}"
    client.command(f"CREATE TABLE {name} (a Int64, b String) ENGINE = MergeTree ORDER BY a")
    yield name
    client.command(f"DROP TABLE {name}")


def test_every_type_of_the_schema_round_trips(client):
    columns = {
        "i": "Int64",
        "u": "UInt64",
        "f": "Float64",
        "s": "String",
        "low": "LowCardinality(String)",
        "n": "Nullable(Int32)",
        "t": "DateTime64(3)",
        "day": "Date",
        "id": "UUID",
        "hex": "FixedString(4)",
        "many": "Array(Int64)",
        "pairs": "Map(String, Int64)",
        "two": "Tuple(Int64, String)",
        "d": "Decimal(18, 3)",
        "yes": "Bool",
        "e": "Enum8('a' = 1, 'b' = 2)",
    }
    row = [
        -(2**62),
        2**63 + 1,
        0.1,
        "naïve 'quoted' \\ \n",
        "science/chem",
        None,
        datetime.datetime(2026, 3, 1, 12, 0, 0, 123000),
        datetime.date(2026, 3, 1),
        uuid.UUID(int=7),
        b"\x00\x01\xfe\xff",
        [1, -2],
        {"k": 5},
        (3, "x"),
        Decimal("1.250"),
        True,
        "b",
    ]
    fields = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    client.command(f"CREATE TABLE types ({fields}) ENGINE = MergeTree ORDER BY i")
    client.insert("types", [row, row], column_names=list(columns))
    result = client.query("SELECT * FROM types")
    assert result.result_rows == [tuple(row), tuple(row)]
    assert result.column_names == tuple(columns)
    assert [kind.name for kind in result.column_types] == list(columns.values())


@pytest.mark.parametrize("compress", [False, "lz4", "zstd", "gzip"])
def test_compression_both_ways(server, table, compress):
    client = server.client(compress=compress)
    rows = [[number, "text " * (number % 50)] for number in range(5000)]
    client.insert(table, rows, column_names=["a", "b"])
    assert client.query(f"SELECT a, b FROM {table} ORDER BY a").result_rows == [tuple(row) for row in rows]


@pytest.mark.parametrize(
    ("encoding", "pack", "unpack"),
    [
        ("lz4", lz4.frame.compress, lz4.frame.decompress),
        ("zstd", zstd.compress, zstd.decompress),
        ("gzip", gzip.compress, gzip.decompress),
    ],
)
def test_encodings_are_really_on_the_wire(server, encoding, pack, unpack):
    statement = pack(b"SELECT repeat('x', 5000)")
    headers = {"Content-Encoding": encoding, "Accept-Encoding": f"br, {encoding}"}
    answer = server.ask(statement, headers=headers, enable_http_compression=1)
    assert answer.headers["Content-Encoding"] == encoding
    assert unpack(answer.body) == b"x" * 5000 + b"\n"


def test_damaged_and_unknown_encodings_are_errors_with_a_code(server):
    assert server.ask(b"no lz4 at all", headers={"Content-Encoding": "lz4"}).code == 271
    cut_off = lz4.frame.compress(b"SELECT 1" * 100)[:-9]
    assert server.ask(cut_off, headers={"Content-Encoding": "lz4"}).code == 271
    assert server.ask(b"SELECT 1", headers={"Content-Encoding": "snappy"}).code == 36


def test_parameters_keep_every_character(client):
    values = {"s": "tab\t quote' back\\slash \n é", "n": -5, "a": ["q'", "w\n"], "t": datetime.date(2026, 1, 2)}
    query = "SELECT {s:String}, {n:Int64}, {a:Array(String)}, {t:Date}"
    assert client.query(query, parameters=values).result_rows == [tuple(values.values())]


def test_parameters_too_long_for_an_address_come_as_a_form(client):
    many = [f"job-{number}" for number in range(20_000)]
    assert client.query("SELECT length({a:Array(String)})", parameters={"a": many}).result_rows == [(20_000,)]


def test_parameters_in_an_insert(server, table):
    answer = server.ask("5\tx\n", query="INSERT INTO {t:Identifier} FORMAT TSV", param_t=table)
    assert (answer.status, answer.body) == (200, b"")
    assert server.ask(f"SELECT a FROM {table}").body == b"5\n"


def test_settings_are_for_one_request(client):
    asked = client.query("SELECT getSetting('max_block_size')", settings={"max_block_size": 77})
    assert asked.result_rows == [(77,)]
    assert client.query("SELECT getSetting('max_block_size')").result_rows != [(77,)]
    client.command("SET max_block_size = 78")
    assert client.query("SELECT getSetting('max_block_size')").result_rows != [(78,)]


@pytest.mark.parametrize(
    ("statement", "code", "name"),
    [
        ("SELECT * FROM nowhere", 60, "UNKNOWN_TABLE"),
        ("SELECT * FROM nowhere.t", 81, "UNKNOWN_DATABASE"),
        ("SELEC 1", 62, "SYNTAX_ERROR"),
        ("SELECT nofunction(1)", 46, "UNKNOWN_FUNCTION"),
        ("SELECT 1; SELECT 2", 62, "SYNTAX_ERROR"),
        ("SELECT 1 SETTINGS nosetting = 1", 115, "UNKNOWN_SETTING"),
        ("SELECT throwIf(1)", 395, "FUNCTION_THROW_IF_VALUE_IS_NON_ZERO"),
        ("SELECT count() FROM system.numbers SETTINGS max_execution_time = 0.2", 159, "TIMEOUT_EXCEEDED"),
        ("SELECT 1 SETTINGS async_insert = 1", 452, "SETTING_CONSTRAINT_VIOLATION"),
    ],
)
def test_errors_have_their_code_and_name(client, statement, code, name):
    with pytest.raises(DatabaseError) as caught:
        client.command(statement)
    assert (caught.value.code, caught.value.name) == (code, name)


def test_a_failed_insert_writes_nothing_and_the_connection_goes_on(client, server, table):
    whole = server.ask("SELECT toInt64(number) AS a, 'x' AS b FROM numbers(1000) FORMAT Native").body
    head = f"INSERT INTO {table} (a, b) FORMAT Native\n".encode()
    assert server.ask(head + whole[:-7]).code != 0
    with pytest.raises(DatabaseError):
        client.raw_insert(table, insert_block="1\tx\nnotanumber\ty\n", fmt="TSV", column_names=["a", "b"])
    assert client.query(f"SELECT count() FROM {table}").result_rows == [(0,)]
    assert server.ask(head + whole).status == 200
    assert client.query(f"SELECT count() FROM {table}").result_rows == [(1000,)]


def test_inserts_of_every_shape(client, server, table):
    client.raw_insert(table, insert_block=b'{"a": 1, "b": "x"}\n{"a": 2}\n', fmt="JSONEachRow")
    client.command(f"INSERT INTO {table} VALUES (3, 'INTO OUTFILE; -- no'), (4, 'file')")
    client.command(f"INSERT INTO {table} SELECT number + 5, 'n' FROM numbers(3)")
    server.ask("(8, 'v')", query=f"INSERT INTO {table} FORMAT Values")
    server.ask("9,c\n", query=f"INSERT INTO {table} FORMAT CSV")
    rows = (b'{"a": %d}\n' % number for number in range(10, 40_000))  # a generator: sent in chunks
    client.raw_insert(table, insert_block=rows, fmt="JSONEachRow")
    assert client.query(f"SELECT count(), sum(a), max(a) FROM {table}").result_rows == [
        (39_999, sum(range(40_000)), 39_999)
    ]


def test_the_summary_counts_rows(client, table):
    summary = client.insert(table, [[1, "x"], [2, "y"]], column_names=["a", "b"])
    assert summary.written_rows == 2
    assert summary.query_id()
    read = client.query(f"SELECT * FROM {table}").summary
    assert (read["read_rows"], read["result_rows"]) == ("2", "2")


def test_headers_and_methods(server):
    answer = server.ask(method="GET", query="SELECT 1 AS x FORMAT JSONEachRow", query_id="mine-1")
    assert answer.body == b'{"x":1}\n'
    assert answer.headers["X-ClickHouse-Format"] == "JSONEachRow"
    assert answer.headers["X-ClickHouse-Query-Id"] == "mine-1"
    assert answer.headers["X-ClickHouse-Timezone"]
    assert answer.headers["Content-Type"].startswith("application/x-ndjson")
    assert server.ask("SELECT 1", default_format="CSV").body == b"1\n"
    assert b'"rows": 1' in server.ask("SELECT 1 FORMAT JSON").body
    assert server.ask("SELECT 1", default_format="bad\r\nheader").code == 36
    assert server.ask("SELECT 1", query_id="bad\r\nheader").code == 36
    assert server.ask(b"").code == 62


def test_get_changes_nothing_and_readonly_holds(server, table):
    assert server.ask(method="GET", query=f"INSERT INTO {table} VALUES (1, 'x')").code == 164
    assert server.ask(f"INSERT INTO {table} VALUES (1, 'x')", readonly=1).code == 164
    assert server.ask(f"INSERT INTO {table} FORMAT TSV\n1\tx\n", readonly=1).code == 164
    assert server.ask("SELECT 1 SETTINGS readonly = 0", readonly=1).code == 164
    assert server.ask(f"SELECT count() FROM {table}", readonly=1).body == b"0\n"


def test_only_ping_needs_no_token(server):
    ping = server.ask(method="GET", token="", path="/ping")
    assert (ping.status, ping.body) == (200, b"Ok.\n")
    assert server.ask("SELECT 1", token="").code == 516
    assert server.ask("SELECT 1", path="/play").status == 404


@pytest.mark.parametrize("way", ["key", "basic", "password", "none"])
def test_a_wrong_token_is_refused(server, way):
    headers = {"basic": {"Authorization": "Basic dGVudXJlOndyb25n"}}.get(way, {})
    params = {"password": "wrong"} if way == "password" else {}
    answer = server.ask("SELECT 'secret'", token="wrong" if way == "key" else "", headers=headers, **params)
    assert (answer.status, answer.code) == (403, 516)
    assert b"AUTHENTICATION_FAILED" in answer.body
    assert b"secret" not in answer.body


def test_the_client_sees_a_wrong_token_by_its_code(server):
    with pytest.raises(DatabaseError) as caught:
        server.client(password="wrong")
    assert (caught.value.code, caught.value.name) == (516, "AUTHENTICATION_FAILED")


def test_tokens_by_password_parameter_and_bearer(server):
    assert server.ask("SELECT 1", token="", password=server.token).body == b"1\n"
    assert server.ask("SELECT 1", token="", headers={"Authorization": f"Bearer {server.token}"}).body == b"1\n"


def test_long_results_stream_and_show_an_error_in_the_middle(client):
    query = "SELECT number, toString(number) FROM numbers(2000000)"
    with client.query_row_block_stream(query) as blocks:
        assert sum(len(block) for block in blocks) == 2_000_000
    failing = "SELECT number, throwIf(number = 1500000) FROM numbers(2000000)"
    with pytest.raises(StreamFailureError) as caught, client.query_row_block_stream(failing) as blocks:
        for _ in blocks:
            pass
    assert caught.value.code == 395
    assert client.query("SELECT 1").result_rows == [(1,)]


def test_drivers_that_ask_in_a_newer_revision_are_told_the_plain_one(server):
    answer = server.ask(HELLO, default_format="Native", client_protocol_version=54460)
    assert answer.body.startswith(b"\x01\x00\x02\xff\xff\xff\xff\x00\x04\x01\x0ddisplayName()\x06String\x00")
    assert b"\x0arevision()\x06UInt32\x00\x00\x00\x00\x00\x0atimezone()" in answer.body
    plain = server.ask(HELLO, default_format="Native").body
    assert plain.startswith(b"\x04\x01\x0ddisplayName()\x06String")


def _running(client, mark: str) -> bool:
    found = client.query(
        "SELECT count() FROM system.processes WHERE query LIKE {m:String} AND query NOT LIKE '%processes%'",
        parameters={"m": f"%{mark}%"},
    )
    return found.result_rows[0][0] > 0


def test_kill_query_by_the_id_the_client_gave(server, client):
    answers = []
    slow = "SELECT sleepEachRow(0.05), 'kill-me' FROM numbers(2000) SETTINGS max_block_size = 1"
    asking = threading.Thread(target=lambda: answers.append(server.ask(slow, query_id="job/42@host")))
    asking.start()
    wait_until(lambda: _running(client, "kill-me"), "the query runs")
    assert client.query("SELECT 1").result_rows == [(1,)]  # a long one does not hold up short ones
    client.command("KILL QUERY WHERE query_id = 'job/42@host' SYNC")
    asking.join(10)
    assert [answer.code for answer in answers] == [394]


def test_a_query_ends_when_its_client_leaves(server, client):
    connection = http.client.HTTPConnection(server.host, server.port)
    slow = b"SELECT sleepEachRow(0.05), 'abandoned' FROM numbers(2000) SETTINGS max_block_size = 1"
    connection.request("POST", "/", body=slow, headers={"X-ClickHouse-Key": server.token})
    wait_until(lambda: _running(client, "abandoned"), "the query runs")
    connection.close()
    wait_until(lambda: not _running(client, "abandoned"), "the query was ended")


def test_a_retried_batch_counts_once_in_table_and_view(client):
    window = "SETTINGS non_replicated_deduplication_window = 1000"
    client.command(f"CREATE TABLE src (k String, n Int64) ENGINE = MergeTree ORDER BY k {window}")
    client.command(f"CREATE TABLE total (k String, n Int64) ENGINE = SummingMergeTree ORDER BY k {window}")
    client.command("CREATE MATERIALIZED VIEW src_total TO total AS SELECT k, sum(n) AS n FROM src GROUP BY k")
    batch = [["a", 1], ["a", 2], ["b", 4]]
    settings = {"insert_deduplication_token": "17-19", "deduplicate_blocks_in_dependent_materialized_views": 1}
    for _ in range(3):
        client.insert("src", batch, column_names=["k", "n"], settings=settings)
    client.insert("src", batch, column_names=["k", "n"], settings={**settings, "insert_deduplication_token": "20-22"})
    assert client.query("SELECT count(), sum(n) FROM src").result_rows == [(6, 14)]
    assert client.query("SELECT k, sum(n) FROM total GROUP BY k ORDER BY k").result_rows == [("a", 6), ("b", 8)]


def test_eight_clients_at_once(server, table):
    failures = []

    def work(number: int) -> None:
        try:
            client = server.client()
            for turn in range(5):
                rows = [[number * 1000 + turn * 100 + place, "x"] for place in range(100)]
                client.insert(table, rows, column_names=["a", "b"])
                mine = f"SELECT count() FROM {table} WHERE intDiv(a, 1000) = {number}"
                assert client.query(mine).result_rows == [((turn + 1) * 100,)]
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert server.ask(f"SELECT uniqExact(a) FROM {table}").body == b"4000\n"
