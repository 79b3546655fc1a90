"""Opens files of a replica's directory as what they were made: no link leads elsewhere, whatever the job did.

A job that runs as the agent's own user can write into its directory. What it puts there in place of its output (a
link, a pipe, another folder) is not opened: nothing else of this machine is read to people, nor cut. Standard library
only: the keeper loads this module.
"""

# os.path, not pathlib: this runs between fork and exec, where every page touched costs time.
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_plain(path: str, flags: int, mode: int = 0o600) -> int:
    """A descriptor of a regular file of one name, `<run>/<replica>/<file>` below a folder of ours. Raises OSError."""
    replica, name = os.path.split(path)
    with plain_folder(replica) as folder:
        descriptor = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode, dir_fd=folder)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
        os.set_blocking(descriptor, True)  # not blocking was for what is no file
        return descriptor
    os.close(descriptor)
    raise OSError(errno.ELOOP, "not the file that was made there", path)


@contextmanager
def plain_folder(replica: str) -> Iterator[int]:
    """The folder `<run>/<replica>`, neither of them a link, for the calls that take a `dir_fd`. Raises OSError."""
    above, below = os.path.split(replica)
    run = os.open(above, _FOLDER)
    try:
        folder = os.open(below, _FOLDER, dir_fd=run)
    finally:
        os.close(run)
    try:
        yield folder
    finally:
        os.close(folder)
