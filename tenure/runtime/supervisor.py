"""Looks after the processes of `tenure up`: starts them, keeps their output, starts them again, stops them in order.

What a child writes goes to its log file; what sounds like an error is also said. A child that ends by itself is started
again: at once, then after 1, 2, 4 ... seconds; one that keeps failing is tried at long intervals and the rest goes on.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenure.runtime import orphan
from tenure.runtime.child import ChildProcess
from tenure.runtime.data_dir import ChildRecord
from tenure.runtime.processes import ProcessIdentity, identify, is_running
from tenure.runtime.rotating_log import RotatingLog

QUICK_S = 10.0
"""A child that ended within so long of its start has failed quickly."""
QUICK_FAILURES_MAX = 5
RETRY_S = 30.0
"""How often a child that failed quickly so many times is tried again."""
_ALARM = re.compile(r" (?:ERROR|CRITICAL) |\[(?:ERR|FTL)\]|\"level\":\"(?:ERROR|CRITICAL)\"")
_STAMP = re.compile(r"^(?:\[\d+\] )?[\d/-]+ [\d:.,]+ ")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """A process to look after.

    `ready_file`: written by it, with its pid, when it does its work. `role`: it sees to it itself that it ends with its
    supervisor; a foreign program is made to. `nice`: how much it gives way when processors are short. `on_start`: done
    beside each of its processes when that begins.
    """

    name: str
    command: Sequence[str]
    log_file: Path
    ready_file: Path | None = None
    role: bool = True
    stop_s: float = 10.0
    nice: int = 0
    on_start: Callable[[], Coroutine[Any, Any, None]] | None = None


def backoff_s(quick_failures: int) -> float:
    """How long to wait before a start after so many quick failures in a row (0: it had lived long)."""
    if quick_failures >= QUICK_FAILURES_MAX:
        return RETRY_S
    return 0.0 if quick_failures <= 1 else float(2 ** (quick_failures - 2))


def ending(status: int) -> str:
    """How a process ended, in words; negative is a signal, as `subprocess` has it."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


class _Child:
    """One child through its lives."""

    def __init__(self, spec: ChildSpec, *, say: Callable[[str], None]) -> None:
        self.spec = spec
        self.process: ChildProcess | None = None
        self.keeper: asyncio.Task[None] | None = None
        self.stopping = asyncio.Event()
        self.quick_failures = 0
        self.said_failing = False
        self.last_line = ""
        self._say = say
        self._log = RotatingLog(spec.log_file)
        self._rest = b""
        self._beside: asyncio.Task[None] | None = None

    def spawn(self) -> ChildProcess:
        """Start the process. Raises OSError."""
        spec, own = self.spec, str(os.getpid())
        if spec.ready_file is not None:
            spec.ready_file.unlink(missing_ok=True)
        environment = dict(os.environ)
        command = list(spec.command)
        if spec.role:
            environment[orphan.VARIABLE] = own
        else:
            number = str(int(orphan.ORPHAN_SIGNAL))
            command = [sys.executable, "-P", "-m", "tenure.runtime.orphan", own, number, *command]
        self._rest = b""
        self.process = ChildProcess(command, environment=environment, on_output=self._hear)
        if spec.on_start is not None:
            self._beside = asyncio.create_task(spec.on_start())
        return self.process

    def is_ready(self) -> bool:
        """Whether the present process has said that it does its work."""
        if self.process is None or not self.process.alive:
            return False
        return self.spec.ready_file is None or ready_details(self.spec.ready_file, self.process.pid) is not None

    def close(self) -> None:
        """Nothing more will be logged."""
        if self._beside is not None:
            self._beside.cancel()
        self._log.close()

    def _hear(self, data: bytes) -> None:
        """Log what the process wrote, and say what sounds like an error (once, if it repeats itself)."""
        self._log.write(data)
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[-4096:]
        for line in lines:
            text = _words_of(line.decode(errors="replace").strip())[:300]
            if not text:
                continue
            if _ALARM.search(line.decode(errors="replace")) and text != self.last_line:
                self._say(f"{self.spec.name}: {text}")
            self.last_line = text


class Supervisor:
    """The children by name. `say` gets one line for people; `record` gets every process that may be alive."""

    def __init__(
        self,
        *,
        say: Callable[[str], None],
        record: Callable[[Mapping[str, ChildRecord]], None],
        backoff: Callable[[int], float] = backoff_s,
    ) -> None:
        self._say, self._record, self._backoff_s = say, record, backoff
        self._children: dict[str, _Child] = {}
        self._records: dict[str, ChildRecord] = {}

    def start(self, spec: ChildSpec) -> None:
        """Start the child and keep it running. Raises OSError when it cannot be started at all."""
        child = _Child(spec, say=self._say)
        self._children[spec.name] = child
        process = self._spawn(child)
        child.keeper = asyncio.create_task(self._keep(child, process), name=spec.name)

    def is_ready(self, name: str) -> bool:
        """Whether the present process of the child has said that it does its work."""
        return self._children[name].is_ready()

    def is_failing(self, name: str) -> bool:
        """Whether the child has failed quickly again and again, so that it is tried at long intervals only."""
        return self._children[name].quick_failures >= QUICK_FAILURES_MAX

    async def stop(
        self, names: Iterable[str], *, hurry: asyncio.Event, with_signal: signal.Signals = signal.SIGTERM
    ) -> None:
        """Stop these children together and wait until they are gone.

        Each gets the signal and its time, then SIGKILL. `hurry`, once set, repeats the signal and cuts the time.
        """
        chosen = [self._children[name] for name in names if name in self._children]
        await asyncio.gather(*(self._stop(child, with_signal, hurry) for child in chosen))

    async def _keep(self, child: _Child, process: ChildProcess) -> None:
        """Wait for the end of the process and start another, until it is to stop."""
        while True:
            began = time.monotonic()
            status = await process.ended
            if child.stopping.is_set():
                return
            quick = time.monotonic() - began < QUICK_S
            child.quick_failures = child.quick_failures + 1 if quick else 0
            if status == -signal.SIGKILL:
                child.last_line = ""  # somebody did that to it: it had no last words
            self._say_ended(child, ending(status))
            successor = await self._start_again(child)
            if successor is None:
                return
            process = successor

    async def _start_again(self, child: _Child) -> ChildProcess | None:
        """Wait as long as its failures ask for and start it, however often that takes. None when it is to stop."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._backoff_s(child.quick_failures)):
                    await child.stopping.wait()
            if child.stopping.is_set():
                return None
            try:
                return self._spawn(child)
            except OSError as error:
                child.quick_failures += 1
                self._say_ended(child, f"cannot be started: {error}")

    def _say_ended(self, child: _Child, how: str) -> None:
        name, log_file = child.spec.name, child.spec.log_file
        last = f": {child.last_line}" if child.last_line else ""
        if child.quick_failures < QUICK_FAILURES_MAX:
            wait = self._backoff_s(child.quick_failures)
            again = f"starting it again in {wait:.0f} s" if wait else "starting it again"
            child.said_failing = False
            self._say(f"{name} {how}{last}; {again} (log: {log_file})")
        elif not child.said_failing:
            child.said_failing = True
            self._say(
                f"{name} failed {child.quick_failures} times in a row{last}; the rest goes on without it and it is "
                f"tried again every {RETRY_S:.0f} s (log: {log_file})"
            )

    def _spawn(self, child: _Child) -> ChildProcess:
        process = child.spawn()
        if child.spec.nice:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended, or is nicer already
                os.setpriority(os.PRIO_PROCESS, process.pid, child.spec.nice)
        identity = identify(process.pid)
        if identity is not None:  # else it has ended already
            self._records[child.spec.name] = ChildRecord(
                pid=identity.pid,
                start_ticks=identity.start_ticks,
                boot_id=identity.boot_id,
                name=child.spec.name,
            )
        self._note_children()
        return process

    def _note_children(self) -> None:
        """Write down what may be alive, for the next supervisor. Nothing stops because that cannot be written."""
        try:
            self._record(self._records)
        except OSError as error:
            self._say(f"the list of processes cannot be written: {error.strerror}")

    def restart(self, name: str) -> None:
        """End the child's process; another is started as after any end."""
        process = self._children[name].process
        if process is not None:
            process.send(signal.SIGKILL)

    async def _stop(self, child: _Child, number: signal.Signals, hurry: asyncio.Event) -> None:
        child.stopping.set()
        process, spec = child.process, child.spec
        if process is not None and process.alive:
            process.send(number)
            hurried = asyncio.create_task(hurry.wait())
            either: set[asyncio.Future[Any]] = {process.ended, hurried}
            await asyncio.wait(either, timeout=spec.stop_s, return_when=asyncio.FIRST_COMPLETED)
            if hurried.done():
                process.send(number)
                await asyncio.wait({process.ended}, timeout=min(3.0, spec.stop_s))
            hurried.cancel()
            if process.alive:
                self._say(f"{spec.name} did not end in time and is killed")
                process.send(signal.SIGKILL)
            await process.ended
        if child.keeper is not None:
            await child.keeper
        child.close()
        self._records.pop(spec.name, None)
        self._note_children()


def _words_of(line: str) -> str:
    """What a line says to people: without its time, and of one that is JSON only its message."""
    if line.startswith("{"):
        try:
            return str(json.loads(line)["message"])
        except (ValueError, KeyError, TypeError):
            return line
    return _STAMP.sub("", line)


def ready_details(path: Path, pid: int) -> dict[str, object] | None:
    """What the process `pid` wrote into its ready file; None if it has not, or another one wrote it."""
    try:
        details = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return details if isinstance(details, dict) and details.get("pid") == pid else None


def end_leftovers(records: Iterable[ChildRecord], *, patience_s: float = 3.0) -> list[str]:
    """Kill what a killed supervisor left behind, and wait until it is gone. Names of those found."""
    found = [record for record in records if _still_runs(record)]
    for record in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.pid, orphan.ORPHAN_SIGNAL)
    give_up_at = time.monotonic() + patience_s
    while any(_still_runs(record) for record in found) and time.monotonic() < give_up_at:
        time.sleep(0.02)
    return sorted(record.name for record in found)


def _still_runs(record: ChildRecord) -> bool:
    return is_running(ProcessIdentity(pid=record.pid, start_ticks=record.start_ticks, boot_id=record.boot_id))
