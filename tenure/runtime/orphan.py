"""No process outlives its supervisor by accident: the kernel tells it when its parent dies, however the parent died.

A role calls `end_with_parent` itself. A foreign program is started through this module, which then becomes it:
`python -m tenure.runtime.orphan PARENT_PID SIGNAL PROGRAM ARGS...`.
"""

import ctypes
import os
import signal
import sys

VARIABLE = "TENURE_SUPERVISOR"
"""The supervisor's pid, in the environment of a role that has one."""
ORPHAN_SIGNAL = signal.SIGKILL
"""All that a role has said is safe by then, and nothing that it could still do helps: it is not asked to end."""
_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int, number: int) -> None:
    """Have the kernel send this process signal `number` when the process `parent` is gone; at once if it is already.

    The kernel watches the thread that started this process: a supervisor must start its children in its main thread.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the kernel does not watch parents")
    if os.getppid() != parent:  # it died before we asked
        os.kill(os.getpid(), number)


def obey_environment() -> None:
    """Do it if the environment names a supervisor; what this process starts in turn is not told."""
    parent = os.environ.pop(VARIABLE, "")
    if parent:
        end_with_parent(int(parent), ORPHAN_SIGNAL)


if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]), signal.Signals(int(sys.argv[2])))
    os.execv(sys.argv[3], sys.argv[3:])
