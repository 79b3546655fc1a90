"""What an import did to its input: every row that was dropped, changed or clipped is counted under its reason."""

from enum import StrEnum

import msgspec


class Action(StrEnum):
    """What became of a row."""

    DROPPED = "dropped"
    CLIPPED = "clipped"
    CHANGED = "changed"
    KEPT = "kept"
    """Odd, but taken as it is."""


ORDER = tuple(Action)


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows something happened to, why, and the line of the first of them."""

    action: Action
    why: str
    count: int
    first_line: int


class Notes:
    """Counts by action and reason. A row is dropped at most once: rows read = jobs + rows dropped."""

    def __init__(self) -> None:
        self.rows_read = 0
        self._found: dict[tuple[Action, str], list[int]] = {}
        """Count and first line."""

    def add(self, action: Action, why: str, *, line: int) -> None:
        """Count one row."""
        found = self._found.get((action, why))
        if found is None:
            self._found[action, why] = [1, line]
        else:
            found[0] += 1

    @property
    def dropped(self) -> int:
        """Rows that are no job of the trace."""
        return sum(count for (action, _), (count, _) in self._found.items() if action is Action.DROPPED)

    def listing(self) -> tuple[Note, ...]:
        """Everything that was noted: by action, then the most frequent first, then by reason."""
        notes = [
            Note(action=action, why=why, count=count, first_line=line)
            for (action, why), (count, line) in self._found.items()
        ]
        return tuple(sorted(notes, key=lambda note: (ORDER.index(note.action), -note.count, note.why)))
