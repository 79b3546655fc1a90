"""Questions to the process `forecast` over a real nats-server: a forecast that takes long holds up nothing else."""

import asyncio
import threading

import pytest

from tenure.domain.ids import JobId
from tenure.log.access import open_client
from tenure.log.permissions import FORECAST, GATEWAY
from tenure.runtime.forecasts import OUTLOOK_TIMEOUT_S, Forecast, NoForecast, Outlook, Question, ask
from tests.contract.log_facts import CLUSTER
from tests.integration.log.test_permissions import Guarded, guarded
from tests.unit.simulator.live.test_answers import Answering

__all__ = ["guarded"]
SOON_S = 20.0


def test_an_outlook_is_answered_while_a_forecast_is_worked_out(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def long(*_: object, **__: object) -> Forecast:
        begun.set()
        assert go_on.wait(SOON_S)
        raise ValueError("that was long")

    monkeypatch.setattr("simulator.live.answers.forecast", long)
    access = guarded.access(FORECAST)

    async def scenario() -> None:
        answering, forecaster = Answering(), await open_client(access)
        gateway = await open_client(guarded.access(GATEWAY))
        answering.answers._asker = access.inbox_prefix_of(GATEWAY)
        await answering.answers.listen(forecaster, cluster=CLUSTER)
        await forecaster.flush()
        everything = asyncio.create_task(ask(gateway, Question(), cluster=CLUSTER, kind=Forecast, timeout_s=SOON_S))
        try:
            assert await asyncio.to_thread(begun.wait, SOON_S)
            question = Question(job=JobId("waits"))
            told = await ask(gateway, question, cluster=CLUSTER, kind=Outlook, timeout_s=OUTLOOK_TIMEOUT_S)
            assert told.changes[0].change == "4 GPUs instead of 8" and not everything.done()
        finally:
            go_on.set()
        with pytest.raises(NoForecast, match="that was long"):
            await everything
        await gateway.close()
        await forecaster.close()

    asyncio.run(scenario())
