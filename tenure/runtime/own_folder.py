"""Which data folder a process works on, and that no other process of its role does.

A process that owns a folder comes after whoever owned it before: that one has ended, so what it held is free.
"""

import fcntl
import os
import uuid
from pathlib import Path
from typing import IO


class OwnFolder:
    """The name of one role's data folder, kept in it. `name` is empty while another process owns the folder."""

    def __init__(self, path: Path) -> None:
        """`path`: the file with the name. Raises OSError. The folder is owned until `release`, or this process ends."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[str] = path.open("a+")
        self.name = ""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        self._file.seek(0)
        self.name = self._file.read().strip() or self._make()

    def release(self) -> None:
        """Let another process have it."""
        self._file.close()

    def _make(self) -> str:
        name = uuid.uuid4().hex
        self._file.write(name + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        return name
