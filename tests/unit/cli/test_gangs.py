"""`queue`, `why` and `queue --fragmentation`: what is shown of gangs that wait and of the room for them."""

import pytest

from tenure.v1 import hosts_pb2, jobs_pb2
from tests.unit.cli.canned import NOW, Canned
from tests.unit.cli.conftest import Run

MINUTE = 60_000
HOUR = 60 * MINUTE


def gang(*, waits_for: tuple[jobs_pb2.RunInTheWay, ...], latest_start: int, hosts: int = 2) -> jobs_pb2.Job:
    spec = jobs_pb2.JobSpec(budget="science/chem", user="ana", replicas=hosts, gpus_per_replica=8, min_runtime_ms=HOUR)
    kept = [jobs_pb2.HostGpus(host=f"h{number:03}", gpus=range(8)) for number in range(hosts)]
    return jobs_pb2.Job(
        job_id="j1",
        state="queued",
        spec=spec,
        submitted_at_ms=NOW - MINUTE,
        latest_start_ms=latest_start,
        reservation=jobs_pb2.Reservation(hosts=kept, waits_for=waits_for),
    )


def in_the_way(run: str, until: int, *, budget: str = "robotics", state: str = "running") -> jobs_pb2.RunInTheWay:
    return jobs_pb2.RunInTheWay(
        run_id=run, job_id=run.partition(".")[0], budget=budget, gpus=8, protected_until_ms=until, state=state
    )


def placeable(gpus: int, whole: int, *replicas: int) -> hosts_pb2.Placeable:
    largest = [hosts_pb2.LargestGang(gpus_per_replica=2**n, replicas=count) for n, count in enumerate(replicas)]
    return hosts_pb2.Placeable(gpus=gpus, whole_hosts=whole, largest=largest)


def a_pool(expiries: int = 2) -> hosts_pb2.PoolFragmentation:
    prospects = [
        hosts_pb2.Prospect(
            at_ms=NOW + number * HOUR,
            placeable=placeable(12 + number * 8, number, 12 + number * 8, 6, 3, number),
            if_p5_gives=placeable(20 + number * 8, number + 1, 20 + number * 8, 10, 5, number + 1),
        )
        for number in range(expiries + 1)
    ]
    return hosts_pb2.PoolFragmentation(
        cluster="east",
        gpu_type="H100",
        hosts=16,
        gpus=128,
        gpus_free=4,
        hosts_with_gpus_free=3,
        largest_hole=2,
        gpus_giving_way=8,
        gpus_past_protection=16,
        prospects=prospects,
    )


def test_the_queue_shows_the_latest_start_and_how_far_it_is(tenure: Run, gateway: Canned) -> None:
    gateway.jobs = [gang(waits_for=(), latest_start=NOW + 2 * HOUR + 10 * MINUTE)]
    assert "16:23:20 (in 2h10m)" in tenure("queue").out.splitlines()[2]
    gateway.jobs[0].latest_start_ms = 0
    assert tenure("queue").out.splitlines()[2].split()[-2:] == ["-", "-"]


def test_the_queue_as_json_has_the_hosts_and_the_runs_in_the_way(tenure: Run, gateway: Canned) -> None:
    gateway.jobs = [gang(waits_for=(in_the_way("j7.2", NOW + HOUR),), latest_start=NOW + HOUR)]
    (job,) = tenure("queue", "--json").json()["jobs"]
    assert (job["latest_start"], job["latest_start_ms"]) == ("2026-09-21T15:13:20.000Z", NOW + HOUR)
    assert list(job["reservation"]["hosts"]) == ["h000", "h001"]
    assert job["reservation"]["waits_for"] == [
        {
            "run": "j7.2",
            "job": "j7",
            "budget": "robotics",
            "gpus": 8,
            "state": "running",
            "protected_until": "2026-09-21T15:13:20.000Z",
            "protected_until_ms": NOW + HOUR,
        }
    ]
    gateway.jobs[0].ClearField("reservation")
    assert tenure("queue", "--json").json()["jobs"][0]["reservation"] is None


def test_the_queue_says_where_the_free_gpus_are(tenure: Run, gateway: Canned) -> None:
    numbers = {"gpus_asked": "16", "gpus_free": "4", "hosts_with_gpus_free": "3", "largest_hole": "2"}
    gateway.jobs = [gang(waits_for=(), latest_start=0)]
    for reason in ("defer_fragmented", "defer_no_room", "defer_no_timetable"):
        gateway.jobs[0].why.CopyFrom(jobs_pb2.Why(rule="P6", reason=reason, numbers=numbers))
        words = reason.removeprefix("defer_").replace("_", " ")
        assert f"{words} (P6): asked 16, 4 free on 3 hosts, largest hole 2" in tenure("queue").out
    gateway.jobs[0].why.numbers["gpus_free"] = "0"
    assert tenure("queue").out.splitlines()[2].endswith("no timetable (P6): asked 16, none free")
    gateway.jobs[0].why.numbers["gpus_free"] = "4"
    del gateway.jobs[0].why.numbers["largest_hole"]
    assert tenure("queue").out.splitlines()[2].endswith("no timetable (P6)")


def test_why_ends_with_what_a_gang_waits_for(tenure: Run, gateway: Canned) -> None:
    runs = (in_the_way("j3.1", 0, state="starting"), in_the_way("j7.2", NOW + HOUR), in_the_way("j8.1", NOW + 2 * HOUR))
    gateway.jobs = [gang(waits_for=runs, latest_start=NOW + 2 * HOUR, hosts=10)]
    gateway.steps = [jobs_pb2.Step(at_ms=NOW, kind="ReservationMade", text="kept")]
    lines = tenure("why", "j1").out.splitlines()
    assert lines[0].endswith("kept") and lines[1] == ""
    assert lines[2].startswith("It starts at the latest at ") and "with 80 GPUs on 10 hosts: h000, h001" in lines[2]
    assert lines[2].endswith("h007 and 2 more")
    assert lines[3].split() == ["IN", "THE", "WAY", "BUDGET", "GPUS", "STATE", "PROTECTED", "UNTIL"]
    assert lines[4].split() == ["j3.1", "robotics", "8", "starting", "not", "started", "yet"]
    assert [line.split()[:4] for line in lines[5:]] == [
        ["j8.1", "robotics", "8", "running"],
        ["j7.2", "robotics", "8", "running"],
    ]
    assert "16:13" in lines[5] and "15:13" in lines[6]
    document = tenure("why", "j1", "--json").json()
    assert document["latest_start_ms"] == NOW + 2 * HOUR
    assert [run["run"] for run in document["reservation"]["waits_for"]] == ["j3.1", "j7.2", "j8.1"]


def test_why_says_when_no_protected_run_is_in_the_way(tenure: Run, gateway: Canned) -> None:
    gateway.jobs = [gang(waits_for=(), latest_start=NOW + HOUR)]
    assert tenure("why", "j1").out.splitlines()[-1].startswith("No protected run is in its way")
    gateway.jobs[0].ClearField("reservation")
    assert tenure("why", "j1").out == ""


def test_fragmentation_is_a_line_and_a_table_a_pool(tenure: Run, gateway: Canned) -> None:
    gateway.pools = [a_pool()]
    lines = tenure("queue", "--fragmentation").out.splitlines()
    assert lines[0] == (
        "east H100: 4 of 128 GPUs free on 3 of 16 hosts, largest hole 2, 0 hosts wholly free, 8 that give way at once, "
        "16 past their protection"
    )
    assert " ".join(lines[1].split()) == "FROM GPUS HOSTS x2 x4 x8 P5 GPUS P5 HOSTS P5 x2 P5 x4 P5 x8"
    assert " ".join(lines[2].split()) == "now 12 0 6 3 0 20 1 10 5 1"
    assert " ".join(lines[3].split()) == "15:13:20 (in 1h) 20 1 6 3 1 28 2 10 5 2"
    assert not any("more until" in line for line in lines)


def test_of_many_expiries_the_next_few_are_shown_and_all_in_json(tenure: Run, gateway: Canned) -> None:
    gateway.pools = [a_pool(expiries=11)]
    lines = tenure("queue", "--fragmentation").out.splitlines()
    assert lines[11] == "and 3 more until 01:13:20 (in 11h); all of them with --json"
    document = tenure("queue", "--fragmentation", "--json").json()
    (pool,) = document["pools"]
    assert document["now_ms"] == NOW and (pool["cluster"], pool["gpu_type"]) == ("east", "H100")
    assert (pool["gpus_free"], pool["hosts_with_gpus_free"], pool["largest_hole"]) == (4, 3, 2)
    assert len(pool["prospects"]) == 12
    assert pool["prospects"][1] == {
        "at": "2026-09-21T15:13:20.000Z",
        "at_ms": NOW + HOUR,
        "placeable": {"gpus": 20, "whole_hosts": 1, "replicas": {"1": 20, "2": 6, "4": 3, "8": 1}},
        "if_p5_gives": {"gpus": 28, "whole_hosts": 2, "replicas": {"1": 28, "2": 10, "4": 5, "8": 2}},
    }


def test_no_hosts_is_said(tenure: Run) -> None:
    assert tenure("queue", "--fragmentation").out == "No host takes runs now.\n"
    assert tenure("queue", "--fragmentation", "--json").json()["pools"] == []


@pytest.mark.parametrize(
    "option",
    [("--budget", "science"), ("--user", "ana"), ("--state", "queued"), ("--all",), ("--watch",), ("--limit", "3")],
)
def test_options_that_choose_jobs_are_refused_with_fragmentation(tenure: Run, option: tuple[str, ...]) -> None:
    result = tenure("queue", "--fragmentation", *option)
    assert (result.status, result.out) == (2, "")
    assert "--fragmentation" in result.err and f"leave out {option[0]}" in result.err
