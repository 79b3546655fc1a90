"""A log file of raw bytes that starts afresh when it is full and keeps a few old ones: `x.log`, `x.log.1` ..."""

import os
from pathlib import Path

SIZE_MAX = 8 * 1024 * 1024
KEPT = 3


class RotatingLog:
    """Appends to the file at `path`. A full disk loses output, never the program that logs."""

    def __init__(self, path: Path, *, size_max: int = SIZE_MAX, kept: int = KEPT) -> None:
        self._path, self._size_max, self._kept = path, size_max, kept
        self._open()

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def write(self, data: bytes) -> None:
        """Append; a file that is full by then is put aside first."""
        try:
            if self._size and self._size + len(data) > self._size_max:
                self._rotate()
            self._size += os.write(self._file, data)
        except OSError:  # nothing sensible can be done about a log that cannot be written
            return

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._file).st_size

    def _rotate(self) -> None:
        for number in range(self._kept - 1, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number}")
            newer = self._path.with_name(f"{self._path.name}.{number - 1}") if number > 1 else self._path
            if newer.exists():
                newer.replace(older)
        os.close(self._file)
        self._open()
