"""What the console asks ClickHouse, in threads: the client blocks. Connected at the first question."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from services.console.gateway import NoAnswer
from services.console.sharing import Shared
from tenure.domain.refusal import Refusal

if TYPE_CHECKING:
    from clickhouse_connect.driver import Client

ANSWER_S = 20
Rows = Sequence[Sequence[Any]]


class History:
    """The database of reports. `url` empty: there is none, and every question says so."""

    def __init__(self, url: str, token_file: Path | None, shared: Shared) -> None:
        self._url, self._token_file, self._shared = url, token_file, shared
        self._client: Client | None = None
        self._connecting = Lock()

    async def rows(
        self, sql: str, parameters: Mapping[str, object], *, keep_s: float, about: str, wait_s: float | None
    ) -> Rows | None:
        """The rows of a query, which names its parameters (a tuple is an array). Raises `NoAnswer`.

        `about`: of which stretch of time, in words; one like it that ended a little earlier is told while this one is
        read for more than `wait_s` seconds. None: there is none yet.
        """
        of = tuple(sorted((name, value) for name, value in parameters.items() if name not in ("since", "until")))
        return await self._shared.latest(
            (sql, about, of), lambda: asyncio.to_thread(self._ask, sql, parameters), keep_s=keep_s, wait_s=wait_s
        )

    def _ask(self, sql: str, parameters: Mapping[str, object]) -> Rows:
        if not self._url:
            raise NoAnswer("UNAVAILABLE", "no ClickHouse is configured: start the console with --clickhouse")
        from clickhouse_connect.driver.exceptions import ClickHouseError

        from tenure.clickhouse.connect import brief

        try:
            given = {name: list(value) if isinstance(value, tuple) else value for name, value in parameters.items()}
            return self._connected().query(sql, given).result_rows
        except (ClickHouseError, OSError, Refusal) as error:
            self._client = None  # a server that was started anew may have another password
            raise NoAnswer("UNAVAILABLE", f"ClickHouse does not answer ({brief(error)})") from error

    def _connected(self) -> "Client":
        from tenure.clickhouse.connect import connect

        with self._connecting:
            if self._client is None:
                self._client = connect(self._url, self._token_file, answer_timeout_s=ANSWER_S)
            return self._client
