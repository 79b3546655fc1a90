"""A real Prometheus scrapes real roles; alerts fire when something breaks, and end when it works again."""

import asyncio
import subprocess
import urllib.request
from collections.abc import Iterator

import nats
import pytest

from tenure.domain.ids import FactId, JobId, RunId
from tenure.domain.reasons import Reason, Why
from tenure.events.intake import JobSubmitted
from tenure.events.placing import RunPreemptionRequested
from tenure.log.jetstream import JetStreamLog
from tenure.log.subjects import Subjects
from tenure.v1.budgets_pb2 import Budget
from tenure.v1.jobs_pb2 import JobSpec
from tests.e2e.prometheus import DEPLOY, RULES, Prometheus, binary, free_port, prometheus
from tests.e2e.roles import DECIDERS, Roles

PATIENCE_S = 60
KNOBS = ("heartbeat=500ms", "suspect_after=3s", "lost_after=10m")


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    return {name: free_port() for name in (*DECIDERS, "agent")}


@pytest.fixture(scope="module")
def roles(tmp_path_factory: pytest.TempPathFactory, ports: dict[str, int]) -> Iterator[Roles]:
    binary("prometheus")
    with Roles(tmp_path_factory.mktemp("roles"), knobs=KNOBS) as roles:
        for name, port in ports.items():
            own = {"gateway": ["--listen", "127.0.0.1:0"], "agent": ["--hosts", "2x4"]}.get(name, [])
            roles.start(name, *own, "--metrics-listen", f"127.0.0.1:{port}")
        yield roles


@pytest.fixture(scope="module")
def watched(roles: Roles, ports: dict[str, int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """It has scraped every role, and nothing is wrong."""
    targets = [f"127.0.0.1:{port}" for port in ports.values()]
    for name in ports:
        roles.ready(name)
    with prometheus(tmp_path_factory.mktemp("prometheus") / "own", targets) as watched:

        def is_well() -> bool | None:
            try:
                up = watched.query("up == 1")
                return (len(up) == len(ports) and not watched.firing()) or None
            except OSError:
                return None

        roles.until(is_well, what="all scraped and no alert", timeout_s=PATIENCE_S)
        yield watched


def until_fires(roles: Roles, watched: Prometheus, name: str, **labels: str) -> None:
    def fires() -> bool | None:
        wanted = {"alertname": name, **labels}.items()
        return any(wanted <= dict(alert).items() for alert in watched.firing()) or None

    roles.until(fires, what=f"{name} to fire", timeout_s=PATIENCE_S)


def until_ends(roles: Roles, watched: Prometheus, *names: str) -> None:
    def ended() -> bool | None:
        return not [alert for alert in watched.firing() if alert["alertname"] in names] or None

    roles.until(ended, what=f"{names} to end", timeout_s=PATIENCE_S)


def test_every_role_is_scraped_and_tells_what_it_should(
    roles: Roles, watched: Prometheus, ports: dict[str, int]
) -> None:
    def all_told() -> bool | None:
        return {of["role"] for of, _ in watched.query("tenure_caught_up == 1")} == set(ports) or None

    roles.until(all_told, what="every role to have caught up")
    leading = {of["role"] for of, _ in watched.query("tenure_leading == 1")}
    assert leading == {"budget", "ranker", "placer", "health", "journal"}
    assert {of["role"] for of, _ in watched.query("tenure_log_lag_facts")} == set(ports)
    (broken,) = roles.until(lambda: watched.query("tenure_contracts_broken_total") or None, what="the gateway's")
    assert broken[1] == 0
    roles.until(lambda: watched.query("tenure_gpus_available == 8") or None, what="the GPUs of the hosts")


def test_what_is_scraped_is_named_as_prometheus_wants(roles: Roles, ports: dict[str, int]) -> None:
    promtool = binary("promtool")
    for name, port in ports.items():
        roles.ready(name)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            said = subprocess.run([promtool, "check", "metrics"], input=answer.read(), capture_output=True, check=False)
        assert (said.returncode, said.stdout, said.stderr) == (0, b"", b""), name


def test_alerts_of_what_dies_fire_and_end(roles: Roles, watched: Prometheus) -> None:
    roles.kill("placer")
    roles.database.kill()
    until_fires(roles, watched, "TenureNoLeader", role="placer", severity="page")
    until_fires(roles, watched, "TenureRoleDown")
    until_fires(roles, watched, "TenureClickHouseAway", severity="ticket")
    roles.database.start()
    roles.again("placer")
    until_ends(roles, watched, "TenureNoLeader", "TenureRoleDown", "TenureClickHouseAway")


def test_the_alert_of_a_log_that_is_away_fires_and_ends(roles: Roles, watched: Prometheus) -> None:
    roles.nats.stop()
    until_fires(roles, watched, "TenureLogAway", role="placer", severity="page")
    roles.nats.start()
    until_ends(roles, watched, "TenureLogAway")


async def forge(roles: Roles, run: str, *, at: int) -> None:
    """Something that is no fact, and a preemption of a protected run: no role of ours writes either."""
    connection = await nats.connect(roles.nats_url)
    await connection.jetstream().publish(Subjects("tenure").written(JobSubmitted), b"no fact")
    await connection.close()
    log = await JetStreamLog.connect(roles.nats_url, cluster="tenure")
    why = Why(rule="P5", reason=Reason.DISRUPT_LOWER_RATIO, numbers={"ratio": 0.1, "victim_ratio": 0.9})
    fact = RunPreemptionRequested(
        at=at, id=FactId("forged"), run=RunId(run), job=JobId(run.partition(".")[0]), by="nobody", why=why
    )
    await log.append([fact])
    await log.close()


def test_alerts_of_what_must_not_be_fire_and_end(roles: Roles, watched: Prometheus) -> None:
    client = roles.client()
    client.set_shares([Budget(path="lab", share_percent=100)], user="ana", merge=False)
    spec = JobSpec(budget="lab", gpus_per_replica=1, replicas=1, min_runtime_ms=3_600_000, command=["sleep", "60"])
    job = client.submit(spec)
    roles.until(lambda: client.job(job).state == "running" or None, what="the job to run")
    started = client.job(job).runs[0].started_at_ms
    roles.kill("placer")
    roles.kill("agent")
    asyncio.run(forge(roles, f"{job}.1", at=started + 1))
    until_fires(roles, watched, "TenureContractBroken", severity="page")
    until_fires(roles, watched, "TenureDeadLetters", severity="ticket")
    until_fires(roles, watched, "TenureAgentsSilent", severity="ticket")
    roles.again("agent")
    until_ends(roles, watched, "TenureContractBroken", "TenureDeadLetters", "TenureAgentsSilent")


def test_the_rules_are_right() -> None:
    promtool = binary("promtool")
    for command in (
        ["check", "config", str(DEPLOY / "prometheus.yaml")],
        ["check", "rules", str(RULES)],
        ["test", "rules", str(DEPLOY / "rules/tenure.test.yaml")],
    ):
        said = subprocess.run([promtool, *command], capture_output=True, text=True, check=False)
        assert said.returncode == 0, said.stdout + said.stderr
