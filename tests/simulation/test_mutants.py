"""The harness has teeth: five ways to break the product, patched in here alone, are each found within 200 seeds."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from services.gateway.gateway import Gateway
from services.gateway.refusals import Away, Full
from services.placer import evolve as placer_evolve
from services.placer.core import Escrow, gpu_mask
from services.placer.policy import settle
from services.placer.state import State
from tenure.domain.job import gpus_by_host
from tenure.events.fact import Fact
from tenure.events.placing import JobRequeued, RunStarted
from tenure.log.memory import MemoryLog
from tenure.log.port import Appended, Conflict, Expect
from tests.simulation.whole.faulty_log import SharedLog
from tests.simulation.whole.processes import GatewayProcess
from tests.simulation.whole.seeds import run_seed

SEEDS = 200


@contextmanager
def no_escrow() -> Iterator[None]:
    """P7: GPUs that are freed for an asker are given to whoever comes first."""
    keep = State.keep

    def keep_nothing(self: State, escrow: Escrow) -> None:
        keep(self, escrow)
        for host, gpus in gpus_by_host(escrow.placement).items():
            self.escrowed[host] &= ~gpu_mask(gpus)
            self.refresh(host)

    with patch.object(State, "keep", keep_nothing):
        yield


@contextmanager
def no_conditional_append() -> Iterator[None]:
    """The log takes whatever is sent, on whatever it was decided."""

    def take(self: SharedLog, facts: Sequence[Fact], *, expect: Expect | None = None) -> Appended:
        return MemoryLog.append_now(self, facts)

    with patch.object(SharedLog, "append_now", take):
        yield


@contextmanager
def protection_from_the_wrong_clock() -> Iterator[None]:
    """I3: the placer protects a run from when it decided to start it, not from when its hosts say it started."""
    started = placer_evolve._EVOLVE[RunStarted]

    def by_own_clock(state: State, fact: RunStarted) -> None:
        late = fact.at - state.core.runs[fact.run].assigned_at
        started(state, msgspec.structs.replace(fact, protected_until=fact.protected_until - late))

    with patch.dict(placer_evolve._EVOLVE, {RunStarted: by_own_clock}):
        yield


@contextmanager
def acknowledged_before_it_is_written() -> Iterator[None]:
    """The gateway answers at once and writes beside it: what it had in its hands when it died is gone."""
    append, flying = Gateway.append, dict[asyncio.Task[None], None]()

    async def answer_first(self: Gateway, facts: Sequence[Fact], *, expect: Expect | None = None) -> Appended:
        async def write() -> None:
            try:
                await append(self, facts, expect=expect)
            except (Away, Full, Conflict):
                return

        flying[asyncio.create_task(write())] = None
        return Appended(last=self._written)

    with ExitStack() as patches:
        patches.enter_context(patch.object(Gateway, "append", answer_first))
        patches.enter_context(patch.object(GatewayProcess, "hands", lambda self: list(flying)))
        yield


@contextmanager
def double_requeue() -> Iterator[None]:
    """P10: the end of a run sends its job back to the queue twice."""
    end = settle._end

    def ends(*arguments: Any) -> Iterator[Fact]:
        for fact in end(*arguments):
            yield fact
            if isinstance(fact, JobRequeued):
                yield fact

    with patch.object(settle, "_end", ends):
        yield


Mutant = Callable[[], AbstractContextManager[None]]


@pytest.mark.parametrize(
    ("mutant", "words"),
    [
        (no_escrow, "P7"),
        (no_conditional_append, ""),
        (protection_from_the_wrong_clock, "I3"),
        (acknowledged_before_it_is_written, "lost"),
        (double_requeue, "requeued twice"),
    ],
)
def test_a_mutant_is_found(mutant: Mutant, words: str) -> None:
    with mutant():
        found = next((outcome for outcome in map(run_seed, range(SEEDS)) if outcome.problem is not None), None)
    assert found is not None and words in str(found.problem), str(found)
    assert f"make sim-soak SEED={found.seed}" in str(found)
