"""The launcher: a small process that forks a keeper for each replica an agent asks for. `python -m` of this module.

    agent --directory--> launcher --fork--> keeper --posix_spawn--> the user's command
      ^------------------- one Reply per launch ---------'

The agent itself never forks: it is large, has threads and loads engines that do not survive it. This process imports
the standard library only, so a fork costs 0.4 ms and half a megabyte. Its stdin is a SOCK_SEQPACKET socket to the
agent; it ends when the agent does, its keepers do not.
"""

# os.path, not pathlib: this runs between fork and exec, where every page touched costs time.
import contextlib
import ctypes
import gc
import json
import os
import signal
import socket
import traceback

from services.agent.process.directory import KEEPER_ERRORS, write_keeper_error
from services.agent.process.keeper import WAITED_SIGNALS, Reply, keep

MESSAGE_BYTES_MAX = 8192
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Fork a keeper for each directory that arrives; return at the agent's end."""
    agent = socket.socket(fileno=os.dup(0))
    signal.pthread_sigmask(signal.SIG_BLOCK, WAITED_SIGNALS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for keepers: the kernel buries them
    _libc.prctl(_PR_SET_NAME, b"tenure-launcher", 0, 0, 0)
    gc.disable()  # keepers share this memory; a collection would copy all of it
    gc.freeze()
    while directory := _receive(agent):
        try:
            child = os.fork()
        except OSError as error:
            line = f"this host cannot start another process: {error.strerror}"
            _reply(agent, Reply(directory=directory, error=line))
            continue
        if child == 0:
            _become_keeper(agent, directory)


def _receive(agent: socket.socket) -> str:
    """The next directory to launch, or "" when the agent is gone."""
    try:
        return os.fsdecode(agent.recv(MESSAGE_BYTES_MAX))
    except ConnectionResetError:
        return ""


def _reply(agent: socket.socket, reply: Reply) -> None:
    try:
        agent.send(json.dumps(reply._asdict()).encode())
    except (BrokenPipeError, ConnectionResetError):
        return  # the agent died; its successor reads the directory


def _become_keeper(agent: socket.socket, directory: str) -> None:
    """Never returns: whatever happens, a keeper must not go on as a second launcher."""
    replied = False

    def reply(message: Reply) -> None:
        nonlocal replied
        replied = True
        _reply(agent, message)
        agent.close()
        os.close(0)

    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _libc.prctl(_PR_SET_NAME, b"tenure-keeper", 0, 0, 0)
        if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
        keep(directory, reply)
    except BaseException:  # noqa: BLE001 (the last frame: leave people a trace, the agent sees the death)
        with contextlib.suppress(OSError):
            write_keeper_error(directory, traceback.format_exc())
        if not replied:
            reply(Reply(directory=directory, error=f"the keeper failed, see {KEEPER_ERRORS} in {directory}"))
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
