"""Snapshots: a role's folded state on disk, so that a restart reads the tail of the log instead of all of it.

A snapshot is a cache. It is valid only for the code that wrote it (a fingerprint of the sources of the role and of the
facts) and is thrown away, never migrated: the log is the truth.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import tenure
from tenure.domain.ids import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A dumped state, the position it was folded to, and the last position it saw in its role's guarded lane."""

    position: Position
    guarded: Position
    payload: bytes


@cache
def fingerprint(*packages: str) -> str:
    """A hash of the sources of these (folders beside `tenure`) and of the facts, values and rules they build on."""
    root = Path(tenure.__file__).parent.parent
    digest = hashlib.sha256()
    for folder in (*(root / package for package in packages), root / "tenure" / "domain", root / "tenure" / "events"):
        for source in sorted(folder.rglob("*.py")):
            digest.update(source.relative_to(root).as_posix().encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()


class SnapshotStore:
    """The snapshot file of one role. `log_identity` ties it to one log: another log's snapshot is not read."""

    def __init__(self, path: Path, *, packages: Sequence[str], log_identity: str) -> None:
        self._path = path
        self._header = {"fingerprint": fingerprint(*packages), "log": log_identity}

    def load(self) -> Snapshot | None:
        """The last snapshot, or None if there is none that is whole and ours."""
        try:
            head, _, payload = self._path.read_bytes().partition(b"\n")
            header = json.loads(head)
        except (OSError, ValueError):
            return None
        whole = header.get("sha256") == hashlib.sha256(payload).hexdigest()
        ours = all(header.get(key) == value for key, value in self._header.items())
        if not (whole and ours):
            return None
        return Snapshot(position=Position(header["position"]), guarded=Position(header["guarded"]), payload=payload)

    def save(self, snapshot: Snapshot) -> None:
        """Replace the snapshot: a crash leaves the old one or the new one. Raises OSError when the disk is full."""
        digest = hashlib.sha256(snapshot.payload).hexdigest()
        positions = {"position": snapshot.position, "guarded": snapshot.guarded}
        header = json.dumps({**self._header, **positions, "sha256": digest})
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_suffix(".new")
        with fresh.open("wb") as file:
            file.write(header.encode() + b"\n" + snapshot.payload)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, self._path)

    def discard(self) -> None:
        """Forget the snapshot (it could not be read by `load` of the role)."""
        self._path.unlink(missing_ok=True)
