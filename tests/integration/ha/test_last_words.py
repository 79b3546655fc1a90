"""A role that cannot go on says why in one line, leading or not: whoever looks after it shows people the last one."""

import asyncio
from pathlib import Path

import pytest

from tenure.domain.refusal import Refusal
from tenure.log.port import Unavailable
from tenure.runtime.nats_server import NatsServer
from tenure.runtime.service import Service, argument_parser, connect_log, run_service, taking_part


@pytest.mark.parametrize(
    "trouble", [Refusal(field="--clickhouse", problem="is ahead of the log", fix="restore it"), Unavailable("is gone")]
)
@pytest.mark.parametrize("leading", [True, False])
def test_what_ends_a_role_that_takes_part_in_leading_is_one_line(
    server: NatsServer, tmp_path: Path, capfd: pytest.CaptureFixture[str], trouble: Exception, leading: bool
) -> None:
    async def serve(service: Service) -> None:
        log = await connect_log(service)
        try:
            async with taking_part(service, log, asyncio.Event(), at_once=leading) as leadership:
                while leading and not leadership.held:
                    await asyncio.sleep(0.01)
                raise trouble
        finally:
            await log.close()

    arguments = ["--nats", server.url, "--data", str(tmp_path)]
    assert run_service(argument_parser("journal", "a test"), "journal", arguments, serve) == 1
    assert capfd.readouterr().err.splitlines()[-1] == f"tenure serve journal: {trouble}"
