"""Running a tool or a check that may hang, flood, fork, or never die, without being held up by it."""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

from services.agent.signals.check import Outcome
from tenure.domain.units import SECOND, Millis

OUTPUT_MAX = 1 << 20
"""Bytes read of a tool's output; one that writes more is stopped."""
_LOOK_S = 0.05
"""How often a tool that says nothing is looked at: it may have ended while a child of it keeps its output open."""
_DEATH_S = 1.0
"""How long a killed tool is waited for. One that hangs in the kernel does not die, and is left."""
_INHERITED = ("PATH", "HOME", "LANG", "TZ", "LD_LIBRARY_PATH")


class Tool:
    """One command, run again and again, never twice at a time. Belongs to one thread."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        limit_ms: Millis,
        output_max: int = OUTPUT_MAX,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`environment` is added to a few variables of the agent's own."""
        self.command = tuple(command)
        self._limit_ms, self._output_max = limit_ms, output_max
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        self._environment = {**inherited, **(environment or {})}
        self._left: subprocess.Popen[bytes] | None = None

    def run(self) -> Outcome:
        """Run it, for at most its limit and a second. What it started goes with it. Raises nothing."""
        if self._left is not None and self._left.poll() is None:
            return Outcome(code=None, late=True, limit_ms=self._limit_ms)
        self._left = None
        try:
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return Outcome(code=None, problem=str(error)[:200])
        assert process.stdout is not None
        with process.stdout:
            output, late, flooded = self._listen(process)
        code = self._end(process)
        return Outcome(
            code=None if late or flooded else code,
            output=output,
            late=late or (code is None and not flooded),
            flooded=flooded,
            limit_ms=self._limit_ms,
        )

    def _listen(self, process: subprocess.Popen[bytes]) -> tuple[bytes, bool, bool]:
        """What it wrote until it ended, whether it was late, and whether it wrote too much."""
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        os.set_blocking(descriptor, False)
        output = bytearray()
        deadline = time.monotonic() + self._limit_ms / SECOND
        closed = False
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while (left := deadline - time.monotonic()) > 0:
                ended = _has_ended(process.pid)
                if closed:
                    if ended:
                        return bytes(output), False, False
                    time.sleep(min(left, _LOOK_S))
                    continue
                if not selector.select(0 if ended else min(left, _LOOK_S)):
                    if ended:
                        return bytes(output), False, False
                    continue
                chunk = os.read(descriptor, 1 << 16)
                closed = not chunk
                output += chunk
                if len(output) > self._output_max:
                    return bytes(output[: self._output_max]), False, True
        return bytes(output), True, False

    def _end(self, process: subprocess.Popen[bytes]) -> int | None:
        """End its group before it is reaped, so that the group's number is still its own. None: it does not die."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        try:
            return process.wait(_DEATH_S)
        except subprocess.TimeoutExpired:
            self._left = process
            return None


def _has_ended(pid: int) -> bool:
    """Whether the process has ended; it stays to be waited for."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True
