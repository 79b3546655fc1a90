"""Real processes: SIGTERM, grace, SIGKILL (P10), and that a replica is over only when nothing of it is left."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from services.agent.process.proc import all_stats
from services.agent.process.spec import ExitCause, Launched
from tests.integration.agent.conftest import RealHost, is_running, until

CHECKPOINTING = """
trap 'echo saving; sleep 0.2; echo step 41 > "$CHECKPOINT"; exit 0' TERM
echo ready
while :; do sleep 0.05; done
"""
DEAF = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
COUNTING = "trap 'echo told' TERM; echo ready; while :; do sleep 0.05; done"


def test_an_exit_inside_the_grace_period_wins(play, tmp_path):
    async def story(host: RealHost) -> None:
        environment = {"PATH": "/usr/bin:/bin", "CHECKPOINT": str(tmp_path / "checkpoint")}
        await host.launch("sh", "-c", CHECKPOINTING, environment=environment)
        await host.said("ready")
        assert await host.stop(grace_ms=10_000)
        end = await host.exit_of()
        assert (end.cause, end.code, end.signal) == (ExitCause.STOPPED, 0, None)
        assert (tmp_path / "checkpoint").read_text() == "step 41\n"

    play(story)


def test_what_ignores_sigterm_is_killed_at_the_end_of_the_grace_period(play):
    async def story(host: RealHost) -> None:
        await host.start("sh", "-c", DEAF)
        await host.said("ready")
        told = time.monotonic()
        await host.stop(grace_ms=400)
        end = await host.exit_of()
        assert (end.cause, end.code, end.signal) == (ExitCause.KILLED, None, 9)
        assert 0.4 <= time.monotonic() - told < 5.0

    play(story)


def test_a_stop_asked_for_twice_sends_one_sigterm_and_can_only_become_shorter(play):
    async def story(host: RealHost) -> None:
        await host.start("sh", "-c", COUNTING)
        await host.said("ready")
        await host.stop(grace_ms=30_000)
        await host.said("told")
        await host.stop(grace_ms=60_000)
        await host.stop(grace_ms=500)
        end = await host.exit_of()
        assert end.cause is ExitCause.KILLED
        assert host.text().count("told") == 1

    play(story)


def test_no_sigterm_is_too_early(play):
    """A stop right behind the launch reaches the command, not something between fork and exec."""

    async def story(host: RealHost) -> None:
        async def one(run: str) -> None:
            launching = asyncio.create_task(host.start("sleep", "60", run=run))
            assert await asyncio.gather(launching, host.stop(run, grace_ms=60_000)) != []
            await launching
            await host.stop(run, grace_ms=60_000)

        await asyncio.gather(*(one(f"j-{number}.1") for number in range(20)))
        await until(lambda: len(host.exits) == 20)
        assert {(end.cause, end.signal) for end in host.exits} == {(ExitCause.STOPPED, 15)}

    play(story)


def test_a_suspended_command_is_told_too(play):
    async def story(host: RealHost) -> None:
        launched = await host.start("sleep", "60")
        os.kill(launched.pid, signal.SIGSTOP)
        await host.stop(grace_ms=60_000)
        assert (await host.exit_of()).signal == 15

    play(story)


def test_stopping_what_does_not_run_says_so(play):
    async def story(host: RealHost) -> None:
        assert not await host.stop("j-9.9")
        await host.start("true")
        await host.exit_of()
        assert not await host.stop()

    play(story)


def test_the_whole_group_is_killed_with_its_grandchildren(play):
    script = f"""
    sh -c "{DEAF}" & sh -c 'sh -c "trap : TERM; sleep 60 & sleep 60 & wait; wait" & wait' &
    {DEAF}
    """

    async def story(host: RealHost) -> None:
        launched = await host.start("sh", "-c", script)
        await until(lambda: len(group_of(launched.pid)) >= 6)
        await host.stop(grace_ms=200)
        assert (await host.exit_of()).cause is ExitCause.KILLED
        assert group_of(launched.pid) == set()

    play(story)


def test_the_rest_of_the_group_has_the_grace_period_when_its_shell_dies_at_once(play, tmp_path):
    """`sh -c "python train.py; ..."`: SIGTERM ends the shell, while the training writes its checkpoint."""
    environment = {"PATH": "/usr/bin:/bin", "CHECKPOINT": str(tmp_path / "checkpoint"), "TRAINING": CHECKPOINTING}

    async def story(host: RealHost) -> None:
        await host.launch("sh", "-c", 'sh -c "$TRAINING"; echo never', environment=environment)
        await host.said("ready")
        await host.stop(grace_ms=10_000)
        end = await host.exit_of()
        assert (end.cause, end.signal) == (ExitCause.STOPPED, 15)
        assert (tmp_path / "checkpoint").read_text() == "step 41\n"

    play(story)


@pytest.mark.parametrize("way_out", ["sleep 60 &", "setsid sleep 60 &", "setsid sh -c 'setsid sleep 60 & sleep 60' &"])
def test_what_a_command_leaves_behind_is_gone_before_its_exit_is_told(play, way_out):
    async def story(host: RealHost) -> None:
        mark = f"LEFT_BEHIND_BY={os.getpid()}"
        await host.start("sh", "-c", f"export {mark}; {way_out} sleep 0.1; exit 5")
        end = await host.exit_of()
        assert (end.cause, end.code) == (ExitCause.EXITED, 5)
        assert [stat.pid for stat in all_stats() if mark in environment_of(stat.pid)] == []

    play(story)


def test_a_group_that_forks_without_end_is_killed(play):
    async def story(host: RealHost) -> None:
        forking = "trap '' TERM; echo ready; while :; do sh -c 'trap \"\" TERM; sleep 60' & sleep 0.002; done"
        launched = await host.start("sh", "-c", forking)
        await host.said("ready")
        await until(lambda: len(group_of(launched.pid)) > 20)
        await host.stop(grace_ms=0)
        await host.exit_of()
        assert group_of(launched.pid) == set()

    play(story)


def test_the_grace_period_of_the_launch_holds_for_a_stop_that_comes_from_elsewhere(play):
    """SIGTERM to the keeper itself, as a service manager sends it to everything at a shutdown."""

    async def story(host: RealHost) -> None:
        launched = await host.launch("sh", "-c", DEAF, grace_ms=200)
        assert isinstance(launched, Launched)
        await host.said("ready")
        os.kill(launched.keeper_pid, signal.SIGTERM)
        end = await host.exit_of()
        assert (end.cause, end.signal) == (ExitCause.KILLED, 9)
        assert not is_running(launched.pid)

    play(story)


def group_of(pid: int) -> set[int]:
    return {stat.pid for stat in all_stats() if stat.group == pid and stat.state != "Z"}


def environment_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")
    except OSError:
        return []
