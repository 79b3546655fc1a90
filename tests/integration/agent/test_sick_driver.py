"""A driver or a file system that hangs makes no host silent: its heartbeats go on, and its runs with them (S64)."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import pytest

from services.agent.gpu.provider import Gpu, Utilisation
from services.agent.patience import Patience, in_time
from tenure.domain.job import Launch
from tenure.events.reports import ReplicasExited
from tenure.log.memory import MemoryLog
from tests.integration.agent.conftest import until
from tests.integration.agent.live import HOST, beats, eight_gpus, end, exits, living
from tests.unit.agent.runs import JOB, RUN, assigned


class SickDriver:
    """Eight GPUs. While it is `sick` no question is answered; then one GPU has a fault."""

    def __init__(self) -> None:
        self._gpus = eight_gpus()
        self.healed, self.asked_while_sick = threading.Event(), 0
        self.healed.set()
        self.fault = ""

    def fall_sick(self) -> None:
        self.fault = "gone"
        self.healed.clear()

    def gpus(self) -> Sequence[Gpu]:
        if not self.healed.is_set():
            self.asked_while_sick += 1
            self.healed.wait(60)
        first, *others = self._gpus.gpus()
        return (replace(first, fault=self.fault), *others)

    def utilisation(self, held: Mapping[int, Sequence[int]]) -> Utilisation:
        return self._gpus.utilisation(held)


def test_heartbeats_go_on_while_the_driver_hangs(tmp_path) -> None:
    driver = SickDriver()

    async def story() -> None:
        log = MemoryLog()
        async with living(log, tmp_path, heartbeat_ms=100, provider=driver):
            await log.append([assigned(HOST, id="assigned-1", launch=Launch(command=("/bin/sleep", "60")))])
            await until(lambda: bool(beats(log)) and beats(log)[-1].hosts[0].runs == (RUN,))
            driver.fall_sick()
            await until(lambda: driver.asked_while_sick > 0)
            begun = len(beats(log))
            await until(lambda: len(beats(log)) > begun + 5)
            (host,) = beats(log)[-1].hosts
            assert (host.gpus, host.runs) == (8, (RUN,)), "as many as worked when it last answered"
            assert driver.asked_while_sick == 1, "it is not asked twice at a time"
            driver.healed.set()
            await until(lambda: beats(log)[-1].hosts[0].gpus == 7)
            await log.append([end(JOB)])
            await until(lambda: exits(log) == 1)

    try:
        asyncio.run(asyncio.wait_for(story(), 60))
    finally:
        driver.healed.set()


@pytest.mark.parametrize("hangs", [False, True], ids=["faulty", "hangs"])
def test_nothing_is_started_on_gpus_that_do_not_work(tmp_path, hangs: bool) -> None:
    """S62: the run is its host's loss; its agent goes on speaking."""
    driver = SickDriver()
    command = ("/bin/sh", "-c", 'touch "$0"', str(tmp_path / "ran"))

    async def story() -> None:
        log = MemoryLog()
        async with living(log, tmp_path, heartbeat_ms=100, provider=driver):
            await until(lambda: bool(beats(log)))
            driver.fall_sick()
            if not hangs:
                driver.healed.set()
            await log.append([assigned(HOST, id="assigned-1", launch=Launch(command=command))])
            begun = len(beats(log))
            await until(lambda: exits(log) == 1 and len(beats(log)) > begun + 2)
            driver.healed.set()
        (said,) = [entry.fact for entry in log.recorded if isinstance(entry.fact, ReplicasExited)]
        (gone,) = said.replicas
        why = "the driver of host h0 does not answer" if hangs else "GPU 0 of host h0 does not work: gone"
        assert (gone.error, gone.lost, gone.started_at) == (why, True, None)
        assert not (tmp_path / "ran").exists()

    try:
        asyncio.run(asyncio.wait_for(story(), 60))
    finally:
        driver.healed.set()


def test_a_late_answer_counts_for_the_next_question_and_what_goes_wrong_is_raised() -> None:
    release = threading.Event()

    def slow() -> int:
        release.wait(30)
        return 1

    def broken() -> int:
        raise OSError(5, "Input/output error")

    async def story() -> None:
        patience = Patience[int]("a file system", limit_s=0.05)
        assert await patience.ask(slow) is None
        assert await patience.ask(broken) is None, "the first is not answered yet"
        release.set()

        async def answered() -> int:
            while (answer := await patience.ask(broken)) is None:
                await asyncio.sleep(0)
            return answer

        assert await asyncio.wait_for(answered(), 20) == 1
        patient = Patience[int]("a file system", limit_s=20)
        with pytest.raises(OSError, match="Input/output"):
            await patient.ask(broken)
        assert await patient.ask(lambda: 2) == 2

    asyncio.run(story())


def test_who_asks_at_the_same_time_waits_for_a_turn() -> None:
    async def story() -> None:
        patience = Patience[int]("a file system", limit_s=20)
        assert await asyncio.gather(*[patience.ask(partial(int, number)) for number in range(9)]) == [*range(9)]
        assert await in_time(lambda: 3, name="three") == 3

    asyncio.run(story())
