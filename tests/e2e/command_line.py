"""A real `tenure up` in a directory of its own, and the real command line against it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

PATIENCE_S = 30.0
TENURE = str(Path(sys.executable).parent / "tenure")


def until(condition: Callable[[], Any], what: str, *, patience_s: float = PATIENCE_S) -> Any:
    """The first true value of `condition`, looked at until it is one."""
    deadline = time.monotonic() + patience_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {patience_s:g} s for {what}"
        time.sleep(0.02)
    return value


class CommandLine:
    """One data directory and the `up` that runs on it now. `close` leaves nothing behind."""

    def __init__(self, root: Path, *, hosts: str = "2x4") -> None:
        self.root, self.hosts = root, hosts
        self.data = root / "data"
        self.output = root / "up.txt"
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("TENURE_")},
            "XDG_STATE_HOME": str(root / "state"),
            "XDG_DATA_HOME": str(root / "share"),
        }
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def said(self) -> str:
        """What the last `up` wrote to the terminal."""
        return self.output.read_text()

    def start(self, *options: str, listen: str | None = "127.0.0.1:0") -> None:
        """Run `tenure up`; return when it says that it answers. `listen` None: where it likes."""
        if listen is not None:
            options = ("--listen", listen, *options)
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [TENURE, "up", "--data", str(self.data), *(["--hosts", self.hosts] if self.hosts else []), *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self.environment,
            )
        process = self.process
        until(lambda: "tenure is up at" in self.said or process.poll() is not None, "tenure up")
        assert process.poll() is None, self.said

    @property
    def address(self) -> str:
        """Where it said that it answers."""
        return self.said.split("tenure is up at ")[1].split()[0]

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """End `up` as its user would; its exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """One command of the CLI, which finds the system as the last `up`."""
        return subprocess.run(
            [TENURE, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE_S,
            check=False,
        )

    def ask(self, *arguments: str) -> str:
        """What a command that must succeed wrote."""
        done = self.run(*arguments)
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return done.stdout

    def json(self, *arguments: str) -> Any:
        """The document of a command with `--json`."""
        return json.loads(self.ask(*arguments, "--json"))

    def submit(self, *arguments: str, min_runtime: str = "5m", gpus: int = 1) -> str:
        """Submit to the budget `default`; the id of the job."""
        options = ("--budget", "default", "--gpus", str(gpus), "--min-runtime", min_runtime)
        return self.ask("submit", *options, *arguments).strip()

    def state(self, job: str) -> str:
        """The state of a job."""
        return str(self.json("job", job)["state"])

    def children(self) -> dict[str, int]:
        """The recorded processes by role."""
        return {record["name"]: record["pid"] for record in json.loads((self.data / "children.json").read_text())}

    def close(self) -> None:
        """Stop `up` and, should it have failed to, everything that names the data directory."""
        if self.process is not None and self.process.poll() is None:
            self.stop()
        for process in psutil.process_iter(["cmdline"]):
            if str(self.data) in " ".join(process.info["cmdline"] or ()):
                process.kill()


def is_running(pid: int) -> bool:
    """Whether the process lives; one that waits for burial does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
