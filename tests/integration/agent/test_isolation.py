"""Jobs of other users, and hostile ones: whose processes they are, what they reach, and that nothing of them stays."""

import asyncio
import contextlib
import os
import pwd
import signal
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from services.agent.process import cgroups
from services.agent.process.spec import Account, Launched, LaunchFailed, LaunchSpec
from services.agent.starting import Rules
from tenure.domain.ids import FactId, JobId, RunId, UserName
from tenure.domain.job import Launch
from tenure.events.reports import ReplicasExited
from tenure.log.memory import MemoryLog
from tests.integration.agent.conftest import RealHost, is_running, until
from tests.integration.agent.live import HOST, exits, living
from tests.unit.agent.runs import assigned

ANA = Account(name="ana", uid=54_321, gid=54_321, groups=(54_321, 54_322), home="/", shell="/bin/sh")
SPEC = LaunchSpec(
    run=RunId("j-1.1"),
    job=JobId("j-1"),
    replica=0,
    command=("true",),
    environment={"PATH": "/usr/bin:/bin"},
    gpus=(0,),
    grace_ms=1_000,
    working_directory="/",
)
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of others")


@pytest.fixture
def groups(tmp_path: Path) -> Iterator[str]:
    """Where control groups are made; skipped where there are none."""
    try:
        parent = cgroups.parent_for(f"tenure-test-{os.getpid()}", limits=False)
    except OSError as error:
        pytest.skip(f"no control groups here: {error}")
    yield parent
    Path(parent).rmdir()


async def started(host: RealHost, spec: LaunchSpec, *command: str) -> Launched:
    launched = await host.replicas.launch(replace(spec, command=command))
    assert isinstance(launched, Launched), launched
    return launched


@root
def test_a_job_is_its_user_s_and_cannot_become_another_s(play, tmp_path):
    own = tmp_path / "own"

    async def story(host: RealHost) -> None:
        own.mkdir()
        os.chown(own, ANA.uid, ANA.gid)
        for folder in (tmp_path, *tmp_path.parents):  # pytest's are closed to others
            if folder.stat().st_uid == os.getuid() and not folder.stat().st_mode & stat.S_IXOTH:
                folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
        script = (
            "id -u; id -g; id -G; echo mine > $0/file; echo err > /dev/stderr; grep -c . /proc/self/cgroup >/dev/null; "
            "grep CapEff /proc/self/status; ls $1 2>&1 | tail -c 20; kill -0 1 2>&1 | tail -c 24"
        )
        spec = replace(SPEC, account=ANA, own_folder=str(own))
        await started(host, spec, "/bin/sh", "-c", script, str(own), str(host.directory / "runs"))
        assert (await host.exit_of()).code == 0
        lines = host.text().splitlines()
        assert lines[:3] == ["54321", "54321", "54321 54322"]
        assert lines[3].split()[1].strip("0") == "", "no rights of root are left"
        assert "Permission denied" in lines[4], "the agent's files are closed"
        assert host.text(stream="stderr") == "err\n", "it may open its own output again"
        assert (own / "file").stat().st_uid == ANA.uid

    play(story)


@root
@pytest.mark.parametrize("what", ["working_directory", "own_folder"])
def test_what_the_user_may_not_enter_is_said(play, tmp_path, what):
    closed = tmp_path / "closed"

    async def story(host: RealHost) -> None:
        closed.mkdir(mode=0o700)
        spec = replace(SPEC, account=ANA, **{what: str(closed)})
        failed = await host.replicas.launch(spec)
        assert isinstance(failed, LaunchFailed)
        assert str(closed) in failed.problem
        assert ("--checkpoints" in failed.problem) == (what == "own_folder")

    play(story)


@root
def test_a_program_that_is_not_there_is_explained_as_ever(play):
    async def story(host: RealHost) -> None:
        failed = await host.replicas.launch(replace(SPEC, account=ANA, command=("no-such-program",)))
        assert isinstance(failed, LaunchFailed)
        assert "command not found: 'no-such-program'" in failed.problem

    play(story)


@root
def test_an_unknown_user_and_one_of_the_system_are_refused_and_nothing_runs_as_root(tmp_path):
    log, mark = MemoryLog(), tmp_path / "mark"
    users = {"nobody-here": "knows no user 'nobody-here'", "root": "account of the system (uid 0)"}

    async def scene() -> None:
        async with living(log, tmp_path / "agent", heartbeat_ms=50, rules=Rules(as_submitter=True)):
            for user in users:
                launch = Launch(command=("/bin/touch", str(mark)))
                run = RunId(f"{user}.1")
                log.append_now(
                    [assigned(HOST, id=FactId(run), run=run, job=JobId(user), user=UserName(user), launch=launch)]
                )
            await until(lambda: exits(log) == len(users))

    asyncio.run(scene())
    assert not mark.exists()
    said = {entry.fact.job: entry.fact.replicas[0] for entry in log.recorded if isinstance(entry.fact, ReplicasExited)}
    for user, why in users.items():
        gone = said[JobId(user)]
        assert why in (gone.error or "") and gone.started_at is None and not gone.lost


@root
def test_a_job_s_folders_are_its_user_s_alone(tmp_path, monkeypatch):
    log = MemoryLog()
    me = pwd.struct_passwd(("ana", "x", ANA.uid, ANA.gid, "", "/", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwnam", lambda _: me)
    monkeypatch.setattr(os, "getgrouplist", lambda *_: [ANA.gid])
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.getuid() and not folder.stat().st_mode & stat.S_IXOTH:
            folder.chmod(folder.stat().st_mode | stat.S_IXOTH)

    async def scene() -> None:
        async with living(log, tmp_path, heartbeat_ms=50, rules=Rules(as_submitter=True)):
            command = ("/bin/sh", "-c", 'test "$USER $HOME" = "ana /" && touch $TENURE_CHECKPOINT_DIR/saved')
            log.append_now([assigned(HOST, id=FactId("r"), user=UserName("ana"), launch=Launch(command=command))])
            await until(lambda: exits(log) == 1)

    asyncio.run(scene())
    (gone,) = [entry.fact.replicas[0] for entry in log.recorded if isinstance(entry.fact, ReplicasExited)]
    assert gone.code == 0, gone
    folder = tmp_path / "checkpoints" / "j"
    assert (folder.stat().st_uid, stat.S_IMODE(folder.stat().st_mode)) == (ANA.uid, 0o700)
    assert (folder / "saved").stat().st_uid == ANA.uid
    assert stat.S_IMODE((tmp_path / "runs").stat().st_mode) == 0o700


def test_all_of_a_job_ends_with_its_group_also_what_hid_itself(play, groups):
    """Forked twice, a session of its own, no environment, and the keeper killed: nobody else would find it."""
    hidden = "setsid env -i /bin/sh -c 'sleep 600 & sleep 600' & echo $!; sleep 600"

    async def story(host: RealHost) -> None:
        spec = replace(SPEC, cgroup=f"{groups}/j-1.1-0")
        launched = await started(host, spec, "/bin/sh", "-c", hidden)
        await host.said("\n")
        procs = Path(spec.cgroup) / "cgroup.procs"
        await until(lambda: len(procs.read_text().split()) >= 4)
        members = [int(pid) for pid in procs.read_text().split()]
        assert launched.pid in members and launched.keeper_pid not in members
        os.kill(launched.keeper_pid, signal.SIGKILL)
        await host.exit_of()
        assert not any(is_running(pid) for pid in members)
        assert not Path(spec.cgroup).exists()

    play(story)


def test_a_stop_ends_the_group_and_removes_it(play, groups):
    async def story(host: RealHost) -> None:
        spec = replace(SPEC, cgroup=f"{groups}/j-1.1-0")
        await started(host, spec, "/bin/sh", "-c", "trap '' TERM; setsid sleep 600 & echo up; wait; sleep 600")
        await host.said("up")
        members = [int(pid) for pid in (Path(spec.cgroup) / "cgroup.procs").read_text().split()]
        await host.stop(grace_ms=100)
        assert (await host.exit_of()).signal == signal.SIGKILL
        assert not any(is_running(pid) for pid in members)
        assert not Path(spec.cgroup).exists()

    play(story)


SECRET = "not for other people"


@pytest.mark.parametrize("delay", [0, 2], ids=["at once", "later"])
@pytest.mark.parametrize(
    "hostile",
    [
        "rm $D/stdout; ln -s $S $D/stdout",
        "rm $D/stdout; ln $S $D/stdout",
        "rm $D/stdout; mkfifo $D/stdout",
        "rm $D/stdout; mkdir $D/stdout",
        "rm $D/stdout.index; ln -s $S $D/stdout.index",
        "cp $S $T/stdout; mv $D $D.moved; ln -s $T $D",
        "mkdir $T/0; cp $S $T/0/stdout; mv $D/.. $D/../../moved; ln -s $T $R",
        "printf '%048d' 0 > $D/stdout.index; echo 9999 9 > $D/stdout.index",
    ],
)
def test_a_job_cannot_have_the_agent_read_or_change_another_file(play, tmp_path, hostile, delay):
    """It runs as the agent's own user, so its directory is open to it; people who read its output are others."""
    secret, elsewhere = tmp_path / "secret", tmp_path / "elsewhere"
    secret.write_text(SECRET)
    elsewhere.mkdir()

    async def story(host: RealHost) -> None:
        run = tmp_path / "runs" / "j-1.1"
        names = {"D": str(run / "0"), "R": str(run), "S": str(secret), "T": str(elsewhere)}
        spec = replace(SPEC, environment={**SPEC.environment, **names}, log_keep_bytes=1 << 16)
        script = f"sleep 0.{delay}; {hostile}; head -c 300000 /dev/zero; echo done >&2; sleep 0.5"
        with contextlib.suppress(FileNotFoundError):  # its directory is gone before the launch is settled
            await host.replicas.launch(replace(spec, command=("/bin/sh", "-c", script)))
        looks = iter(range(20))

        def looked_at() -> bool:
            with contextlib.suppress(OSError, ValueError):
                chunk = host.replicas.read_log(run=spec.run, replica=0, stream="stdout", offset=0, limit=1 << 20)
                assert SECRET.encode() not in chunk.data
            return next(looks, None) is None and not host.replicas.running()

        await until(looked_at)

    play(story)
    assert secret.read_text() == SECRET
    assert not [each for each in elsewhere.rglob("*") if each.is_file() and each.read_text() not in (SECRET, "")]
