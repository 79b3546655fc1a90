"""Names in NATS: one stream a cluster, one subject a kind of fact, and the subjects that a lane's guard looks at.

The server decides by subject who may write what (`tenure.log.permissions`), so a fact counts only where its own kind
belongs, and what an agent reports only of hosts that the agent speaks for: `Subjects.vouches`.

What agents are told is written under the district of the host it is about, and an agent is sent that of its own host
alone: with every agent reading of every run, N hosts would cost N times N deliveries. Districts are few, as a guard
on a lane looks at each of its subjects (decision 0027).
"""

import re
import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache

from tenure.domain.ids import HostId, Position
from tenure.domain.refusal import Refusal
from tenure.events.catalogue import KINDS, Kind
from tenure.events.fact import Fact, Lane
from tenure.events.hosts import HostStateChanged
from tenure.events.placing import RunAssigned, RunEnded, RunPreemptionRequested, RunStopRequested
from tenure.events.reports import hosts_in

MANY = "~"
"""The speaker of reports about several hosts, or any: agents of virtual hosts, and the operator; and the district of
what is about hosts of several districts."""
DISTRICTS = 256
ADDRESSED: tuple[Kind, ...] = (RunAssigned, RunPreemptionRequested, RunStopRequested, RunEnded, HostStateChanged)
"""Kinds that agents are sent by district."""
_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


def host_token(host: HostId) -> str:
    """A host's name as one word of a subject: no host has a '/' in its name."""
    return host.replace(".", "/")


@lru_cache(maxsize=1 << 15)
def district_of(host: HostId) -> str:
    """The district a host is in."""
    return f"{zlib.crc32(host.encode()) % DISTRICTS:02x}"


def _common(hosts: Iterable[HostId]) -> str:
    """The district that all of these hosts are in; `MANY` if they are in several."""
    found = set(map(district_of, hosts))
    return found.pop() if len(found) == 1 else MANY


def _addressees(fact: Fact) -> Sequence[HostId]:
    match fact:
        case RunAssigned():
            return [place.host for place in fact.placement]
        case RunPreemptionRequested() | RunStopRequested() | RunEnded():
            return () if fact.only_on is None else (fact.only_on,)
        case HostStateChanged():
            return (fact.host,)
        case _:
            return ()


class Subjects:
    """The names of one cluster's log, for whoever speaks for one host (`speaker`) or for any."""

    def __init__(self, cluster: str, *, speaker: HostId | None = None) -> None:
        """Raises `Refusal` for a cluster name that would not be one word of a subject."""
        if not _TOKEN.fullmatch(cluster):
            raise Refusal(
                field="cluster",
                problem=f"{cluster[:64]!r} cannot name a log",
                fix="use 1 to 63 letters, digits, '_' or '-', starting with a letter or digit",
            )
        self.stream = f"tenure-{cluster}"
        self._root = f"tenure.{cluster}"
        self._host, self._speaker = speaker, MANY if speaker is None else host_token(speaker)
        self._reports = f"{self._root}.{Lane.REPORT}."
        self.every = f"{self._root}.>"
        self.gap = f"{self._root}.gap"
        """Stands where nothing is to stand, while a log is restored."""
        self.undistricted = [f"{self._root}.{kind.lane}.{kind.__name__}" for kind in (RunAssigned, HostStateChanged)]
        """Where versions before decision 0027 wrote of runs and hosts; now nothing is written there."""
        self.dead_stream = f"TENURE_DEAD-{cluster}"
        self._dead = f"tenure-dead.{cluster}"
        self.every_dead = f"{self._dead}.>"
        self.every_condemned, self.every_unreadable = f"{self._dead}.condemned.*", f"{self._dead}.unreadable.*"

    @property
    def is_of_host(self) -> bool:
        """Whoever speaks here speaks for one host: there are as many of them as hosts."""
        return self._host is not None

    def of(self, fact: Fact) -> str:
        """Where a fact is written: `tenure.<cluster>.<lane>.<Kind>`, reports `...report.<speaker>.<Kind>`, what agents
        are told `...<lane>.<district>.<Kind>`.
        """
        return self._of(type(fact), speaker=self._speaker, district=_common(_addressees(fact)))

    def written(self, kind: Kind) -> str:
        """The pattern of where whoever speaks here writes facts of a kind."""
        return self._of(kind, speaker=self._speaker, district="*")

    def of_all(self, kinds: Sequence[Kind]) -> list[str]:
        """Where several kinds are read, each once, in a fixed order: by an agent of one host what concerns that host,
        and what is of several; by others every speaker's reports and every district.
        """
        if self._host is None:
            return sorted({self._of(kind, speaker="*", district="*") for kind in kinds})
        places = ((self._speaker, district_of(self._host)), (MANY, MANY))
        return sorted(
            {self._of(kind, speaker=speaker, district=district) for kind in kinds for speaker, district in places}
        )

    def followed(self, kinds: Sequence[Kind]) -> list[str]:
        """What a reader of these kinds is sent: whole lanes where it reads all of them, so that it passes over what
        stands there and is no fact, too. A condition on a lane looks at everything in it.
        """
        if set(kinds) >= set(KINDS.values()):
            return [self.every]
        whole: list[Lane] = []
        for lane in Lane:  # a lane comes before those below it
            inside = [kind for kind in KINDS.values() if lane.covers(kind.lane)]
            if set(kinds).issuperset(inside) and not any(each.covers(lane) for each in whole):
                whole.append(lane)
        single = [kind for kind in kinds if not any(lane.covers(kind.lane) for lane in whole)]
        return sorted([self.in_lane(lane) for lane in whole] + self.of_all(single))

    def in_lane(self, lane: Lane) -> str:
        """The pattern of all subjects in a lane and in the lanes below it."""
        return f"{self._root}.{lane}.>"

    def around(self, lane: Lane) -> str:
        """The pattern of the topmost lane that a lane is part of."""
        return f"{self._root}.{lane.partition('.')[0]}.>"

    def vouches(self, subject: str, fact: Fact) -> bool:
        """Whether whoever may write on `subject` may say this fact: its kind, and of its hosts."""
        kind = type(fact)
        if kind.lane is not Lane.REPORT:
            return subject == self.of(fact)
        speaker, _, name = subject.removeprefix(self._reports).partition(".")
        if not subject.startswith(self._reports) or name != kind.__name__:
            return False
        return speaker == MANY or all(host_token(host) == speaker for host in hosts_in(fact))

    def _of(self, kind: Kind, *, speaker: str, district: str) -> str:
        if kind.lane is Lane.REPORT:
            return f"{self._reports}{speaker}.{kind.__name__}"
        if kind in ADDRESSED:
            return f"{self._root}.{kind.lane}.{district}.{kind.__name__}"
        return f"{self._root}.{kind.lane}.{kind.__name__}"

    def is_newer(self, subject: str, tag: str) -> bool:
        """Whether a fact of kind `tag` that is said on `subject` may be one of a newer version's."""
        return tag not in KINDS and subject.startswith(f"{self._root}.") and subject.endswith(f".{tag}")

    def dead(self, position: Position, *, condemned: bool) -> str:
        """The subject of the dead letter about what stands at `position`."""
        return f"{self._dead}.{'condemned' if condemned else 'unreadable'}.{position}"
