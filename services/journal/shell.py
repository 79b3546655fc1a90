"""The journal as a process."""

from collections.abc import Sequence
from functools import partial

from services.journal.journal import Journal
from tenure.clickhouse.connect import connect
from tenure.domain.refusal import Refusal
from tenure.runtime.service import (
    Service,
    argument_parser,
    connect_log,
    run_service,
    stop_on_signals,
    taking_part,
)

ANSWER_TIMEOUT_S = 30


def main(argv: Sequence[str] | None = None) -> int:
    """Run the journal until it is told to stop. Exit status 0, or 1 with one line on stderr."""
    parser = argument_parser("journal", "Writes the log to ClickHouse: every fact once, and what follows from it.")
    return run_service(parser, "journal", argv or [], serve)


async def serve(service: Service) -> None:
    """Run the journal's loop. Raises `Refusal` without a database."""
    connection = service.connection
    if connection.clickhouse_url is None:
        raise Refusal(field="--clickhouse", problem="not given", fix="give the http://host:port of ClickHouse")
    stop = stop_on_signals()
    log = await connect_log(service)
    to_database = partial(
        connect, connection.clickhouse_url, connection.clickhouse_token_file, answer_timeout_s=ANSWER_TIMEOUT_S
    )
    try:
        progress = connection.data / "journal" / "progress.json"
        cluster = service.arguments.clickhouse_cluster or None
        journal = Journal(log, to_database, progress_file=progress, cluster=cluster)
        details: dict[str, object] = {"progress": str(progress)}
        async with taking_part(service, log, journal.caught_up, details, at_once=True) as journal.leadership:
            journal.leadership.on_change.append(journal.look_up)
            await journal.run(stop)
    finally:
        await log.close()
