"""How long a host was silent, and when silence is evidence against it (S64, S66, S67).

Five things keep an outage of ours from being read as a death of theirs:
- only silence during which others were heard counts: not the time before this process started, nor a gap in which no
  heartbeat at all reached the log (an outage of the log, a suspended machine);
- a host is lost only after it was *on record* as suspect for `lost_after - suspect_after`, and only by a decision that
  comes on time. One that comes later than `suspect_after` shows that this role was away at the deadline: it renews the
  suspicion instead, which gives every host the whole time again;
- a host that was heard within `lost_after` is not lost, however long it is on record as suspect;
- while most hosts of a cluster are silent at once, or all of a small one, none of it is lost: its network or the
  control plane is what failed. When that is over, silence is counted anew;
- while a block is silent whole, it is its switch more likely than all of its hosts: they are lost only after
  `block_lost_after`, so that a switch can start again, and a rack without power is not waited for until a person comes.
"""

from dataclasses import dataclass

from services.health.state import WATCHED, Core, Host
from tenure.domain.host import HostState
from tenure.domain.policy import Policy
from tenure.domain.units import Millis

SIGNS_NEEDED = 2
"""Signs of life in a row that bring a silent host back: one may be the last gasp of a flapping link."""
MASS_HOSTS_MIN = 3
"""Fewer silent hosts than this are no mass while any other of the cluster is heard: one or two may really be dead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """How many of a cluster's or a block's watched hosts (healthy, draining, suspect) are silent at one instant.

    `heard`: of all its hosts, those in repair or drained included.
    """

    silent: int
    watched: int
    heard: int

    @property
    def is_mass(self) -> bool:
        """Most are silent, and not just one or two; or all, so that nobody shows that the way to them is open."""
        most = self.silent >= MASS_HOSTS_MIN and 2 * self.silent > self.watched
        return most or (self.silent > 0 and self.heard == 0)

    @property
    def is_whole(self) -> bool:
        """All are silent, and that are more than one or two."""
        return self.silent >= MASS_HOSTS_MIN and self.heard == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """The rule with its knobs. `started_at`: when this process began to follow the log."""

    policy: Policy
    started_at: Millis

    def watched_since(self, core: Core, cluster: str) -> Millis:
        """Since then hosts of a cluster could be heard without a gap."""
        return max(core.followed_since, self.started_at, core.mass_over_at.get(cluster, 0))

    def suspect_at(self, host: Host, core: Core) -> Millis:
        """When the host will have been silent for `suspect_after`."""
        return max(host.last_seen, self.watched_since(core, host.spec.cluster)) + self.policy.suspect_after_ms

    def is_silent(self, host: Host, core: Core, now: Millis) -> bool:
        """Whether it has been silent for `suspect_after`."""
        return now >= self.suspect_at(host, core)

    def is_heard(self, host: Host, now: Millis) -> bool:
        """Whether the host really is there: enough signs of life in a row, the last one fresh."""
        return host.signs >= SIGNS_NEEDED and self.is_fresh(host, now)

    def is_fresh(self, host: Host, now: Millis) -> bool:
        """Whether its last sign of life is not old."""
        return now - host.last_seen < self.policy.suspect_after_ms

    def lost_at(self, host: Host, core: Core) -> Millis:
        """When a suspect is lost if it stays silent.

        The record may be older than what was heard: a health role that stood still may write its suspicion late, and
        single beats that come through do not bring a host back.
        """
        rest = max(0, self.policy.lost_after_ms - self.policy.suspect_after_ms)
        on_record = max(host.suspected_at, self.watched_since(core, host.spec.cluster)) + rest
        return max(on_record, host.last_seen + self.policy.lost_after_ms)

    def is_too_late(self, host: Host, core: Core, now: Millis) -> bool:
        """Whether this decision comes so long after `lost_at` that the role itself must have been away."""
        return now >= self.lost_at(host, core) + self.policy.suspect_after_ms

    def is_block_waited_for(self, host: Host, core: Core, now: Millis) -> bool:
        """Whether a host of a block that is silent whole is not given up yet."""
        return now < max(host.last_seen, self.watched_since(core, host.spec.cluster)) + self.policy.block_lost_after_ms

    def survey(self, core: Core, now: Millis, *, cluster: str, block: str | None = None) -> Survey:
        """Count the silent among the watched hosts of a cluster, or of one block of it, those included whose suspicion
        is not on record yet.
        """
        hosts = [
            host
            for host in core.hosts.values()
            if host.spec.cluster == cluster and (block is None or host.spec.block == block)
        ]
        watched = [host for host in hosts if host.state in WATCHED]
        silent = sum(
            (host.state is HostState.SUSPECT and not host.is_held_up) or self.is_silent(host, core, now)
            for host in watched
        )
        heard = sum(self.is_fresh(host, now) for host in hosts)
        return Survey(silent=silent, watched=len(watched), heard=heard)
