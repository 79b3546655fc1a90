"""`make demo`: real jobs of four budgets share eight virtual hosts of eight GPUs, for about a minute and a half.

Starts a whole tenure in a temporary directory, submits the plot, shows the cluster live, and in the end checks every
promise against what really happened. Exit status 1 if one was broken.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from examples.plot import KNOBS, plot
from examples.promises import check_promises
from examples.screen import frame, hue_of
from tenure.sdk.client import Client
from tenure.v1.jobs_pb2 import Job

TENURE = Path(sys.executable).parent / "tenure"
HOSTS = "8x8"
LONGEST_S = 170.0
FINAL = ("completed", "failed", "preempted", "cancelled", "rejected")


def main() -> int:
    """Run the demo. Returns the exit status."""
    console = Console()
    with tempfile.TemporaryDirectory(prefix="tenure-demo-") as folder:
        data = Path(folder) / "data"
        console.print("starting NATS, ClickHouse (embedded) and all roles in", str(data), highlight=False)
        system = start(data)
        try:
            address = wait_until_up(system, data)
            with Client(address) as client:
                ids = run(client, console)
                kept = check_promises(client, ids, console)
            show(console, address, "why", ids["counter"][0])
            show(console, address, "budget", "report")
        finally:
            stop(system)
        console.print("all promises kept" if kept else "[bold red]a promise was broken")
    return 0 if kept else 1


def start(data: Path) -> "subprocess.Popen[bytes]":
    """`tenure up` as a child, on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    budgets = Path(__file__).parent / "budgets.yaml"
    command = [str(TENURE), "up", "--data", str(data), "--hosts", HOSTS, "--budgets", str(budgets)]
    command += ["--listen", f"127.0.0.1:{port}", *[word for knob in KNOBS for word in ("--set", knob)]]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def wait_until_up(system: "subprocess.Popen[bytes]", data: Path) -> str:
    """The address, once the system says that it is up. Raises SystemExit with what it said if it does not come up."""
    said: list[str] = []
    assert system.stdout is not None
    for line in system.stdout:
        said.append(line.decode(errors="replace").rstrip())
        if said[-1].startswith("tenure is up"):
            endpoint = json.loads((data / "endpoint.json").read_text())
            return str(endpoint["address"])
    raise SystemExit("\n".join(["tenure did not come up:", *said]))


def stop(system: "subprocess.Popen[bytes]") -> None:
    """Ctrl-C, as a person would."""
    if system.poll() is None:
        system.send_signal(signal.SIGINT)
    try:
        system.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        system.kill()
        system.communicate()


def run(client: Client, console: Console) -> dict[str, list[str]]:
    """Submit the plot and watch until everything is over. Returns job ids by name (all sweeps under `sweep`)."""
    budgets = [budget.path for budget in client.tree().budgets if budget.leaf]
    hosts = [(host.host, host.gpus) for host in client.hosts().hosts]
    cues, ids, seen = deque(plot()), dict[str, list[str]](), dict[str, str]()
    story: deque[Text] = deque(maxlen=200)
    began = time.monotonic()
    live = Live(console=console, auto_refresh=False, transient=False) if console.is_terminal else None
    if live is not None:
        live.start()
    try:
        while time.monotonic() - began < LONGEST_S:
            elapsed = time.monotonic() - began
            told = len(story)
            while cues and cues[0].at_s <= elapsed:
                cue = cues.popleft()
                story.append(Text(f"{elapsed:5.1f} s  {cue.says}", style="bold"))
                for spec, job_id in zip(cue.specs, client.submit_batch(cue.specs), strict=True):
                    ids.setdefault(spec.name.partition("-")[0], []).append(job_id)
            answer = client.jobs(limit=1_000)
            story.extend(changes(answer.jobs, seen, budgets, elapsed))
            if live is not None:
                live.update(frame(answer, hosts, budgets, story, elapsed), refresh=True)
            else:
                for line in list(story)[told:]:
                    console.print(line)
            if not cues and all(job.state in FINAL for job in answer.jobs):
                return ids
            time.sleep(0.2)
    finally:
        if live is not None:
            live.stop()
    raise SystemExit(f"the demo did not end in {LONGEST_S:.0f} s")


def changes(jobs: Iterable[Job], seen: dict[str, str], budgets: list[str], elapsed: float) -> list[Text]:
    """A line for each job that is in another state than before; sweeps are only counted."""
    lines: list[Text] = []
    swept: dict[str, int] = {}
    for job in jobs:
        if seen.get(job.job_id) == job.state:
            continue
        seen[job.job_id] = job.state
        if job.spec.name.startswith("sweep"):
            swept[job.state] = swept.get(job.state, 0) + 1
        elif job.state != "submitted":
            hue = hue_of(job.spec.budget, budgets)
            where = f" on {len(job.runs[-1].hosts)} hosts" if job.state == "running" and job.runs else ""
            lines.append(
                Text(f"{elapsed:5.1f} s  {job.spec.name} ({job.spec.budget}) is {job.state}{where}", style=hue)
            )
    if swept:
        counted = ", ".join(f"{count} {state}" for state, count in sorted(swept.items()))
        lines.append(Text(f"{elapsed:5.1f} s  sweep: {counted}", style="dim"))
    return lines


def show(console: Console, address: str, *words: str) -> None:
    """Run a `tenure` command as a person would, and show it."""
    console.print(f"\n$ tenure {' '.join(words)}", style="bold", highlight=False)
    subprocess.run([str(TENURE), *words], env={**os.environ, "TENURE_SERVER": address}, check=False)


if __name__ == "__main__":
    sys.exit(main())
