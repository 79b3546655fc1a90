"""One child process of a supervisor: its output and its end arrive as callbacks in the event loop, without threads."""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence

_CHUNK = 65536


class ChildProcess:
    """A process in a session of its own, stdin closed, stdout and stderr in one pipe.

    Belongs to the running loop, and must be made in the main thread (see `tenure.runtime.orphan`). `ended` gets the
    exit status, negative for a signal, once all that the process itself wrote has been handed to `on_output`; a
    descendant that still holds the pipe open does not delay it.
    """

    def __init__(
        self, command: Sequence[str], *, environment: Mapping[str, str], on_output: Callable[[bytes], None]
    ) -> None:
        """Start it. Raises OSError."""
        self._on_output = on_output
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[int] = self._loop.create_future()
        reading, writing = os.pipe2(os.O_CLOEXEC)
        try:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                start_new_session=True,  # Ctrl-C is for the supervisor alone: it stops its children in order
            )
        except OSError:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        self.pid = self._process.pid
        self._output = reading
        self._pidfd = os.pidfd_open(self.pid)
        os.set_blocking(reading, False)
        self._loop.add_reader(reading, self._read)
        self._loop.add_reader(self._pidfd, self._reap)

    @property
    def alive(self) -> bool:
        """Whether the process has not ended."""
        return not self.ended.done()

    def send(self, number: signal.Signals) -> None:
        """Send it a signal; nothing happens if it has ended."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def _read(self) -> bool:
        """Hand on what there is. False at the end of the output or when there is nothing now."""
        try:
            data = os.read(self._output, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._loop.remove_reader(self._output)
            return False
        self._on_output(data)
        return True

    def _reap(self) -> None:
        status = self._process.wait()
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        while self._read():
            pass
        self._loop.remove_reader(self._output)
        os.close(self._output)
        self.ended.set_result(status)
