"""The agent's side of the launcher process: start it, ask it for launches, start another one should it die."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import services
from services.agent.process.keeper import Reply
from services.agent.process.launcher import MESSAGE_BYTES_MAX

LAUNCHES_AT_ONCE = 32
"""Bounds what is in the socket at a time to far less than its buffer, so that neither side ever waits to write."""

_MODULE = "services.agent.process.launcher"
_ROOT = str(Path(services.__file__).resolve().parent.parent)


def _found_by_linker() -> dict[str, str]:
    """What a Python that was built as a shared library may need to start; the jobs do not get it from here."""
    return {name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"}


class LauncherClient:
    """One launcher for all hosts of an agent process. Belongs to the running event loop. Close it when done."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._socket: socket.socket | None = None
        self._waiting: dict[str, asyncio.Future[Reply | None]] = {}
        self._turns = asyncio.Semaphore(LAUNCHES_AT_ONCE)

    async def launch(self, directory: Path) -> Reply | None:
        """Start the replica whose intent is written in `directory`.

        None when the launcher died before it said what became of it: the directory's claim tells.
        """
        name = str(directory)
        assert len(os.fsencode(name)) < MESSAGE_BYTES_MAX and name not in self._waiting
        async with self._turns:
            connection = self._socket or self._start()
            answer: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
            self._waiting[name] = answer
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # its pidfd will say so, too
                connection.send(os.fsencode(name))
            return await answer

    async def close(self) -> None:
        """End the launcher; replicas go on."""
        process = self._process
        self._lost()
        if process is not None:
            await asyncio.to_thread(process.wait)

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-S", "-P", "-m", _MODULE],
                cwd="/",
                env={"PYTHONPATH": _ROOT, **_found_by_linker()},
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,  # not ours: keepers outlive us, and would keep our pipes open
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        ours.setblocking(False)
        self._socket = ours
        self._pidfd = os.pidfd_open(self._process.pid)
        loop = asyncio.get_running_loop()
        loop.add_reader(ours, self._read)
        loop.add_reader(self._pidfd, self._lost)
        return ours

    def _read(self) -> None:
        """Take every reply that has arrived."""
        assert self._socket is not None
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            while message := self._socket.recv(MESSAGE_BYTES_MAX):
                reply = Reply(**json.loads(message))
                answer = self._waiting.pop(reply.directory, None)
                if answer is not None and not answer.done():
                    answer.set_result(reply)

    def _lost(self) -> None:
        """The launcher is dead, or shall be: take the last replies, let go, and tell those who still wait."""
        if self._socket is None:
            return
        self._read()
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._socket)
        loop.remove_reader(self._pidfd)
        self._socket.close()
        os.close(self._pidfd)
        if self._process is not None:
            self._process.poll()
        self._process, self._socket = None, None
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_result(None)
