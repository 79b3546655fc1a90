"""1,000 agents for half an hour: `python -m tests.bench.scale [--seconds N] [--agents N] [--queued N] [--rate N]`.

Every role is a process of its own, beside a nats-server and ClickHouse (chdb behind its HTTP protocol). 1,000 agents of
8 GPUs (`tests.bench.fleet`: the agent's own code, machines pretended) beat every 5 s. All but 120 GPUs are held by
protected runs, 10,000 gangs are queued, and a process submits at a steady rate: one job in ten runs for ten seconds,
the rest are blocked and cancelled later. A real agent of two hosts runs real processes: the probe, a job of its own
every ten seconds, is timed from Submit to its first instruction.

Then other figures of the path are taken again, 10,000 facts a second come for ten seconds (`burst`), and at the end
every role and the log's server are killed and started again.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import psutil
import tenacity

from tenure.domain.ids import FactId, HostId, JobId, RunId
from tenure.events.fact import Fact
from tenure.events.reports import CheckpointReported, Heartbeat, HostBeat, Segment
from tenure.log.jetstream import JetStreamLog
from tenure.log.port import Unavailable
from tenure.runtime.nats_server import NatsServer
from tenure.sdk.client import Client
from tenure.sdk.errors import ServerError
from tenure.v1.budgets_pb2 import Budget
from tests.bench.heartbeats import LEAF, USER, cpu_s, now
from tests.bench.load import counted
from tests.bench.path import gang, percentiles, spec, submit_rate
from tests.e2e.roles import DECIDERS, Roles
from tests.integration.faults.lab import free_ports
from tests.simulation.whole.machine import Work

SECONDS, AGENTS, QUEUED, RATE = 1_800, 1_000, 10_000, 50
GPUS, FREE_HOSTS, FLEETS = 8, 15, 2
WANTED_HOSTS = 32
"""Of the gangs that wait: more than are free."""
PROBED = "probe-0"
CLUSTER, KNOBS = "tenure", ("heartbeat=5s", "submissions_per_user=3000")
TREE = {"a": 40, "b": 40, "c": 20, "c/x": 50, "c/y": 50}
BACKLOG, PROBE_EVERY_S, SAMPLE_EVERY_S = 500, 10.0, 5.0
USERS = ",".join(f"u{number}" for number in range(20))
BURST_PER_S, BURST_S, BATCH = 10_000, 10, 1_000
RUNS_FOR_MS, HOLDS_MS, SHORT = 10_000, 8 * 3_600_000, 1_000
PROBE_HOSTS = """clusters:
- name: main
  hosts: [{name: probe-0, gpus: 8, gpu_type: H100}, {name: probe-1, gpus: 8, gpu_type: H100}]
"""
WORK_FOR_REAL = f"""#!/bin/sh
case "$1" in *'"runs_for_ms":0'*) exit 0;; esac
exec sleep {RUNS_FOR_MS // 1000}
"""
"""Jobs for pretended machines that come to the real agent's hosts."""


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=SECONDS, help="of the steady rate")
    parser.add_argument("--agents", type=int, default=AGENTS)
    parser.add_argument("--queued", type=int, default=QUEUED)
    parser.add_argument("--rate", type=int, default=RATE, help="submissions a second")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tenure-scale-") as folder, Roles(Path(folder), knobs=KNOBS) as roles:
        figures = measure(roles, Path(folder), asked)
    figures["conditions"] = vars(asked)
    print(json.dumps(figures))
    return 0


def measure(roles: Roles, folder: Path, asked: argparse.Namespace) -> dict[str, object]:
    """Start everything, load it, burst, kill; what was seen."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    roles.start_deciders(listen=address)
    (folder / "probe.yaml").write_text(PROBE_HOSTS)
    (folder / "bin").mkdir()
    (folder / "bin" / "work").write_text(WORK_FOR_REAL)
    (folder / "bin" / "work").chmod(0o755)
    found = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    roles.start("agent", "--cluster-file", str(folder / "probe.yaml"), "--on-exit", "stop", environment=found)
    with fleets(roles.nats_url, asked.agents) as fleet, ExitStack() as stack:
        client = roles.client()
        set_tree(client)
        say("filling the cluster")
        fill(roles, client, agents=asked.agents, queued=asked.queued)
        watched = {name: psutil.Process(process.pid) for name, process in roles.processes.items()}
        watched |= {"nats": psutil.Process(roles.nats_pid), "clickhouse": psutil.Process(roles.database_pid)}
        watched |= {f"fleet{number}": psutil.Process(process.pid) for number, process in enumerate(fleet)}
        told = folder / "acknowledged"
        caller = calling(stack, address, told, rate=asked.rate, seconds=asked.seconds)
        steady = watch(roles, client, watched, caller, folder=folder, seconds=asked.seconds)
        say(f"{json.dumps(steady)}\nsubmissions in parcels, and as many as can be")
        figures: dict[str, object] = {"steady": steady, "path": path(roles, client, address)}
        say("a burst")
        figures["burst"] = burst(roles)
        say("everything is killed")
        figures["restart"] = restart(roles, client, folder, address=address)
        say("counting")
        figures["left"] = asyncio.run(counted(roles.nats_url, CLUSTER, [told]))
    return figures


def say(what: str) -> None:
    """Where it is."""
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


@contextmanager
def fleets(url: str, agents: int) -> Iterator[list[subprocess.Popen[str]]]:
    """The agents, in several processes, once all have read the log. Their folders are in memory, as of many disks."""
    memory = Path("/dev/shm")
    parent = memory if memory.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="tenure-fleet-", dir=parent) as folder, ExitStack() as stack:
        each, started = agents // FLEETS, []
        for number in range(FLEETS):
            arguments = [url, folder, str(number * each), str(each), str(GPUS)]
            command = [sys.executable, "-m", "tests.bench.fleet", *arguments]
            said = stack.enter_context((Path(folder) / f"fleet{number}.log").open("w"))
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True)
            stack.callback(end, process)
            started.append(process)
        for process in started:
            assert process.stdout is not None, "it is a pipe"
            assert json.loads(process.stdout.readline())["ready"] == each
        say(f"{agents} agents are there")
        yield started


def end(process: "subprocess.Popen[str]") -> None:
    """SIGTERM; killed if it does not end."""
    process.terminate()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def set_tree(client: Client) -> None:
    """The budgets."""
    client.set_shares([Budget(path=path, share_percent=share) for path, share in TREE.items()], user="ana", merge=False)


def work(runs_for_ms: int) -> list[str]:
    """The command of a pretended job."""
    return list(Work(runs_for_ms=runs_for_ms).command)


def fill(roles: Roles, client: Client, *, agents: int, queued: int) -> None:
    """Hold all hosts but a few with protected work, and queue gangs that do not fit."""
    held = spec("b", work(HOLDS_MS), gpus=GPUS, seconds=8 * 3_600)
    held.hosts_excluded.extend(["probe-0", "probe-1"])
    client.submit_batch([held] * (agents - FREE_HOSTS))
    wait_for(roles, client, "running", agents - FREE_HOSTS)
    probes = spec("c/x", ["sleep", "100000"], gpus=GPUS, seconds=8 * 3_600)
    probes.hosts.append("probe-1")
    client.submit(probes)
    for start in range(0, queued, 5_000):
        some = [gang(number) for number in range(start, min(queued, start + 5_000))]
        for each in some:
            each.replicas += FREE_HOSTS
            each.command[:] = work(RUNS_FOR_MS)
        client.submit_batch(some)
    wait_for(roles, client, "queued", queued)


def wait_for(roles: Roles, client: Client, state: str, count: int) -> None:
    """Until at least so many jobs are in a state."""
    roles.until(
        lambda: True if client.jobs(limit=1).counts.get(state, 0) >= count else None,
        timeout_s=300,
        what=f"{count} {state}",
    )


def calling(stack: ExitStack, address: str, told: Path, *, rate: int, seconds: int) -> "subprocess.Popen[str]":
    """The process that submits."""
    arguments = [address, str(rate), str(seconds), str(BACKLOG), USERS, str(told), str(WANTED_HOSTS), PROBED]
    arguments += work(RUNS_FOR_MS)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.caller", *arguments], stdout=subprocess.PIPE, text=True
    )
    stack.callback(process.kill)
    return process


def watch(
    roles: Roles,
    client: Client,
    watched: Mapping[str, psutil.Process],
    caller: "subprocess.Popen[str]",
    *,
    folder: Path,
    seconds: int,
) -> dict[str, object]:
    """Probe, and sample every process, until the caller has ended."""
    waits: list[float] = []
    answers: list[float] = []
    memory: dict[str, list[float]] = {}
    head, rows = positions(roles), events(roles)
    before, began = {name: cpu_s(process) for name, process in watched.items()}, time.monotonic()
    next_probe = next_sample = began
    minute = 0
    while caller.poll() is None:
        if time.monotonic() >= next_sample:
            next_sample += SAMPLE_EVERY_S
            for name, process in watched.items():
                memory.setdefault(name, []).append(process.memory_info().rss / 2**20)
        if time.monotonic() >= next_probe:
            next_probe += PROBE_EVERY_S
            waits.append(first_instruction_ms(roles, client, folder, len(waits)))
            answers.append(timed_ms(lambda: client.jobs(limit=50)))
        if (passed := int((time.monotonic() - began) // 300)) > minute:
            minute = passed
            say(f"{5 * minute} minutes; first instruction {percentiles(waits)}")
        time.sleep(0.1)
    took = time.monotonic() - began
    used = {name: round(100 * (cpu_s(process) - before[name]) / took, 1) for name, process in watched.items()}
    return {
        "submitted": json.loads(caller.communicate()[0]),
        "submit_to_first_instruction_ms": percentiles(waits),
        "list_50_jobs_ms": percentiles(answers),
        "percent_of_a_core": used,
        "memory_mib": {name: round(samples[-1]) for name, samples in memory.items()},
        "memory_growth_percent": growth(memory),
        "facts_per_s": round((positions(roles) - head) / took, 1),
        "rows_per_s": round((events(roles) - rows) / took, 1),
        "seconds": round(min(took, seconds)),
    }


def path(roles: Roles, client: Client, address: str) -> dict[str, object]:
    """Further figures of `tests.bench.path`, here: jobs that end at once, a batch, and callers without pause."""
    done = client.jobs(limit=1).counts.get("completed", 0)
    began = time.monotonic()
    client.submit_batch([spec("a", work(0), seconds=60)] * SHORT)
    wait_for(roles, client, "completed", done + SHORT)
    short_s = time.monotonic() - began
    jobs = [spec("b", work(0), gpus=GPUS, replicas=128) for _ in range(10_000)]
    batch_ms = timed_ms(lambda: client.submit_batch(jobs))
    return {
        "short_jobs_per_s": round(SHORT / short_s, 1),
        "batch_of_10000_s": round(batch_ms / 1000, 2),
        "accepted_per_s_with_queued": submit_rate(address),
        "queued": client.jobs(limit=1).counts.get("queued", 0),
    }


def growth(memory: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """From a tenth of the time on to the end, in percent."""
    return {name: round(100 * (samples[-1] / samples[len(samples) // 10] - 1), 1) for name, samples in memory.items()}


def first_instruction_ms(roles: Roles, client: Client, folder: Path, number: int | str) -> float:
    """From the call of Submit to the first instruction of a real process, by the one clock of this machine."""
    stamp = folder / f"stamp{number}"
    probe = spec("c/y", ["/bin/sh", "-c", f"date +%s%N > {stamp}.new; mv {stamp}.new {stamp}"], seconds=60)
    probe.hosts.append(PROBED)
    began = time.time_ns()
    client.submit(probe)
    roles.until(lambda: True if stamp.exists() else None, what="the probe", timeout_s=120)
    return (int(stamp.read_text()) - began) / 1e6


def timed_ms(call: Callable[[], object]) -> float:
    """How long it takes."""
    began = time.monotonic()
    call()
    return 1000 * (time.monotonic() - began)


def positions(roles: Roles) -> int:
    """The log's last position."""

    async def head() -> int:
        log = await JetStreamLog.connect(roles.nats_url, cluster=CLUSTER)
        try:
            return await log.head()
        finally:
            await log.close()

    return asyncio.run(head())


def events(roles: Roles, where: str = "1") -> int:
    """Rows in ClickHouse's table of facts."""
    client = roles.database.client()
    answer = client.query(f"SELECT count() FROM events WHERE {where}")
    client.close()
    return int(answer.result_rows[0][0])


def burst_rows(roles: Roles) -> int:
    """Those of the burst."""
    return events(roles, "startsWith(id, 'burst-')")


def burst(roles: Roles) -> dict[str, object]:
    """Facts at the rate wanted, half of them heartbeats with a run each, of hosts that nobody knows; and when
    ClickHouse has all of them.
    """
    took = asyncio.run(_flood(roles.nats_url))
    in_time, wanted = burst_rows(roles), BURST_PER_S * BURST_S
    began = time.monotonic()
    roles.until(lambda: True if burst_rows(roles) >= wanted else None, what="the journal", timeout_s=300)
    return {
        "facts": wanted,
        "written_in_s": round(took, 2),
        "in_clickhouse_when_written": in_time,
        "all_in_clickhouse_after_s": round(time.monotonic() - began, 2),
    }


async def _flood(url: str) -> float:
    log = await JetStreamLog.connect(url, cluster=CLUSTER)
    began = time.monotonic()
    for batch in range(BURST_PER_S * BURST_S // BATCH):
        ahead = began + batch * BATCH / BURST_PER_S - time.monotonic()
        if ahead > 0:
            await asyncio.sleep(ahead)
        facts = [_nothing(batch * BATCH + number) for number in range(BATCH)]
        async for attempt in tenacity.AsyncRetrying(retry=tenacity.retry_if_exception_type(Unavailable)):
            with attempt:  # facts have ids: none is written twice
                await log.append(facts)
    took = time.monotonic() - began
    await log.close()
    return took


def _nothing(number: int) -> Fact:
    """A fact that changes nothing for anybody."""
    host, run, job, at = HostId(f"nowhere-{number % 1_000}"), RunId("none.1"), JobId("none"), now()
    fact: Fact = CheckpointReported(at=at, run=run, job=job, host=host)
    if number % 2:
        held = Segment(run=run, job=job, budget=LEAF, user=USER, charged=False, gpus=8, since=at - 5_000, until=at)
        fact = Heartbeat(at=at, agent=host, hosts=(HostBeat(host=host, gpus=8, runs=(run,), segments=(held,)),))
    return msgspec.structs.replace(fact, id=FactId(f"burst-{number}"), cluster=CLUSTER)


def restart(roles: Roles, client: Client, folder: Path, *, address: str) -> dict[str, float]:
    """kill -9 of every role but the agents, and of the log's server; from their start to the first answer that has all
    jobs, and to a new job's first instruction.
    """
    assert isinstance(roles.nats, NatsServer), "one of our own"
    queued = client.jobs(limit=1).counts.get("queued", 0)
    for name in DECIDERS:
        roles.kill(name)
    roles.nats.kill()
    began = time.monotonic()
    roles.nats.start()
    for name in DECIDERS:
        roles.again(name)

    def answers() -> bool | None:
        try:
            with Client(address, deadline_s=1) as other:
                return True if other.jobs(limit=1).counts.get("queued", 0) >= queued else None
        except ServerError:
            return None

    roles.until(answers, what="an answer", timeout_s=120)
    first_answer = time.monotonic() - began
    first_instruction_ms(roles, client, folder, "again")
    return {"first_answer_s": round(first_answer, 2), "first_start_s": round(time.monotonic() - began, 2)}


if __name__ == "__main__":
    sys.exit(main())
