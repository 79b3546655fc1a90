"""The ranker's reading of ClickHouse: occupancy that the agents reported, exact at one position of the log.

Blocking; `drift.py` calls it in a thread. ClickHouse's client is imported at the first reading, so that the role starts
quickly and without a database.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tenure.domain.ids import BudgetPath, HostId, Position, RunId, UserName
from tenure.domain.refusal import Refusal
from tenure.domain.units import HOUR, GpuMillis, Millis

if TYPE_CHECKING:
    from clickhouse_connect.driver import Client

ANSWER_TIMEOUT_S = 30
REPORTED_WITHIN: Millis = HOUR
"""Reports further behind what the database knows are not looked for."""

Window = Mapping[tuple[BudgetPath, UserName], GpuMillis]
"""Occupancy of allocated runs by budget and user, refunded or not."""


class Away(Exception):
    """ClickHouse cannot be read now. The message says why in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """How far the database has come: it has all that follows from the facts up to `position`, which speaks of `at`.

    `reported` is up to when the occupancy of a run on a host was reported by then.
    """

    position: Position
    at: Millis
    reported: Mapping[tuple[HostId, RunId], Millis]


def read_known(client: "Client") -> Known:
    """How far the database has come."""
    from tenure.clickhouse.story import complete_position

    position = complete_position(client)
    rows = client.query(_INSTANT, {"p": position}).result_rows
    at = int(rows[0][0]) if rows else 0
    window = {"p": position, "hour": (at - REPORTED_WITHIN) // HOUR, "since": at - REPORTED_WITHIN}
    reported = client.query(_REPORTED, window).result_rows
    return Known(
        position=position,
        at=at,
        reported={(HostId(host), RunId(run)): int(until) for host, run, until in reported},
    )


def read_window(client: "Client", *, since_ms: Millis, until_ms: Millis, position: Position) -> Window:
    """Occupancy of allocated runs during (since, until] by the facts up to `position`, which must be complete."""
    from tenure.clickhouse.window import read_window_at

    return {
        (usage.budget, usage.user): usage.charged_gpu_ms + usage.refunded_gpu_ms
        for usage in read_window_at(client, since_ms, until_ms, position=position)
        if usage.charged_gpu_ms or usage.refunded_gpu_ms
    }


class Database:
    """The configured ClickHouse, connected when it is first asked and again after any trouble."""

    def __init__(self, url: str, token_file: Path | None) -> None:
        self._url, self._token_file = url, token_file
        self._client: Client | None = None

    def known(self) -> Known:
        """See `read_known`. Raises `Away`."""
        try:
            return read_known(self._connected())
        except _trouble() as trouble:
            raise self._away(trouble) from trouble

    def window(self, *, since_ms: Millis, until_ms: Millis, position: Position) -> Window:
        """See `read_window`. Raises `Away`."""
        try:
            return read_window(self._connected(), since_ms=since_ms, until_ms=until_ms, position=position)
        except _trouble() as trouble:
            raise self._away(trouble) from trouble

    def _connected(self) -> "Client":
        from tenure.clickhouse.connect import connect

        if self._client is None:
            self._client = connect(self._url, self._token_file, answer_timeout_s=ANSWER_TIMEOUT_S)
        return self._client

    def _away(self, trouble: Exception) -> Away:
        from tenure.clickhouse.connect import brief

        self._client = None  # a server that was started anew may have another password
        return Away(brief(trouble))


def _trouble() -> tuple[type[Exception], ...]:
    from clickhouse_connect.driver.exceptions import ClickHouseError

    return ClickHouseError, OSError, Refusal


_INSTANT = "SELECT at_ms FROM events WHERE position <= {p:UInt64} ORDER BY position DESC LIMIT 1"
_REPORTED = """
SELECT host, run, max(until_ms)
FROM occupancy
WHERE hour >= toDateTime({hour:Int64} * 3600, 'UTC') AND until_ms > {since:Int64}
  AND position <= {p:UInt64} AND charged AND kind = 'segment'
GROUP BY host, run
"""
