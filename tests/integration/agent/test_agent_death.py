"""Real processes: the agent is killed with SIGKILL at any point, and its successor knows and tells everything (S56)."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from services.agent.process import directory as files
from services.agent.process import replicas
from services.agent.process.proc import all_stats
from services.agent.process.spec import ExitCause, Launched, LaunchFailed
from tests.integration.agent.conftest import RealHost, is_running, until, wall_clock

ROOT = Path(__file__).parents[3]


class DoomedAgent:
    """Another process that launches replicas in the same directory as the test's own host."""

    def __init__(self, directory: Path, *launches: list[object]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.agent.doomed_agent", str(directory)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.tell(*launches, end="\n")
        self.hear("asking")

    def tell(self, *lines: list[object], end: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("".join(json.dumps(line) + "\n" for line in lines) + end)
        self.process.stdin.flush()

    def hear(self, word: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == word + "\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


@contextmanager
def doomed(directory: Path, *launches: list[object]) -> Iterator[DoomedAgent]:
    agent = DoomedAgent(directory, *launches)
    try:
        yield agent
    finally:
        if agent.process.poll() is None:
            agent.kill()


def gone(directory: Path, run: str) -> bool:
    return (directory / f"runs/{run}/0/exit.json").exists()


def test_a_running_replica_goes_on_and_is_found_again(play, tmp_path):
    async def story(host: RealHost) -> None:
        with doomed(tmp_path, ["j-1.1", 3, "sh", "-c", "echo ready; read x; sleep 60"]) as agent:
            agent.hear("ready")
            agent.kill()
            adoption = await host.replicas.adopt()
            (found,) = adoption.running
            assert (found.run, found.job, found.replica, found.gpus) == ("j-1.1", "j-1", 3, (0, 1))
            assert adoption.ended == ()
            assert is_running(found.pid)
            assert host.replicas.running() == (found,)
            again = await host.launch("never", replica=3)
            assert again == found, "it is not launched twice"
            await host.stop(replica=3)
            end = await host.exit_of(replica=3)
            assert (end.cause, end.signal, end.started_at) == (ExitCause.STOPPED, 15, found.at)

    play(story)


def test_an_exit_that_nobody_saw_is_told_with_its_code_and_time(play, tmp_path):
    commands = {"j-1.1": "exit 3", "j-2.1": "kill -USR1 $$", "j-3.1": "exit 0"}

    async def story(host: RealHost) -> None:
        launches = [
            [run, 0, "sh", "-c", f"while ! test -e go; do sleep 0.01; done; {do}"] for run, do in commands.items()
        ]
        with doomed(tmp_path, *launches) as agent:
            agent.hear("ready")
            agent.kill()
            (tmp_path / "go").touch()
            await until(lambda: all(gone(tmp_path, run) for run in commands))
            seen_at = wall_clock()
            adoption = await host.replicas.adopt()
            assert adoption.running == ()
            told = {end.run: (end.cause, end.code, end.signal) for end in adoption.ended}
            assert told == {
                "j-1.1": (ExitCause.EXITED, 3, None),
                "j-2.1": (ExitCause.EXITED, None, signal.SIGUSR1),
                "j-3.1": (ExitCause.EXITED, 0, None),
            }
            assert all(end.started_at is not None and end.started_at <= end.at <= seen_at for end in adoption.ended)
            assert host.exits == [], "what was told once is not told again"

    play(story)


def test_a_stop_is_carried_through_although_the_agent_that_asked_for_it_is_dead(play, tmp_path):
    async def story(host: RealHost) -> None:
        deaf = "trap '' TERM; touch deaf; while :; do sleep 0.02; done"
        with doomed(tmp_path, ["j-1.1", 0, "sh", "-c", deaf]) as agent:
            agent.hear("ready")
            await until((tmp_path / "deaf").exists)
            agent.tell(["j-1.1", 300])
            agent.hear("told")
            agent.kill()
            await until(lambda: gone(tmp_path, "j-1.1"))
            (end,) = (await host.replicas.adopt()).ended
            assert (end.cause, end.signal) == (ExitCause.KILLED, 9)

    play(story)


@pytest.mark.parametrize("begun", [0, 1, 4, 16, 39])
def test_killed_while_it_launches_nothing_is_lost_and_nothing_starts_twice(play, tmp_path, begun):
    runs = [f"j-{number}.1" for number in range(40)]

    async def story(host: RealHost) -> None:
        with doomed(tmp_path, *([run, 0, "sh", "-c", f"echo x >> started.{run}; sleep 60"] for run in runs)) as agent:
            await until(lambda: len(list(tmp_path.glob("runs/*/0/replica.json"))) >= begun)
            agent.kill()
            adoption = await host.replicas.adopt()
            for run in runs:  # the log still says that they shall run: the successor launches what it does not know
                answer = await host.launch("sh", "-c", f"echo x >> started.{run}; sleep 60", run=run)
                if isinstance(answer, LaunchFailed):
                    assert any(end.run == run and end.cause is ExitCause.NOT_LAUNCHED for end in adoption.ended)
            started = {launched.run for launched in host.replicas.running()}
            await until(lambda: all(written(tmp_path / f"started.{run}") for run in started))
            assert host.exits == []
            for run in started:
                await host.stop(run, grace_ms=0)
            await until(lambda: len(host.exits) == len(started))
            assert {run: written(tmp_path / f"started.{run}") for run in runs} == {
                run: "x\n" if run in started else "" for run in runs
            }

    play(story)


def test_a_launch_nobody_had_begun_is_ruled_out_for_good(play, tmp_path):
    async def story(host: RealHost) -> None:
        with doomed(tmp_path, ["j-1.1", 0, "touch", str(tmp_path / "ran")]) as agent:
            agent.hear("ready")
            agent.kill()
        await until(lambda: gone(tmp_path, "j-1.1"))
        (tmp_path / "ran").unlink()
        replica = tmp_path / "runs/j-1.1/0"
        for name in (files.REPLICA, files.EXIT):
            (replica / name).unlink()  # as if the agent had died between the intent and the launcher
        (end,) = (await host.replicas.adopt()).ended
        assert (end.cause, end.started_at, end.code, end.signal) == (ExitCause.NOT_LAUNCHED, None, None, None)
        await host.launcher.launch(replica)  # a request that was still on its way
        await host.start("true", run="j-2.1")
        await host.exit_of("j-2.1")
        assert not (tmp_path / "ran").exists()
        assert (await RealHost(tmp_path).replicas.adopt()).ended[0] == end, "a later agent says the same"

    play(story)


def test_a_launch_that_hangs_does_not_hold_up_the_others(play, tmp_path, monkeypatch):
    """Its keeper has the claim and lives, but does not get on: a working directory on a dead file server."""
    monkeypatch.setattr(replicas, "_CLAIM_PATIENCE_S", 0.05)

    async def story(host: RealHost) -> None:
        with doomed(tmp_path, ["j-1.1", 0, "sleep", "60"], ["j-2.1", 0, "sleep", "60"]) as agent:
            agent.hear("ready")
            agent.kill()
        running = files.read_keeper(tmp_path / "runs/j-1.1/0")
        assert running is not None
        files.write_keeper(tmp_path / "runs/j-1.1/0", running._replace(pid=0, start_ticks=0, started_ms=0))
        adoption = await host.replicas.adopt()
        assert ([one.run for one in adoption.running], adoption.ended) == (["j-2.1"], ())
        files.write_keeper(tmp_path / "runs/j-1.1/0", running)  # it got on
        assert (await host.start("never", run="j-1.1")).pid == running.pid
        await host.stop("j-1.1")
        assert (await host.exit_of("j-1.1")).signal == 15

    play(story)


def test_a_failed_launch_is_told_by_the_next_agent_too(play):
    async def story(host: RealHost) -> None:
        failed = await host.launch("no-such-command")
        assert isinstance(failed, LaunchFailed)
        (end,) = (await RealHost(host.directory).replicas.adopt()).ended
        assert (end.cause, end.detail, end.at) == (ExitCause.NOT_LAUNCHED, failed.problem, failed.at)

    play(story)


def test_when_a_keeper_is_killed_its_replica_is_killed_and_told_as_lost(play):
    script = "setsid sleep 61 & sleep 62 & echo ready; sleep 63"

    async def story(host: RealHost) -> None:
        launched = await host.start("sh", "-c", script)
        await host.said("ready")
        await until(lambda: len(below(launched.pid)) == 3)
        left = [launched.pid, *below(launched.pid)]
        os.kill(launched.keeper_pid, signal.SIGKILL)
        end = await host.exit_of()
        assert (end.cause, end.code, end.signal) == (ExitCause.LOST, None, None)
        assert "keeper was killed" in end.detail
        assert [pid for pid in left if is_running(pid)] == []
        (again,) = (await RealHost(host.directory).replicas.adopt()).ended
        assert again == end

    play(story)


def test_after_a_reboot_a_replica_is_lost_and_no_stranger_with_its_pid_is_touched(play, tmp_path):
    async def story(host: RealHost) -> None:
        stranger = await host.start("sleep", "60", run="j-1.1")
        replica = tmp_path / "runs/j-1.1/0"
        keeper = files.read_keeper(replica)
        assert keeper is not None
        other = RealHost(tmp_path / "other")
        (tmp_path / "other/runs/j-1.1/0").mkdir(parents=True)
        launch = files.read_launch(replica)
        assert launch is not None
        files.write_launch(tmp_path / "other/runs/j-1.1/0", launch)
        files.write_keeper(tmp_path / "other/runs/j-1.1/0", keeper._replace(boot_id="another-boot"))
        (found,) = (await other.replicas.adopt()).running
        assert found.pid == stranger.pid
        end = await other.exit_of()
        assert (end.cause, end.detail) == (ExitCause.LOST, "the host was restarted")
        assert is_running(stranger.pid) and host.exits == []
        await other.end()

    play(story)


def test_a_reused_pid_is_not_taken_for_the_replica(play, tmp_path):
    async def story(host: RealHost) -> None:
        stranger = await host.start("sleep", "60", run="j-2.1")
        ended = await host.start("true", run="j-1.1")
        await host.exit_of("j-1.1")
        replica = tmp_path / "runs/j-1.1/0"
        keeper = files.read_keeper(replica)
        assert keeper is not None
        (replica / files.EXIT).unlink()
        mistaken = keeper._replace(keeper_pid=stranger.keeper_pid, pid=stranger.pid)  # its start ticks are not theirs
        files.write_keeper(replica, mistaken._replace(keeper_start_ticks=1, start_ticks=1))
        successor = RealHost(tmp_path)
        adoption = await successor.replicas.adopt()
        assert {one.run for one in adoption.running} == {ended.run, stranger.run}
        assert (await successor.exit_of("j-1.1")).cause is ExitCause.LOST
        assert is_running(stranger.pid) and is_running(stranger.keeper_pid)
        assert [one.run for one in successor.replicas.running()] == ["j-2.1"]
        await successor.end()
        await host.exit_of("j-2.1")

    play(story)


def test_the_successor_can_be_killed_too(play, tmp_path):
    async def story(host: RealHost) -> None:
        pids = set()
        with doomed(tmp_path, ["j-1.1", 0, "sleep", "60"]) as agent:
            agent.hear("ready")
            agent.kill()
        for _ in range(3):
            successor = RealHost(tmp_path)
            (found,) = (await successor.replicas.adopt()).running
            pids.add(found.pid)
            successor.replicas.close()
        (found,) = (await host.replicas.adopt()).running
        assert isinstance(found, Launched)
        assert pids == {found.pid}

    play(story)


def written(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def below(pid: int) -> list[int]:
    children = [stat.pid for stat in all_stats() if stat.parent == pid]
    return children + [deeper for child in children for deeper in below(child)]
