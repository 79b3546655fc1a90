"""Names in NATS: one stream a cluster, one subject a kind of fact, and the subjects that a lane's guard looks at."""

import re
from collections.abc import Sequence

from tenure.domain.refusal import Refusal
from tenure.events.catalogue import Kind
from tenure.events.fact import Lane

_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


class Subjects:
    """The names of one cluster's log."""

    def __init__(self, cluster: str) -> None:
        """Raises `Refusal` for a cluster name that would not be one word of a subject."""
        if not _TOKEN.fullmatch(cluster):
            raise Refusal(
                field="cluster",
                problem=f"{cluster[:64]!r} cannot name a log",
                fix="use 1 to 63 letters, digits, '_' or '-', starting with a letter or digit",
            )
        self.stream = f"tenure-{cluster}"
        self._root = f"tenure.{cluster}"
        self.every = f"{self._root}.>"

    def of(self, kind: Kind) -> str:
        """The subject of the facts of one kind: `tenure.<cluster>.<lane>.<Kind>`."""
        return f"{self._root}.{kind.lane}.{kind.__name__}"

    def of_all(self, kinds: Sequence[Kind]) -> list[str]:
        """The subjects of several kinds, each once, in a fixed order."""
        return sorted({self.of(kind) for kind in kinds})

    def in_lane(self, lane: Lane) -> str:
        """The pattern of all subjects in a lane and in the lanes below it."""
        return f"{self._root}.{lane}.>"

    def around(self, lane: Lane) -> str:
        """The pattern of the topmost lane that a lane is part of."""
        return f"{self._root}.{lane.partition('.')[0]}.>"
