"""What the demo promised, checked in the end against what really happened."""

import re
from collections.abc import Iterator

from rich.console import Console

from tenure.sdk.client import Client
from tenure.v1.jobs_pb2 import Job

Checked = tuple[bool, str]


def check_promises(client: Client, ids: dict[str, list[str]], console: Console) -> bool:
    """Print each promise with its evidence. Returns whether all were kept."""
    console.print()
    kept = True
    for good, line in promises(client, ids):
        kept = kept and good
        console.print(f"[green]kept[/]    {line}" if good else f"[bold red]BROKEN[/]  {line}", highlight=False)
    return kept


def promises(client: Client, ids: dict[str, list[str]]) -> Iterator[Checked]:
    """Each promise, whether it was kept, and how that is seen."""
    counter, gang = client.job(ids["counter"][0]), client.job(ids["gang"][0])
    crash, debug = client.job(ids["crash"][0]), client.job(ids["debug"][0])
    sweeps = [client.job(job_id) for job_id in ids["sweep"]]
    yield gang_is_whole(client, gang)
    yield contracts_hold([counter, gang, crash, debug])
    yield progress_is_kept(client, counter)
    yield unallocated_gives_way(sweeps)
    yield (
        debug.state == "completed" and debug.first_started_at_ms - debug.submitted_at_ms < 5_000,
        f"the debug job waited {debug.first_started_at_ms - debug.submitted_at_ms} ms, although all GPUs were in use",
    )
    yield crash.state == "failed" and crash.runs[-1].exit_code == 3, f"the crash is {crash.state} with status 3"
    delivered = [row for row in client.budget_report().rows if row.leaf and row.delivered_gpu_ms > 0]
    yield len(delivered) >= 3, f"{len(delivered)} budgets were delivered GPU-time, read from ClickHouse"


def gang_is_whole(client: Client, gang: Job) -> Checked:
    """All six ranks met."""
    met = [text(client, gang, replica=replica, run=0) for replica in range(gang.spec.replicas)]
    count = sum("sum of ranks 15" in line for line in met)
    hosts = len(gang.runs[-1].hosts)
    return (
        gang.state == "completed" and count == gang.spec.replicas,
        f"the gang started whole on {hosts} hosts: {count} of {gang.spec.replicas} ranks met",
    )


def contracts_hold(jobs: list[Job]) -> Checked:
    """No run that was preempted ended before its minimum runtime."""
    early = [
        run for job in jobs for run in job.runs if run.state == "preempted" and run.ended_at_ms < run.protected_until_ms
    ]
    spare = [run.ended_at_ms - run.protected_until_ms for job in jobs for run in job.runs if run.state == "preempted"]
    return not early and bool(spare), f"no contract was broken: preempted {spare} ms after protection ended"


def progress_is_kept(client: Client, counter: Job) -> Checked:
    """The counter was stopped, came back, and carried on from where it was."""
    first, last = text(client, counter, replica=0, run=1), text(client, counter, replica=0, run=len(counter.runs))
    saved = re.search(r"saved at (\d+)", first)
    resumed = re.search(r"counting from (\d+)", last)
    good = (
        counter.state == "completed"
        and len(counter.runs) == 2
        and saved is not None
        and resumed is not None
        and saved[1] == resumed[1]
    )
    at = f"saved at {saved[1]}, resumed from {resumed[1]}" if saved and resumed else "it left no trace"
    return good, f"the counter ran {len(counter.runs)} times: {at}"


def unallocated_gives_way(sweeps: list[Job]) -> Checked:
    """Sweeps were stopped for allocated work, cost nothing, and were all done in the end."""
    stopped = sum(run.state == "preempted" for job in sweeps for run in job.runs)
    done = sum(job.state == "completed" for job in sweeps)
    free = all(job.charged_gpu_ms == 0 for job in sweeps)
    return (
        stopped > 0 and done == len(sweeps) and free,
        f"the sweep gave way {stopped} times, all {done} points were done, nothing was charged",
    )


def text(client: Client, job: Job, *, replica: int, run: int) -> str:
    """What a replica wrote."""
    return b"".join(client.output(job.job_id, run=run, replica=replica)).decode(errors="replace")
