"""What an exact read of the window costs: `python -m tests.bench.window [--rows 100000000]` prints JSON.

A week of heartbeats, a segment every 5 s from each host, made inside the engine; then the 7-day window between two
instants inside an hour is read again and again, each time a little later. Once it is compared with the sum over all
rows. By default the embedded engine, on a data folder of its own; `--url` and `--token-file` name another server, whose
database is emptied.
"""

import argparse
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from clickhouse_connect.driver import Client

from tenure.clickhouse.connect import connect
from tenure.clickhouse.migrate import migrate
from tenure.clickhouse.window import read_window, read_window_at
from tenure.domain.ids import Position
from tenure.domain.units import DAY, HOUR, SECOND
from tests.contract.own_clickhouse import Server

START_MS = 495_600 * HOUR
SPAN_MS = 7 * DAY + 2 * HOUR
SEGMENT_MS = 5 * SECOND
CHUNK = 5_000_000
READS = 31
BUDGETS, USERS = 30, 150

_FILL = """
INSERT INTO occupancy
    (kind, position, cluster, host, run, job, budget, user, charged, gpus, since_ms, until_ms, gpu_ms, busy_milli)
WITH
    intDiv(number, {hosts:UInt64}) AS beat,
    number % {hosts:UInt64} AS host_number,
    intDiv(beat, 720) * {hosts:UInt64} + host_number AS run_number,
    toInt64({start_ms:Int64} + beat * {segment_ms:Int64}) AS since
SELECT
    'segment', number + 1, 'bench', concat('h', toString(host_number)), concat('j', toString(run_number), '.1'),
    concat('j', toString(run_number)), concat('lab/b', toString(run_number % {budgets:UInt64})),
    concat('u', toString(run_number % {users:UInt64})), run_number % 5 != 0, 8, since, since + {segment_ms:Int64},
    8 * {segment_ms:Int64}, run_number % 1000
FROM numbers({first:UInt64}, {count:UInt64})
"""


def fill(client: Client, *, rows: int) -> float:
    """Make the rows; returns the seconds it took."""
    beats = SPAN_MS // SEGMENT_MS
    shape = {"hosts": max(1, rows // beats), "start_ms": START_MS, "segment_ms": SEGMENT_MS}
    began = time.perf_counter()
    for first in range(0, rows, CHUNK):
        part = {"first": first, "count": min(CHUNK, rows - first), "budgets": BUDGETS, "users": USERS}
        client.command(_FILL, {**shape, **part})
    return time.perf_counter() - began


def settle(client: Client) -> float:
    """Wait, a minute at most, until the engine has put in order what was filled in far faster than any cluster does.

    Returns the seconds it took.
    """
    began = time.perf_counter()
    while client.query("SELECT count() FROM system.merges").result_rows[0][0] and time.perf_counter() - began < 60:
        time.sleep(0.5)
    return time.perf_counter() - began


def measure(client: Client, *, rows: int) -> dict[str, object]:
    """The times of the reads in milliseconds, and whether one of them is what the rows say."""
    read_ms, read_at_ms = [], []
    since = START_MS + 17 * 60 * SECOND + 337
    for number in range(READS):
        since += 60 * SECOND + 1
        began = time.perf_counter()
        usages = read_window(client, since, since + 7 * DAY)
        read_ms.append((time.perf_counter() - began) * 1000)
        if number % 3 == 0:
            began = time.perf_counter()
            at_position = read_window_at(client, since, since + 7 * DAY, position=Position(rows))
            read_at_ms.append((time.perf_counter() - began) * 1000)
            assert at_position == usages
    summed = client.query(_SUM, {"s": since, "u": since + 7 * DAY}).result_rows[0][0]
    total = sum(usage.charged_gpu_ms + usage.unallocated_gpu_ms for usage in usages)
    return {
        "window_read_ms_p50": round(statistics.median(read_ms), 1),
        "window_read_ms_max": round(max(read_ms), 1),
        "window_read_at_position_ms_p50": round(statistics.median(read_at_ms), 1),
        "rows_returned": len(usages),
        "equals_the_sum_over_all_rows": total == summed,
    }


_SUM = """
SELECT sum(gpus * (least(until_ms, {u:Int64}) - greatest(since_ms, {s:Int64})))
FROM occupancy WHERE since_ms < {u:Int64} AND until_ms > {s:Int64}
"""


@contextlib.contextmanager
def database(url: str | None, token_file: Path | None) -> Iterator[Client]:
    """An empty database."""
    if url is not None:
        yield connect(url, token_file)
        return
    with tempfile.TemporaryDirectory() as folder:
        server = Server(data=Path(folder))
        server.start()
        try:
            yield server.client()
        finally:
            server.kill()


def main() -> None:
    """Fill, read, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--url")
    parser.add_argument("--token-file", type=Path)
    given = parser.parse_args()
    with database(given.url, given.token_file) as client:
        migrate(client)
        for table in ("occupancy", "occupancy_hourly"):
            client.command(f"TRUNCATE TABLE {table}")
        filled_s = fill(client, rows=given.rows)
        settled_s = settle(client)
        figures = measure(client, rows=given.rows)
        parts = "SELECT count(), sum(bytes_on_disk) FROM system.parts WHERE active AND table = 'occupancy'"
        part_count, size = client.query(parts).result_rows[0]
    told = {
        "rows": given.rows,
        "filled_s": round(filled_s, 1),
        "settled_s": round(settled_s, 1),
        "parts": part_count,
        "bytes_on_disk": size,
    }
    print(json.dumps({**told, **figures}))


if __name__ == "__main__":
    main()
