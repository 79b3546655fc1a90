"""Occupancy in the log is what the exits say, to the millisecond, however heartbeats, exits and restarts fall."""

import asyncio
from pathlib import Path

import pytest

from services.agent.beats import Spool, read_spool
from services.agent.shell import compare, in_log
from services.agent.state import Core, State
from tenure.domain.ids import LOG_START, FactId, JobId, RunId
from tenure.domain.job import Launch
from tenure.domain.policy import Policy
from tenure.domain.reasons import EndCause
from tenure.domain.units import DAY, HOUR
from tenure.events.reports import Heartbeat
from tenure.log.memory import MemoryLog
from tests.checks.invariants import check_segments
from tests.integration.agent.conftest import until
from tests.integration.agent.live import HOST, SPEC, beats, end, exits, hands_in, held, living, lost, told
from tests.unit.agent.runs import assigned

RUNS = 40


def test_heartbeats_at_every_moment_never_count_more_or_less_than_was_held(tmp_path: Path) -> None:
    """An agent that beats every other millisecond, and runs that end all the time."""
    log = MemoryLog()

    async def scene() -> None:
        async with living(log, tmp_path, heartbeat_ms=2) as loop:
            for number in range(RUNS):
                assign(log, f"j{number}", "/bin/sleep", "0.05")
                await until(lambda: len(loop.state.replicas) > number)  # noqa: B023
            await until(lambda: exits(log) == RUNS)
            log.append_now([end(f"j{number}") for number in range(RUNS)])
            await until(lambda: not loop.state.replicas)

    asyncio.run(scene())
    assert len(held(log)) == RUNS and told(log) == held(log)


@pytest.mark.parametrize("acknowledged", [True, False])
def test_what_the_agent_said_last_is_in_the_log_once_after_its_restart(tmp_path: Path, acknowledged: bool) -> None:
    """Its last heartbeat is on disk; whether it reached the log before the agent died, only the log can tell."""
    first, go = MemoryLog(), tmp_path / "go"

    async def live_and_die() -> None:
        async with living(first, tmp_path, heartbeat_ms=50):
            assign(first, "j", "/bin/sh", "-c", wait_for(go))
            await until(lambda: sum(bool(beat.hosts[0].segments) for beat in beats(first)) >= 3)

    async def live_again(log: MemoryLog) -> None:
        async with living(log, tmp_path, heartbeat_ms=50) as loop:
            go.touch()
            await until(lambda: exits(log) == 1)
            log.append_now([end("j")])
            await until(lambda: not loop.state.replicas)

    asyncio.run(live_and_die())
    spool = read_spool(tmp_path / "beat.json")
    assert spool is not None
    lost = {beat.id for beat in spool.beats} if not acknowledged else set()
    log = MemoryLog()
    log.append_now([entry.fact for entry in first.recorded if entry.fact.id not in lost])
    asyncio.run(live_again(log))
    assert [beat.id for beat in beats(log)].count(spool.beats[-1].id) == 1
    assert told(log) == held(log) and len(held(log)) == 1


def test_what_ends_unseen_on_a_lost_host_is_told_to_the_last_sign_of_life(tmp_path: Path) -> None:
    """The agent dies with its job running and comes back when host and job were given up; the job ended meanwhile."""
    log, go = MemoryLog(), tmp_path / "go"

    async def scene() -> dict[RunId, int]:
        async with living(log, tmp_path, heartbeat_ms=50):
            assign(log, "j", "/bin/sh", "-c", wait_for(go))
            await until(lambda: sum(bool(beat.hosts[0].segments) for beat in beats(log)) >= 3)
        before = told(log)
        go.touch()
        await until((tmp_path / "runs/j.1/0/exit.json").exists)
        log.append_now([lost(last_seen=beats(log)[-1].at), end("j", EndCause.HOST_LOST)])
        async with living(log, tmp_path, heartbeat_ms=50) as loop:
            await until(lambda: exits(log) == 1 and not loop.state.replicas)
        return before

    before = asyncio.run(scene())
    assert told(log) == before and before[RunId("j.1")] > 0
    check_segments([entry.fact for entry in log.recorded], complete=True)


@pytest.mark.parametrize("alive", [True, False])
def test_what_was_told_of_a_host_that_was_not_heard_in_time_is_taken_back(tmp_path: Path, alive: bool) -> None:
    """Its heartbeats are in the log; the health role heard them too late, and the books end before them (P2, I5)."""
    log, go = MemoryLog(), tmp_path / "go"

    def give_up() -> None:
        assert [len(beat.hosts[0].segments) for beat in beats(log)[-2:]] == [1, 1]
        log.append_now([lost(last_seen=beats(log)[-3].at), end("j", EndCause.HOST_LOST)])

    async def scene() -> None:
        async with living(log, tmp_path, heartbeat_ms=50) as loop:
            assign(log, "j", "/bin/sh", "-c", wait_for(go))
            await until(lambda: sum(bool(beat.hosts[0].segments) for beat in beats(log)) >= 4)
            if alive:
                give_up()
                await until(lambda: exits(log) == 1 and not loop.state.replicas)
                return
        give_up()
        async with living(log, tmp_path, heartbeat_ms=50) as loop:
            await until(lambda: exits(log) == 1 and not loop.state.replicas)

    asyncio.run(scene())
    parts = [part.gpus for beat in beats(log) for part in beat.hosts[0].segments]
    assert sorted({gpus > 0 for gpus in parts}) == [False, True]
    check_segments([entry.fact for entry in log.recorded], complete=True)


@pytest.mark.parametrize("written", [True, False])
def test_after_an_outage_a_heartbeat_is_sent_again_only_if_the_log_has_not_got_it(
    tmp_path: Path, written: bool
) -> None:
    """Its acknowledgement was lost. The log knows ids for ten minutes only; an outage may take longer."""
    log, hands = MemoryLog(), hands_in(tmp_path, policy=Policy())
    hands.state = State(Core(), (SPEC,))
    beat = Heartbeat(at=0, id=FactId("h0-beat-0-0"), agent=HOST, hosts=())
    hands.send_again(Spool(before=LOG_START, beats=(beat,), occupied_until={}))
    if written:
        log.append_now([beat])
    asyncio.run(compare(hands, log, hands.state, now=HOUR))
    assert hands.state.pending_beats == (() if written else (beat,))


def test_heartbeats_that_the_log_may_have_forgotten_are_not_sent_again() -> None:
    """It keeps them for two days: of older ones it cannot be told any more whether they were counted."""
    beat = Heartbeat(at=0, id=FactId("h0-beat-0-0"), agent=HOST, hosts=())
    spool = Spool(before=LOG_START, beats=(beat,), occupied_until={})
    known = [asyncio.run(in_log(MemoryLog(), spool, now=age)) for age in (DAY, 3 * DAY)]
    assert known == [None, (beat,)]


def assign(log: MemoryLog, job: str, *command: str) -> None:
    launch = Launch(command=command, environment={"PATH": "/usr/bin:/bin"})
    log.append_now([assigned(HOST, id=f"{job}.1", run=RunId(f"{job}.1"), job=JobId(job), launch=launch)])


def wait_for(go: Path) -> str:
    """A script that ends when the file is there, and not much later than the test."""
    return f"for i in $(seq 1500); do [ -e {go} ] && exit; sleep 0.02; done"
