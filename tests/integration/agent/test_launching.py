"""Real processes: how a replica starts, what it finds, how its end is told, and what cannot be started."""

import asyncio
import gc
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from services.agent.process import launcher_client
from services.agent.process.proc import all_stats, read_stat
from services.agent.process.spec import ExitCause, Launched, LaunchFailed
from tests.integration.agent.conftest import RealHost, is_running, until

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("script", "code", "signal"),
    [
        ("exit 0", 0, None),
        ("exit 3", 3, None),
        ("exit 143", 143, None),  # a code like a shell's "killed by SIGTERM" is a code all the same
        ("kill -TERM $$", None, 15),
        ("kill -SEGV $$", None, 11),
        ("kill -KILL $$", None, 9),
    ],
)
def test_the_end_is_told_as_it_was(play, script, code, signal):
    async def story(host: RealHost) -> None:
        launched = await host.start("sh", "-c", script)
        end = await host.exit_of()
        assert (end.cause, end.code, end.signal) == (ExitCause.EXITED, code, signal)
        assert launched.at == end.started_at
        assert launched.at <= end.at

    play(story)


def test_the_command_finds_exactly_the_environment_it_was_given(play):
    async def story(host: RealHost) -> None:
        given = {"PATH": "/usr/bin:/bin", "NAME": "blanks and\nlines", "BYTES": os.fsdecode(b"\xff\xfe")}
        await host.launch("env", "-0", environment=given)
        await host.exit_of()
        raw = (host.directory / "runs/j-1.1/0/stdout").read_bytes()
        found = dict(line.split(b"=", 1) for line in raw.rstrip(b"\0").split(b"\0"))
        expected = {**given, "TENURE_RUN_ID": "j-1.1", "TENURE_REPLICA": "0"}
        assert found == {os.fsencode(name): os.fsencode(value) for name, value in expected.items()}

    play(story)


def test_the_command_starts_with_a_clean_slate(play):
    async def story(host: RealHost) -> None:
        await host.start("cat", "/proc/self/status", run="j-1.1")
        await host.start("ls", "/proc/self/fd", run="j-2.1")
        await host.start("readlink", "/proc/self/fd/0", run="j-3.1")
        await until(lambda: len(host.exits) == 3)
        status = dict(line.split(":\t", 1) for line in host.text("j-1.1").splitlines())
        of_the_c_library = 0b11 << 31  # signals 32 and 33, which no program may touch
        for mask in ("SigBlk", "SigIgn", "SigCgt"):
            assert int(status[mask], 16) & ~of_the_c_library == 0, mask
        assert host.text("j-2.1").split() == ["0", "1", "2", "3"], "3 is the directory that ls reads"
        assert host.text("j-3.1") == "/dev/null\n"

    play(story)


def test_a_replica_leads_its_own_group_and_session(play):
    async def story(host: RealHost) -> None:
        launched = await host.start("sleep", "60")
        stat = read_stat(launched.pid)
        assert stat is not None
        assert stat.group == stat.session == launched.pid
        assert stat.parent == launched.keeper_pid

    play(story)


def test_the_working_directory_is_the_one_asked_for_or_home(play, tmp_path):
    async def story(host: RealHost) -> None:
        await host.launch("./here.sh", run="j-1.1", working_directory=str(tmp_path))
        await host.launch("pwd", run="j-2.1", environment={"PATH": "/bin", "HOME": "/usr/bin"})
        await host.launch("pwd", run="j-3.1", environment={"PATH": "/bin"})
        for run, place in {"j-1.1": str(tmp_path), "j-2.1": "/usr/bin", "j-3.1": "/"}.items():
            await host.exit_of(run)
            assert host.text(run).split() == [place]

    (tmp_path / "here.sh").write_text("#!/bin/sh\npwd\n")
    (tmp_path / "here.sh").chmod(0o755)
    play(story)


def scripts(folder: Path) -> None:
    """Files that look like commands and are none."""
    for name, text, mode in [
        ("plain", "#!/bin/sh\n", 0o644),
        ("no-interpreter", "#!/nowhere/sh\n", 0o755),
        ("no-first-line", "exit 0\n", 0o755),
    ]:
        (folder / name).write_text(text)
        (folder / name).chmod(mode)


@pytest.mark.parametrize(
    ("command", "options", "expected"),
    [
        (("no-such-command",), {}, "command not found: 'no-such-command' is in no directory of PATH=/usr/bin:/bin"),
        (("./no-such-command",), {}, "command not found: './no-such-command' does not exist"),
        (("./plain",), {}, "chmod +x"),
        (("plain",), {"environment": {"PATH": "{tmp}"}}, "chmod +x"),
        (("/usr",), {}, "is a directory"),
        (("./no-interpreter",), {}, "interpreter"),
        (("./no-first-line",), {}, "#!/bin/sh"),
        (("true", "x" * 3_000_000), {}, "put the data into a file"),
        (("true",), {"working_directory": "/no/such/place"}, "working directory '/no/such/place'"),
        (("true", "a\0b"), {}, "NUL"),
        (("true",), {"environment": {"A=B": "c"}}, "environment variable 'A=B'"),
        ((), {}, "the command is empty"),
    ],
)
def test_what_cannot_start_is_said_in_one_line_and_leaves_nothing(play, tmp_path, command, options, expected):
    scripts(tmp_path)
    options = {"working_directory": str(tmp_path), **options}
    if "environment" in options:
        options["environment"] = {name: text.format(tmp=tmp_path) for name, text in options["environment"].items()}

    async def story(host: RealHost) -> None:
        failed = await host.launch(*command, **options)
        assert isinstance(failed, LaunchFailed)
        assert expected in failed.problem
        assert "\n" not in failed.problem
        assert host.replicas.running() == ()
        assert await host.launch("true", run="j-2.1") and await host.exit_of("j-2.1"), "the next one is not affected"
        assert [end.run for end in host.exits] == ["j-2.1"]

    play(story)


def test_a_disk_that_takes_nothing_is_a_failed_launch(play):
    async def story(host: RealHost) -> None:
        (host.directory / "runs/j-1.1").write_text("a file where a directory must be")
        failed = await host.launch("true")
        assert isinstance(failed, LaunchFailed)
        assert "cannot write to" in failed.problem

    play(story)


def test_a_second_launch_starts_nothing(play):
    async def story(host: RealHost) -> None:
        both = await asyncio.gather(host.launch("sleep", "60"), host.launch("sleep", "60"))
        again = await host.launch("sleep", "60")
        assert isinstance(again, Launched)
        assert both == [again, again]
        assert host.replicas.running() == (again,)
        await host.stop()
        await host.exit_of()
        after = await host.launch("sleep", "60")
        await until(lambda: len(host.exits) == 2)
        assert after == again
        assert not is_running(again.pid)

    play(story)


def test_a_cancelled_launch_is_watched_all_the_same(play):
    async def story(host: RealHost) -> None:
        asking = asyncio.create_task(host.launch("true"))
        await until(lambda: (host.directory / "runs/j-1.1/0").exists())
        asking.cancel()
        await host.exit_of()

    play(story)


def test_an_exit_is_never_said_before_the_launch(play):
    async def story(host: RealHost) -> None:
        def told(count: int) -> bool:
            return len(host.exits) == count

        for number in range(30):
            await host.launch("true", run=f"j-1.{number}")
            assert len(host.exits) <= number
            await until(partial(told, number + 1))

    play(story)


def test_a_hundred_launches_leave_no_process_and_no_descriptor(play):
    async def story(host: RealHost) -> None:
        await host.start("true", run="j-0.1")
        await host.exit_of("j-0.1")
        gc.collect()  # what earlier tests left to be closed is not ours to count
        descriptors = open_descriptors()
        launched = await asyncio.gather(*(host.start("true", run=f"j-{number}.1") for number in range(1, 101)))
        await until(lambda: len(host.exits) == 101)
        assert {end.code for end in host.exits} == {0}
        assert open_descriptors() <= descriptors
        ours = {pid for one in launched for pid in (one.pid, one.keeper_pid)}
        await until(lambda: not ours & {stat.pid for stat in all_stats()})  # zombies included

    play(story)


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_the_launcher_is_replaced_when_it_dies(play):
    async def story(host: RealHost) -> None:
        first = await host.start("sleep", "60", run="j-1.1")
        keeper = read_stat(first.keeper_pid)
        assert keeper is not None
        os.kill(keeper.parent, 9)
        await host.start("sh", "-c", "exit 7", run="j-2.1")
        assert (await host.exit_of("j-2.1")).code == 7
        assert is_running(first.pid), "a launcher that dies takes no replica with it"
        await host.stop("j-1.1")
        assert (await host.exit_of("j-1.1")).signal == 15

    play(story)


def test_a_launcher_that_cannot_live_is_a_failed_launch(play, monkeypatch):
    monkeypatch.setattr(launcher_client, "_MODULE", "no.such.module")

    async def story(host: RealHost) -> None:
        failed = await host.launch("true")
        assert isinstance(failed, LaunchFailed)
        assert "launcher process" in failed.problem

    play(story)


def test_the_launcher_loads_the_standard_library_only():
    """What it loads is copied, page by page, into every keeper."""
    script = "import services.agent.process.launcher, sys; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run(
        [sys.executable, "-S", "-c", script], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    assert set(loaded.stdout.split()) - sys.stdlib_module_names - {"__main__"} == {"services"}


def test_forgetting_a_run_removes_what_it_left(play):
    async def story(host: RealHost) -> None:
        await host.start("echo", "hello", run="j-1.1")
        await host.exit_of("j-1.1")
        assert host.text("j-1.1") == "hello\n"
        host.replicas.forget("j-1.1")
        assert list((host.directory / "runs").iterdir()) == []
        with pytest.raises(FileNotFoundError):
            host.text("j-1.1")

    play(story)


def test_records_are_for_their_owner_only(play):
    async def story(host: RealHost) -> None:
        await host.start("true")
        await host.exit_of()
        modes = subprocess.run(
            ["find", str(host.directory / "runs"), "-type", "d", "-perm", "/077"], capture_output=True, check=True
        )
        assert modes.stdout == b""

    play(story)
