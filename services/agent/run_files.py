"""What the agent keeps beside a run's replicas: what was assigned, and that nothing of it is left to do.

A run's output stays readable after its end; of runs that are over, the newest `KEEP_RUNS` are kept.
"""

import os
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec

from tenure.domain.ids import RunId
from tenure.domain.units import Millis
from tenure.events.placing import RunAssigned

KEEP_RUNS = 2_000
_ASSIGNED, _OVER = "assigned.json", "over"


class RunFiles:
    """The run directory of one agent. `remove` deletes all files of a run."""

    def __init__(self, run_dir: Path, *, remove: Callable[[RunId], None], keep_runs: int = KEEP_RUNS) -> None:
        self._run_dir, self._remove, self._keep_runs = run_dir, remove, keep_runs
        over = [(marker.stat().st_mtime_ns, RunId(marker.parent.name)) for marker in run_dir.glob(f"*/{_OVER}")]
        self._over: deque[RunId] = deque(run for _, run in sorted(over))

    def note_assigned(self, assigned: RunAssigned) -> None:
        """Write down what the log said of a run before anything of it is launched. Raises OSError."""
        folder = self._run_dir / assigned.run
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / _ASSIGNED
        if not path.exists():
            fresh = path.with_suffix(".new")
            fresh.write_bytes(msgspec.json.encode(assigned))
            os.replace(fresh, path)

    def read_assigned(self, run: RunId) -> RunAssigned | None:
        """What was assigned, or None for a run that is over or was never noted."""
        folder = self._run_dir / run
        if (folder / _OVER).exists():
            return None
        try:
            return msgspec.json.decode((folder / _ASSIGNED).read_bytes(), type=RunAssigned)
        except (OSError, msgspec.DecodeError):
            return None

    def note_over(self, run: RunId) -> None:
        """Nothing of the run is left to do or to say. Old runs' files are removed. Raises OSError."""
        folder = self._run_dir / run
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # of a run that was stopped before it was launched
        os.close(os.open(folder / _OVER, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        self._over.append(run)
        while len(self._over) > self._keep_runs:
            self._remove(self._over.popleft())


def newest_change(folder: Path) -> Millis | None:
    """When something in `folder` changed last (files in it, not below), or None if it is empty or not there."""
    try:
        newest = max((entry.lstat().st_mtime_ns for entry in folder.iterdir()), default=None)
    except OSError:  # not there, or a file vanished while we looked: the next look sees it
        return None
    return None if newest is None else newest // 1_000_000
