"""What all recipes share: their arguments, the question whether a run is on the host, and commands on that host.

Settings from the environment: TENURE_HOST (the host, if not given), TENURE_GPUS (how many it is to have), TENURE_CLI
(`tenure`), TENURE_REPAIR_SSH (`ssh -o BatchMode=yes -o ConnectTimeout=10`). Exit status: 0 done, 75 may go better
later, another: a person is needed.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence

TRY_AGAIN = 75
ASK_LIMIT_S, STEP_LIMIT_S = 30, 1500


class Trouble(Exception):
    """Why a recipe ends, with its exit status."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


class Host:
    """The host that a recipe works on. `gpus`: how many it has, none if it counts CPUs.

    With `dry_run` its commands are shown, not run.
    """

    def __init__(self, name: str, *, gpus: int, dry_run: bool) -> None:
        self.name, self.gpus, self.dry_run = name, gpus, dry_run
        self._ssh = shlex.split(os.environ.get("TENURE_REPAIR_SSH", "ssh -o BatchMode=yes -o ConnectTimeout=10"))

    def run(self, command: str, *, stdin: str = "", limit_s: float = STEP_LIMIT_S) -> str:
        """Run a shell command on the host; what it printed. Raises `Trouble`, 75 when it takes too long."""
        words = [*self._ssh, self.name, command]
        if self.dry_run:
            print(f"would run: {shlex.join(words)}")
            return ""
        try:
            done = subprocess.run(
                words, input=stdin, capture_output=True, text=True, errors="replace", timeout=limit_s, check=False
            )
        except subprocess.TimeoutExpired:
            raise Trouble(f"{self.name}: no end of `{command}` within {limit_s:g} s", TRY_AGAIN) from None
        except OSError as error:
            raise Trouble(f"{words[0]} cannot be run: {error.strerror}") from error
        if done.returncode != 0:
            last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
            raise Trouble(f"{self.name}: `{command}` ended with status {done.returncode}: {last}")
        return done.stdout


def known(host: str) -> tuple[list[str], int]:
    """The runs on a host as tenure knows it, and how many GPUs it is to have (none: it counts CPUs).

    The repair plug is told the most that it ever registered; who calls by hand has what it registered last.

    Raises `Trouble` when tenure cannot be asked, or does not know the host.
    """
    command = [*shlex.split(os.environ.get("TENURE_CLI", "tenure")), "host", "list", "--json"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=ASK_LIMIT_S, check=True)
        hosts = {one["host"]: one for one in json.loads(asked.stdout)["hosts"]}
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
        raise Trouble(f"tenure cannot be asked what runs on {host}: {type(error).__name__}", TRY_AGAIN) from error
    if host not in hosts:
        raise Trouble(f"tenure knows no host {host}")
    found = hosts[host]
    registered = 0 if found.get("gpu_type") == "CPU" else int(found["gpus"])
    return list(found["runs"]), int(os.environ.get("TENURE_GPUS") or registered)


def recipe(description: str, mend: Callable[[Host], str], argv: Sequence[str] | None = None) -> int:
    """Run a recipe as a program. `mend` returns a line for people."""
    parser = argparse.ArgumentParser(description=description, epilog=__doc__)
    parser.add_argument("host", nargs="?", default=os.environ.get("TENURE_HOST"), help="the host; else TENURE_HOST")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, do nothing")
    arguments = parser.parse_args(argv)
    if not arguments.host or arguments.host.startswith("-"):
        parser.error("name a host, or set TENURE_HOST")
    try:
        runs, gpus = known(arguments.host)
        if runs:
            raise Trouble(f"refused: {arguments.host} has {len(runs)} runs, {runs[0]} first; drain it", TRY_AGAIN)
        print(mend(Host(arguments.host, gpus=gpus, dry_run=arguments.dry_run)))
    except Trouble as trouble:
        print(trouble, file=sys.stderr)
        return trouble.status
    return 0
