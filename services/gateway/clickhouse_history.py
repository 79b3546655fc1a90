"""`History` from ClickHouse. Its client is imported and connected at the first question, so that the start is quick."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from services.gateway.refusals import Away
from tenure.domain.ids import JobId, Position
from tenure.domain.refusal import Refusal
from tenure.domain.units import Millis
from tenure.events.fact import Recorded
from tenure.log.codec import Undecodable, decode

if TYPE_CHECKING:
    from clickhouse_connect.driver import Client

    from tenure.clickhouse.report import BudgetRow
    from tenure.clickhouse.window import Usage

ANSWER_S = 20
A = TypeVar("A")


class ClickHouseHistory:
    """See `History`. `url` None: there is no database, and every question says so."""

    def __init__(self, url: str | None, token_file: Path | None) -> None:
        self._url, self._token_file = url, token_file
        self._client: Client | None = None
        self._connecting = Lock()

    async def visible(self) -> Position:
        """See `History.visible`."""

        def ask(client: "Client") -> Position:
            from tenure.clickhouse.story import visible_position

            return visible_position(client)

        return await self._ask(ask)

    async def story(self, job: JobId) -> Sequence[Recorded]:
        """See `History.story`. Facts of kinds that this version does not know are left out."""

        def ask(client: "Client") -> Sequence[Recorded]:
            from tenure.clickhouse.story import story

            facts = []
            for position, _, payload in story(client, job):
                try:
                    facts.append(Recorded(position, decode(payload)))
                except Undecodable:
                    continue
            return facts

        return await self._ask(ask)

    async def report(self, *, since: Millis, until: Millis, path: str) -> "Sequence[BudgetRow]":
        """See `History.report`."""

        def ask(client: "Client") -> "Sequence[BudgetRow]":
            from tenure.clickhouse.report import budget_report

            return budget_report(client, since, until, path)

        return await self._ask(ask)

    async def users(self, *, since: Millis, until: Millis, path: str) -> "Sequence[Usage]":
        """See `History.users`."""

        def ask(client: "Client") -> "Sequence[Usage]":
            from tenure.clickhouse.report import users_report

            return users_report(client, since, until, path)

        return await self._ask(ask)

    async def _ask(self, question: Callable[["Client"], A]) -> A:
        if self._url is None:
            raise Away("no ClickHouse is configured: start the gateway with --clickhouse http://host:port")
        return await asyncio.to_thread(self._answer, question)

    def _answer(self, question: Callable[["Client"], A]) -> A:
        """Ask in a thread; one that is free, since the client blocks."""
        from clickhouse_connect.driver.exceptions import ClickHouseError

        from tenure.clickhouse.connect import brief

        try:
            return question(self._connected())
        except (ClickHouseError, OSError, Refusal) as error:
            self._client = None  # a server that was started anew may have another password
            raise Away(
                f"ClickHouse at {self._url} does not answer ({brief(error)}); "
                "see that it runs (`tenure doctor`) and try again"
            ) from error

    def _connected(self) -> "Client":
        from tenure.clickhouse.connect import connect

        assert self._url is not None, "without a database nothing is asked"
        with self._connecting:
            if self._client is None:
                self._client = connect(self._url, self._token_file, answer_timeout_s=ANSWER_S)
        return self._client
