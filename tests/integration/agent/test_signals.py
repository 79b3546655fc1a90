"""The agent and its sources: what is read becomes facts, and nothing that hangs or floods delays a heartbeat."""

import asyncio
import itertools
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from services.agent.log_clock import LogClock
from services.agent.signals.signal import raise_signal
from services.agent.watch.logs import FabricLog, KernelLog, LogTail
from services.agent.watch.monitor import LOOK_S, Monitor
from services.agent.watch.sources import Ports, Source, sources_of
from services.agent.watch.verdict import VERDICT_S
from tenure.domain.host import HostSpec, HostState
from tenure.domain.ids import FactId
from tenure.domain.job import Launch
from tenure.domain.severity import Severity
from tenure.domain.units import SECOND
from tenure.events.hosts import HostStateChanged
from tenure.events.placing import RunPreemptionRequested
from tenure.events.reports import HealthSignal, HostSignal
from tenure.log.memory import MemoryLog
from tenure.runtime.clock import WallClock
from tenure.runtime.signal_options import CheckOption, SignalOptions
from tests.integration.agent.conftest import until, wall_clock
from tests.integration.agent.live import HOST, beats, exits, living
from tests.unit.agent.runs import JOB, RUN, WHY, assigned
from tests.unit.agent.test_machine_signals import make_port

GRAVE = "NVRM: Xid (PCI:0000:0a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
CARE = "NVRM: Xid (PCI:0000:0a:00): 64, pid=1, name=x, Row Remapper: recording failed\n"
MILD = "NVRM: Xid (PCI:0000:0b:00): 13, pid=1, name=x, Graphics Exception\n"


def reported(log: MemoryLog) -> list[HealthSignal]:
    """All that was said of the host's health, in order."""
    facts = [entry.fact for entry in log.recorded if isinstance(entry.fact, HostSignal)]
    assert all(fact.host == HOST for fact in facts)
    assert len({fact.id for fact in facts}) == len(facts)
    return [signal for fact in facts for signal in fact.signals]


def codes(log: MemoryLog) -> list[str]:
    return [signal.code for signal in reported(log)]


def check(name: str, script: str, *, limit_ms: int = 5 * SECOND) -> CheckOption:
    return CheckOption(name=name, command=(sys.executable, "-c", script), every_ms=100, limit_ms=limit_ms)


def play(story: Callable[[MemoryLog], Awaitable[None]]) -> None:
    async def _play() -> None:
        await story(MemoryLog())

    asyncio.run(asyncio.wait_for(_play(), 60))


def test_a_line_of_the_kernels_log_becomes_a_fact(tmp_path) -> None:
    kernel = tmp_path / "kmsg"
    kernel.write_text("nothing of note\n")
    options = SignalOptions(every_ms={"kernel": 100}, kernel_log=kernel)

    async def story(log: MemoryLog) -> None:
        async with living(log, tmp_path, heartbeat_ms=200, signals=options):
            await until(lambda: len(beats(log)) > 1)
            assert codes(log) == []
            with kernel.open("a") as file:
                file.write(GRAVE + GRAVE)
            await until(lambda: codes(log) == ["xid_79"])
        (signal,) = reported(log)
        assert (signal.device, signal.severity, signal.count) == ("0000:0a:00.0", Severity.FATAL, 2)

    play(story)


def test_between_two_runs_the_host_is_looked_at(tmp_path) -> None:
    """S63: a run leaves a GPU in a bad state; that is said before its exit, long before the next look was due."""
    kernel = tmp_path / "kmsg"
    kernel.write_text("")
    options = SignalOptions(every_ms={"kernel": 60_000}, kernel_log=kernel)

    async def story(log: MemoryLog) -> None:
        async with living(log, tmp_path, heartbeat_ms=200, signals=options):
            await until(lambda: bool(beats(log)))
            command = ("/bin/sh", "-c", 'echo "$0" >> "$1"', GRAVE.strip(), str(kernel))
            await log.append([assigned(HOST, id="assigned-1", launch=Launch(command=command))])
            await until(lambda: exits(log) > 0)
            kinds = [type(entry.fact).__name__ for entry in log.recorded]
            assert kinds.index("HostSignal") < kinds.index("ReplicasExited")
            assert codes(log) == ["xid_79"]

    play(story)


@pytest.mark.parametrize(("line", "fatal"), [(GRAVE, True), (CARE, False)], ids=["lost", "care"])
def test_an_exit_is_told_after_the_word_on_its_host(tmp_path, line: str, fatal: bool) -> None:
    """S62, S63: whoever hears of the free GPUs knows already what became of the host, and of the run."""
    kernel = tmp_path / "kmsg"
    kernel.write_text(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}+0000 m kernel: {MILD}")
    options = SignalOptions(every_ms={"kernel": 60_000}, kernel_log=kernel)

    async def story(log: MemoryLog) -> None:
        async with living(log, tmp_path, heartbeat_ms=200, signals=options):
            await log.append([host_is(HostState.HEALTHY, id="healthy")])
            await until(lambda: codes(log) == ["xid_13"])  # a report was just now
            command = ("/bin/sh", "-c", 'echo "$0" >> "$1"; exit 1', line.strip(), str(kernel))
            await log.append([assigned(HOST, id="assigned-1", launch=Launch(command=command))])
            await until(lambda: len(codes(log)) == 2)
            assert exits(log) == 0, "its exit waits for a word on the host"
            state = HostState.DRAINING if fatal else HostState.SUSPECT
            await log.append([host_is(state, id="verdict", fatal=fatal)])
            if fatal:
                order = RunPreemptionRequested(at=wall_clock(), id=FactId("stop"), run=RUN, job=JOB, by=HOST, why=WHY)
                await log.append([order])
            await until(lambda: exits(log) == 1)
        kinds = [type(entry.fact).__name__ for entry in log.recorded]
        assert kinds.index("ReplicasExited") > kinds.index("RunPreemptionRequested" if fatal else "HostSignal")

    play(story)


def test_nobody_waits_long_for_a_word_or_for_a_source_that_hangs(tmp_path) -> None:
    """The look between two runs is bounded: by a source that does not answer, and by a health role that is away."""
    kernel = tmp_path / "kmsg"
    os.mkfifo(tmp_path / "uptime")  # reading it hangs
    kernel.write_text("")
    options = SignalOptions(every_ms={"kernel": 60_000}, kernel_log=kernel, proc=tmp_path)

    async def story(log: MemoryLog) -> None:
        async with living(log, tmp_path, heartbeat_ms=200, signals=options):
            await log.append([host_is(HostState.HEALTHY, id="healthy")])
            await until(lambda: bool(beats(log)))
            command = ("/bin/sh", "-c", 'echo "$0" >> "$1"', GRAVE.strip(), str(kernel))
            began = time.monotonic()
            await log.append([assigned(HOST, id="assigned-1", launch=Launch(command=command))])
            await until(lambda: exits(log) == 1)
            assert LOOK_S <= time.monotonic() - began < LOOK_S + VERDICT_S + 5

    play(story)
    with (tmp_path / "uptime").open("w") as release:
        release.write("1.0 1.0")


def host_is(state: HostState, *, id: str, fatal: bool = False) -> HostStateChanged:
    at = wall_clock()
    return HostStateChanged(
        at=at, id=FactId(id), host=HOST, state=state, previous=None, last_seen=at, why=WHY, fatal=fatal
    )


def test_a_successor_does_not_say_again_what_the_log_has(tmp_path) -> None:
    kernel = tmp_path / "kmsg"
    kernel.write_text(f"{stamp()} {GRAVE}")
    options = SignalOptions(every_ms={"kernel": 100}, kernel_log=kernel)

    async def story(log: MemoryLog) -> None:
        async with living(log, tmp_path, heartbeat_ms=200, signals=options):
            await until(lambda: codes(log) == ["xid_79"])
        async with living(log, tmp_path, heartbeat_ms=200, signals=options) as loop:
            begun = len(beats(log))
            await until(lambda: len(beats(log)) > begun + 3)
            assert codes(log) == ["xid_79"], reported(log)
            assert [each.count for each in loop.state.core.signals[HOST]] == [1]
        off = SignalOptions(every_ms={"disks": 100}, paths=())
        async with living(log, tmp_path, heartbeat_ms=200, signals=off):
            await until(lambda: codes(log) == ["xid_79", "xid_79"])
        assert reported(log)[1].over, "nobody watches it any more"

    play(story)


def stamp() -> str:
    """Now, as `dmesg --time-format iso` writes it."""
    import datetime

    return datetime.datetime.now(datetime.UTC).isoformat()


def test_bad_checks_are_said_and_delay_nothing(tmp_path) -> None:
    options = SignalOptions(
        checks=(
            check("hangs", "import time; time.sleep(60)", limit_ms=500),
            check("floods", "while True: print('x' * 9999)"),
            check("binary", "import sys; sys.stdout.buffer.write(bytes(range(256))); sys.exit(2)"),
            check("speaks", "import os, sys; print('slow on', os.environ['TENURE_HOST']); sys.exit(2)"),
            check("content", "print('fine')"),
            CheckOption(name="absent", command=(str(tmp_path / "nothing"),), every_ms=100),
        )
    )

    async def story(log: MemoryLog) -> None:
        async with living(log, tmp_path, heartbeat_ms=200, signals=options):
            await until(lambda: len({signal.source for signal in reported(log)}) == 5)
        said = {signal.source: signal for signal in reported(log)}
        assert said["check:speaks"].text == f"slow on {HOST}"
        assert said["check:speaks"].severity is Severity.DRAIN
        broken = {source: signal for source, signal in said.items() if source != "check:speaks"}
        assert {signal.code for signal in broken.values()} == {"check_broken"}
        assert {signal.severity for signal in broken.values()} == {Severity.WATCH}
        times = [beat.at for beat in beats(log)]
        assert max(after - before for before, after in itertools.pairwise(times)) < 3 * SECOND

    play(story)


def test_a_source_that_hangs_is_said_and_read_again_when_it_returns() -> None:
    release = threading.Event()
    reads: list[int] = []

    def read(now: int) -> list[HealthSignal]:
        reads.append(now)
        if len(reads) == 1:
            release.wait(30)
        return []

    async def story(_: MemoryLog) -> None:
        source = Source(name="nvml", key="nvml", read=read, every_ms=10, limit_ms=50)
        monitor = Monitor([source], host=HOST, clock=WallClock())
        said: list[HostSignal] = []
        monitor.report = said.append
        monitor.start([])
        await until(lambda: bool(said))
        assert [(each.device, each.code) for each in said[0].signals] == [("nvml", "source_hangs")]
        assert len(reads) == 1, "not read twice at a time"
        release.set()
        await until(lambda: len(reads) > 2)
        await monitor.close()

    play(story)


def test_a_source_that_raises_ends_nothing(caplog) -> None:
    reads: list[int] = []

    def read(now: int) -> list[HealthSignal]:
        reads.append(now)
        raise PermissionError(13, "Permission denied")

    async def story(_: MemoryLog) -> None:
        source = Source(name="kernel", key="kernel", read=read, every_ms=10, events=True)
        monitor = Monitor([source], host=HOST, clock=WallClock())
        monitor.start([])
        await until(lambda: len(reads) > 3)
        await monitor.close()

    play(story)
    assert caplog.text.count("Permission denied") == 1, "said once"


def test_reports_wait_for_each_other_but_the_gravest_are_said_at_once() -> None:
    severity = [Severity.WATCH]

    def read(now: int) -> list[HealthSignal]:
        return [raise_signal("c", severity[0], "t", source="s", at=now)]

    async def story(_: MemoryLog) -> None:
        said: list[HostSignal] = []
        reads = [0]

        def counted(now: int) -> list[HealthSignal]:
            reads[0] += 1
            return read(now)

        monitor = Monitor([Source(name="s", key="s", read=counted, every_ms=10)], host=HOST, clock=WallClock())
        monitor.report = said.append
        monitor.start([])
        await until(lambda: len(said) == 1)
        seen = reads[0]
        await until(lambda: reads[0] > seen + 5)
        assert len(said) == 1, "the first is not in the log yet"
        monitor.said()
        severity[0] = Severity.DRAIN
        seen = reads[0]
        await until(lambda: reads[0] > seen + 5)
        assert len(said) == 1, "not so soon after the last"
        severity[0] = Severity.FATAL
        await until(lambda: len(said) == 2)
        assert said[1].signals[0].severity is Severity.FATAL
        await monitor.close()

    play(story)


def test_a_machine_without_tools_raises_nothing(tmp_path, monkeypatch) -> None:
    """Every built-in source, on empty roots and without any tool."""
    monkeypatch.setenv("PATH", str(tmp_path))
    names = ("kernel", "nvml", "fabric", "ports", "disks", "clock", "smi", "dcgm")
    options = SignalOptions(
        every_ms=dict.fromkeys(names, SECOND),
        kernel_log=tmp_path / "none",
        fabric_log=tmp_path / "none",
        sysfs=tmp_path,
        proc=tmp_path,
        paths=(),
    )
    sources = sources_of(options, host="h", data=tmp_path / "none", clock=LogClock(), last_read={})
    assert {source.name for source in sources} == {*names, "fabric-log"}
    for source in sources:
        assert list(source.read(wall_clock())) == [], source.name


def test_a_growing_log_is_read_once_and_a_rotated_one_from_its_start(tmp_path) -> None:
    path = tmp_path / "log"
    tail = LogTail(path)
    assert tail.read() == b""
    path.write_bytes(b"one\ntw")
    assert tail.read() == b"one\n"
    with path.open("ab") as file:
        file.write(b"o\n")
    assert tail.read() == b"two\n"
    path.unlink()
    path.write_bytes(b"new\nhalf")
    assert tail.read() == b"new\n"
    assert tail.read() == b"half", "it does not grow: it is whole"
    path.write_bytes(b"x\n")
    assert tail.read() == b"x\n", "emptied and written anew"
    tail.close()


def test_the_kernels_log_is_not_read_again_by_a_successor(tmp_path) -> None:
    path = tmp_path / "log"
    path.write_text("[    9.000000] " + MILD + "[   11.000000] " + GRAVE)
    (tmp_path / "uptime").write_text("100.00 1.0\n")
    now = 1_000_000
    all_of_it = KernelLog(path, proc=tmp_path)(now)
    assert [(signal.code, signal.first_at) for signal in all_of_it] == [("xid_13", 909_000), ("xid_79", 911_000)]
    later = KernelLog(path, proc=tmp_path, after=910_000)(now)
    assert [signal.code for signal in later] == ["xid_79"]


def test_what_a_log_said_long_before_the_agent_came_is_no_news(tmp_path) -> None:
    """A file tells of repairs of last month, and lines without a year or a stamp of nobody knows when."""
    path, now = tmp_path / "log", 1_790_000_000_000
    (tmp_path / "uptime").write_text("9000000.00 1.0\n")
    path.write_text("[  100.000000] " + GRAVE + "Oct  1 12:00:00 m " + GRAVE + GRAVE + "[8999000.000000] " + MILD)
    source = KernelLog(path, proc=tmp_path)
    assert [(signal.code, signal.first_at) for signal in source(now)] == [("xid_13", now - 1_000_000)]
    with path.open("a") as file:
        file.write("Oct  1 12:00:00 m " + GRAVE)
    assert [(signal.code, signal.first_at) for signal in source(now)] == [("xid_79", now)], "it was written just now"


def test_what_the_fabric_manager_said_long_ago_is_no_news(tmp_path) -> None:
    path, now = tmp_path / "fabricmanager.log", 1_790_000_000_000
    stamp = datetime.fromtimestamp(now / 1000 - 90 * 86_400).strftime("%b %d %Y %H:%M:%S")
    line = "[{}] [ERROR] [tid 1] NVSwitch fatal error on physical id 1\n"
    path.write_text(line.format(stamp))
    source = FabricLog(path)
    assert source(now) == []
    with path.open("a") as file:
        file.write(line.format(datetime.fromtimestamp(now / 1000 - 2).strftime("%b %d %Y %H:%M:%S")))
    assert len(source(now)) == 1


def test_the_end_of_a_log_that_is_turned_over_is_read(tmp_path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\n")
    tail = LogTail(path)
    assert tail.read() == b"one\n" and tail.is_old
    with path.open("ab") as file:
        file.write(b"two\nthr")
    assert tail.read() == b"two\n" and not tail.is_old
    with path.open("ab") as file:
        file.write(b"ee\nfour")
    path.rename(tmp_path / "log.1")
    assert tail.read() == b"three\n", "there is no other yet"
    path.write_bytes(b"five\n")
    assert tail.read() == b"four\nfive\n"
    tail.close()


def test_a_port_that_was_up_once_must_stay_up(tmp_path) -> None:
    source = Ports(sysfs=tmp_path, must_be_up=())
    make_port(tmp_path, "mlx5_0/1")
    assert source(1) == []
    make_port(tmp_path, "mlx5_0/1", state="1: DOWN", physical="2: Polling")
    for now in (2, 3):
        assert [signal.code for signal in source(now)] == ["port_down"]
    make_port(tmp_path, "mlx5_0/1", rate=200)
    for now in (4, 5):
        assert [signal.code for signal in source(now)] == ["port_slow"]


@pytest.mark.parametrize("spec", [HostSpec(host=HOST, gpus=8, gpu_type="t", block="b", cluster="c")])
def test_without_options_nothing_is_read(tmp_path: Path, spec: HostSpec) -> None:
    assert sources_of(SignalOptions(), host=spec.host, data=tmp_path, clock=LogClock(), last_read={}) == []


def test_a_check_can_have_its_output_read_as_that_of_a_tool(tmp_path) -> None:
    """One link of a GPU is down beside others that are up; the exit code of the tool says nothing."""
    text = "GPU 0: NVIDIA H100\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n"
    script = f"import sys; print({text!r}, end=''); sys.exit(3)"
    links = CheckOption(
        name="links", command=(sys.executable, "-c", script), every_ms=100, limit_ms=5 * SECOND, reads="nvlink"
    )

    async def story(log: MemoryLog) -> None:
        async with living(log, tmp_path, heartbeat_ms=200, signals=SignalOptions(checks=(links,))):
            await until(lambda: codes(log) == ["nvlink_down"])
        (signal,) = reported(log)
        assert (signal.source, signal.device, signal.severity) == ("check:links", "gpu0", Severity.WATCH)

    play(story)
