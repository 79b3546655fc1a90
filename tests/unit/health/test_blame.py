"""Whose fault it is when runs die: the host's or the job's (P9)."""

from services.health.policy.blame import blamed
from services.health.state import Core, End, Host
from tenure.domain.host import HostSpec
from tenure.domain.ids import HostId, JobId, UserName
from tenure.domain.policy import Policy
from tenure.domain.reasons import Reason
from tenure.domain.units import HOUR, MINUTE

NOW = 10 * HOUR
H0, H1, H2 = HostId("h0"), HostId("h1"), HostId("h2")


def end(job: str, *hosts: HostId, died: HostId | None = None, user: str = "ana", replica: int = 0, ago: int = 5) -> End:
    at = NOW - ago * MINUTE
    return End(at=at, job=JobId(job), user=UserName(user), hosts=hosts, died_on=died, replica=replica)


def verdict(*ends: End, cleared_at: int = 0) -> Reason | None:
    spec = HostSpec(host=H0, gpus=8, gpu_type="H100", block="b", cluster="c")
    host = Host(spec=spec, last_seen=NOW, cleared_at=cleared_at)
    found = blamed(host, Core(hosts={H0: host}, ends=list(ends)), NOW, policy=Policy())
    return None if found is None else found[0]


def gangs(*replicas: int) -> list[End]:
    return [end(f"g{n}", H0, H1, died=H0, replica=replica) for n, replica in enumerate(replicas)]


def test_gangs_of_one_user_in_which_another_replica_dies_each_time_but_always_here() -> None:
    assert verdict(*gangs(0, 1, 0)) is Reason.HOST_JOBS_FAIL
    assert verdict(*gangs(0, 0, 0)) is None, "rank 0 fails wherever it is: a bug"


def test_two_users_who_run_well_elsewhere() -> None:
    died = [end("a", H0, died=H0), end("b", H0, died=H0, user="ben"), end("c", H0, died=H0, user="ben")]
    well = [end("d", H1), end("e", H1, user="ben")]
    assert verdict(*died, *well) is Reason.HOST_JOBS_FAIL
    assert verdict(*died, well[0]) is None, "one witness is none"
    assert verdict(*died[:2], *well) is None, "two runs are too few"
    assert verdict(*died, *well, *[end(f"w{n}", H0) for n in range(3)]) is None, "as many end well here"


def test_who_fails_elsewhere_too_is_no_witness() -> None:
    assert verdict(*gangs(0, 1, 0), end("x", H2, died=H2)) is None


def test_what_is_long_ago_or_was_looked_at_is_no_evidence() -> None:
    assert verdict(*[end(f"g{n}", H0, H1, died=H0, replica=n, ago=61) for n in range(3)]) is None
    assert verdict(*gangs(0, 1, 0), cleared_at=NOW - MINUTE) is None


def test_one_job_that_is_tried_again_is_one_job() -> None:
    assert verdict(*[end("g", H0, H1, died=H0, replica=n) for n in range(3)]) is None
