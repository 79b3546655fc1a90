"""P9, evidence from jobs: is it the host that its runs die of, or the job?

A bug follows its owner: whoever fails on other hosts too is no witness. Who tries a new program on one host, where
packing puts it, is none either: two users have to agree whose runs end well elsewhere; or of gangs over several hosts
another replica fails first each time, and always here. Of several jobs, and more died here than ended well here. A
launch that the host itself gave up, before every replica ran, needs no witness.
"""

from collections.abc import Mapping

from services.health.state import Core, End, Host
from tenure.domain.ids import HostId
from tenure.domain.policy import Policy
from tenure.domain.reasons import Number, Reason
from tenure.domain.units import HOUR, Millis

WINDOW: Millis = HOUR
"""How far back ends of runs are evidence."""
JOBS_MIN, USERS_MIN, POSITIONS_MIN = 2, 2, 2


def blamed(host: Host, core: Core, now: Millis, *, policy: Policy) -> tuple[Reason, Mapping[str, Number]] | None:
    """Whether ends of runs speak against the host, and the numbers."""
    name = host.spec.host
    if all(end.died_on != name for end in core.ends):
        return None
    recent = [end for end in core.ends if now - end.at < WINDOW]
    given_up = [end for end in recent if _is_against(end, host) and not end.launched]
    if len(given_up) >= policy.job_failures:
        return Reason.HOST_LAUNCHES_FAIL, {"launches": len(given_up), "window_ms": WINDOW}
    return _died(host, recent, policy=policy)


def _died(host: Host, recent: list[End], *, policy: Policy) -> tuple[Reason, Mapping[str, Number]] | None:
    name = host.spec.host
    fail_elsewhere = {end.user for end in recent if end.died_on not in (None, name)}
    died = [end for end in recent if _is_against(end, host) and end.launched and end.user not in fail_elsewhere]
    ended_well = [end for end in recent if end.died_on is None]
    well_here = sum(name in end.hosts for end in ended_well)
    well_elsewhere = {end.user for end in ended_well if name not in end.hosts}
    users, jobs = {end.user for end in died if end.user in well_elsewhere}, {end.job for end in died}
    positions = {end.replica for end in died if len(end.hosts) > 1}
    witnessed = len(users) >= USERS_MIN or len(positions) >= POSITIONS_MIN
    if len(died) < policy.job_failures or len(jobs) < JOBS_MIN or len(died) <= well_here or not witnessed:
        return None
    return Reason.HOST_JOBS_FAIL, {
        "runs_died": len(died),
        "jobs": len(jobs),
        "users": len({end.user for end in died}),
        "users_well_elsewhere": len(users),
        "replicas": len(positions),
        "ended_well_here": well_here,
        "window_ms": WINDOW,
    }


def _is_against(end: End, host: Host) -> bool:
    return end.died_on == HostId(host.spec.host) and end.at > host.cleared_at
