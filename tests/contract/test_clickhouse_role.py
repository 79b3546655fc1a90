"""The clickhouse role as a process: who owns the data, what survives its death, how it stops, what it will not take."""

import json
import os
import re
import signal
import socket
import threading

import psutil
import pytest
from clickhouse_connect.driver.exceptions import ClickHouseError
from urllib3.exceptions import HTTPError

from tests.contract.clickhouse_role import DEADLINE_S, ClickHouseRole, run_role, wait_until


@pytest.fixture
def server(tmp_path):
    process = ClickHouseRole(tmp_path / "data", "--connections", "6", "--body-max", "1MiB", "--drain-seconds", "1")
    yield process
    process.kill()


def test_acknowledged_inserts_survive_kill_minus_nine(server):
    client = server.client()
    window = "SETTINGS non_replicated_deduplication_window = 1000"
    client.command(f"CREATE TABLE src (k Int64, n Int64) ENGINE = MergeTree ORDER BY k {window}")
    client.command(f"CREATE TABLE total (k Int64, n Int64) ENGINE = SummingMergeTree ORDER BY k {window}")
    client.command("CREATE MATERIALIZED VIEW src_total TO total AS SELECT k, sum(n) AS n FROM src GROUP BY k")
    acknowledged = 0
    batches = 25

    def insert_until_it_dies() -> None:
        nonlocal acknowledged
        for batch in range(1000):
            try:
                insert(client, batch)
            except (ClickHouseError, HTTPError, OSError):  # its server was shot
                return
            acknowledged = batch + 1

    def insert(client, batch: int) -> None:
        rows = [[batch, 1] for _ in range(10)]
        client.insert("src", rows, column_names=["k", "n"], settings={"insert_deduplication_token": str(batch)})

    inserting = threading.Thread(target=insert_until_it_dies)
    inserting.start()
    wait_until(lambda: acknowledged >= batches, "some batches")
    server.kill()
    inserting.join(DEADLINE_S)
    server.start()
    client = server.client()
    found = dict(client.query("SELECT k, count() FROM src GROUP BY k").result_rows)
    assert [found.get(batch) for batch in range(acknowledged)] == [10] * acknowledged
    # The batch that was under way may be in, whole, or not; sent again with its token it is in once, in the view too.
    insert(client, acknowledged)
    counted = client.query("SELECT count(), uniqExact(k) FROM src").result_rows
    assert counted == [(10 * (acknowledged + 1), acknowledged + 1)]
    assert client.query("SELECT sum(n) FROM total").result_rows == [(10 * (acknowledged + 1),)]


def test_a_second_owner_is_refused_in_one_line(server, tmp_path):
    second = run_role(server.data, tmp_path / "second.stderr")
    assert second.wait(DEADLINE_S) == 1
    line = (tmp_path / "second.stderr").read_text()
    assert line == (
        f"tenure serve clickhouse: --data {server.data}: in use by process {server.process.pid}; "
        "stop that one, or name another folder\n"
    )
    assert server.ask("SELECT 1").body == b"1\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_lets_running_statements_end(server, number):
    answers = []
    slow = "SELECT sum(sleepEachRow(0.02)) FROM numbers(30) SETTINGS max_block_size = 1"
    asking = threading.Thread(target=lambda: answers.append(server.ask(slow)))
    asking.start()
    wait_until(lambda: b"sleepEachRow" in server.ask("SHOW PROCESSLIST").body, "the statement runs")
    assert server.stop(number) == 0
    asking.join(DEADLINE_S)
    assert [answer.body for answer in answers] == [b"0\n"]
    assert not server.ready_file.exists()
    assert "Traceback" not in server.stderr.read_text()


def test_a_stop_does_not_wait_for_ever(server):
    answers = []
    slow = "SELECT sum(sleepEachRow(0.02)) FROM numbers(100000) SETTINGS max_block_size = 1"
    asking = threading.Thread(target=lambda: answers.append(server.ask(slow)))
    asking.start()
    wait_until(lambda: b"sleepEachRow" in server.ask("SHOW PROCESSLIST").body, "the statement runs")
    assert server.stop() == 0
    asking.join(DEADLINE_S)
    assert [answer.code for answer in answers] == [394]
    server.start()
    assert server.ask("SELECT 1").body == b"1\n"


def test_a_body_that_is_too_large_is_refused_and_writes_nothing(server):
    server.ask("CREATE TABLE t (a String) ENGINE = MergeTree ORDER BY a")
    answer = server.ask(b"INSERT INTO t FORMAT TSV\n" + b"x" * 1000 + b"\nyy\n" * (1 << 19))
    assert (answer.status, answer.code) == (413, 307)
    assert server.ask("SELECT count() FROM t").body == b"0\n"
    assert server.ask(b"SELECT " + b"1," * (1 << 19) + b"1").code == 307


def test_too_many_connections_are_turned_away_and_the_rest_served(server):
    held = [socket.create_connection((server.host, server.port)) for _ in range(6)]
    try:
        turned_away = wait_until(lambda: (answer := server.ask("SELECT 1")).status == 503 and answer, "no room")
        assert turned_away.code == 202
    finally:
        for connection in held:
            connection.close()
    wait_until(lambda: server.ask("SELECT 1").status == 200, "room again")


def test_what_is_written_about_it(server):
    ready = json.loads(server.ready_file.read_text())
    assert ready == {"host": "127.0.0.1", "port": server.port, "pid": server.process.pid}
    assert (server.data / "token").stat().st_mode & 0o777 == 0o600
    assert len(server.token) >= 32
    listening = [it.laddr.ip for it in psutil.Process(server.process.pid).net_connections() if it.status == "LISTEN"]
    assert listening == ["127.0.0.1"]


def test_bad_ports_folders_and_tokens_are_one_line(tmp_path):
    taken = socket.create_server(("127.0.0.1", 0))
    file = tmp_path / "file"
    file.write_text("")
    cases = [
        (tmp_path / "a", ["--port", str(taken.getsockname()[1])], "--port .*: Address already in use; "),
        (file / "below", [], "--data .*: Not a directory; "),
        (tmp_path / "b", ["--token-file", str(file)], "--token-file .*: empty; "),
        (tmp_path / "c", ["--memory", "lots"], "--memory: 'lots' is no size; "),
        (tmp_path / "d", ["--ready-file", str(file / "below")], "--ready-file .*: File exists; "),
    ]
    started = [(run_role(data, tmp_path / f"{n}.err", *more), n) for n, (data, more, _) in enumerate(cases)]
    for (process, number), (_, _, expected) in zip(started, cases, strict=True):
        assert process.wait(DEADLINE_S) == 1
        said = (tmp_path / f"{number}.err").read_text().splitlines()
        said = [line for line in said if " clickhouse INFO " not in line]
        assert len(said) == 1, said
        assert re.fullmatch(f"tenure serve clickhouse: {expected}.*", said[0]), said
    taken.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    process = run_role(folder, tmp_path / "closed.err")
    assert process.wait(DEADLINE_S) == 1
    assert "Permission denied" in (tmp_path / "closed.err").read_text()
