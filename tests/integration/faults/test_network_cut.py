"""The network between agents and the log's server is cut for longer than any timeout.

S60 (an agent holds what the controller forgot), S67 (the control plane is away for longer than the lease and every run
is killed when it is back).
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tenure.domain.reasons import EndCause
from tenure.events.fact import Recorded
from tenure.events.placing import RunAssigned, RunEnded
from tenure.events.reports import ReplicasExited
from tenure.v1.jobs_pb2 import JobSpec
from tests.e2e.roles import Roles
from tests.e2e.system import is_running
from tests.integration.faults.aftermath import check_aftermath
from tests.integration.faults.lab import AGENTS, KNOBS, Lab, lab
from tests.integration.faults.load import Load
from tests.integration.faults.road import ProxyRoad, namespace

pytestmark = pytest.mark.timeout(300)

SILENT = [*KNOBS, "suspect_after=2s", "lost_after=12s"]
"""Shorter than a cut lasts (15 s), longer than one agent needs more than another to be back."""
PATIENT = [*KNOBS, "suspect_after=3s", "lost_after=17s", "block_lost_after=17s"]
"""Longer than an agent goes on trying to write what it knew before it was cut off (15 s): then it reads first."""
LOST = "lost the log's server"


def test_all_agents_are_cut_off_and_no_run_ends_for_it(tmp_path: Path) -> None:
    """A namespace whose link is down. The control plane cannot tell dead hosts from a dead network, and waits."""
    with namespace() as network:
        if network is None:
            pytest.skip("this kernel lets us have no network namespaces; the proxy below stands in for them")
        roads: list[ProxyRoad] = []

        def start_far(roles: Roles, name: str, arguments: Sequence[str]) -> None:
            road = ProxyRoad(roles.nats.url, address=network.near_address)
            roads.append(road)
            own = (*arguments, "--nats-insecure")
            roles.start("agent", *own, name=name, nats_url=road.url, inside=network.inside)

        try:
            with lab(tmp_path, knobs=SILENT, start_agent=start_far) as each:
                with each.load(seed=3) as load:
                    load.more(20)
                    network.cut()
                    before = load.marked("ended")
                    each.roles.until(
                        lambda: all(each.roles.has_said(name, LOST) for name in AGENTS) or None,
                        what="the agents to give the log's server up",
                        timeout_s=60,
                    )
                    assert states(each) == {"suspect"}
                    ended_alone = load.marked("ended").keys() - before.keys()
                    assert ended_alone, "runs went on to their ends"
                    network.mend()
                    load.more(20)
                recorded = check_aftermath(each, load)
                assert reported_late(recorded, ended_alone), "what ended meanwhile is reported afterwards"
        finally:
            for road in roads:
                road.close()


def test_one_agent_is_cut_off_and_its_runs_are_lost_and_run_again(tmp_path: Path) -> None:
    """A proxy that swallows everything. The other agent is heard, so this is a death by evidence (P2)."""
    roads: dict[str, ProxyRoad] = {}

    def start_far(roles: Roles, name: str, arguments: Sequence[str]) -> None:
        roads[name] = ProxyRoad(roles.nats.url)
        roles.start("agent", *arguments, name=name, nats_url=roads[name].url)

    try:
        with lab(tmp_path, knobs=PATIENT, start_agent=start_far) as each:
            with each.load(seed=4) as load:
                stay = [each.client.submit(staying(tmp_path)) for _ in range(8)]
                each.roles.until(lambda: len(written(tmp_path)) == len(stay) or None, what="jobs that stay")
                here = [job for job in stay if each.client.job(job).runs[0].hosts[0].host.startswith("a0")]
                forgotten = [written(tmp_path)[f"{job}.1"] for job in here]
                assert forgotten, "some are on the hosts that will be cut off"
                roads["a0"].cut()
                each.roles.until(
                    lambda: states(each) == {"lost", "healthy"} or None, what="hosts to be lost", timeout_s=60
                )
                load.more(10)
                roads["a0"].mend()
                each.roles.until(lambda: states(each) == {"healthy"} or None, what="hosts to be back", timeout_s=60)
                each.roles.until(
                    lambda: not any(map(is_running, forgotten)) or None, what="the end of what was given up"
                )
                load.more(10)
            for job in stay:
                each.client.cancel(job, user="load")
            recorded = check_aftermath(each, load, lost_hosts=True)
            assert run_again(recorded, load), "what was lost has run again"
    finally:
        for road in roads.values():
            road.close()


def staying(folder: Path) -> JobSpec:
    """A job that writes down its pid and stays."""
    command = ["/bin/sh", "-c", 'echo $$ > "$0/$TENURE_RUN_ID.pid"; exec sleep 600', str(folder)]
    return JobSpec(
        budget="a", user="load", replicas=1, gpus_per_replica=1, min_runtime_ms=60_000, command=command, grace_ms=1_000
    )


def written(folder: Path) -> dict[str, int]:
    """The pids that were written down, by run."""
    found = {path.stem: path.read_text().strip() for path in folder.glob("*.pid")}
    return {run: int(pid) for run, pid in found.items() if pid}


def states(each: Lab) -> set[str]:
    """What the hosts are."""
    return {host.state for host in each.client.hosts().hosts}


def reported_late(recorded: Sequence[Recorded], runs: set[str]) -> bool:
    """Whether the log has the ends of all these runs."""
    return runs <= {entry.fact.run for entry in recorded if isinstance(entry.fact, ReplicasExited)}


def run_again(recorded: Sequence[Recorded], load: Load) -> bool:
    """Whether a job whose run was lost with its host has run again since."""
    facts = [entry.fact for entry in recorded]
    lost = {fact.job for fact in facts if isinstance(fact, RunEnded) and fact.cause_of_end is EndCause.HOST_LOST}
    again = {fact.job for fact in facts if isinstance(fact, RunAssigned) and fact.number > 1}
    return bool(lost & again & set(load.acknowledged.values()))
