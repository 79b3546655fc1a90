"""A running `tenure up`: start everything at once, say when it answers, look after it, stop it in order."""

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator

from tenure.cli.first_policy import settle_policy
from tenure.cli.first_tree import settle_tree
from tenure.cli.machine import CLUSTER, LEAVE_JOBS, STOP_ORDER, Machine
from tenure.cli.serve import FORECAST
from tenure.cli.terminal import clean, is_terminal
from tenure.domain.refusal import Refusal
from tenure.domain.tree import BudgetTree
from tenure.runtime.data_dir import FREE_BYTES_MIN, Endpoint
from tenure.runtime.identity_options import certificate_name
from tenure.runtime.local_tokens import key_file, make_key
from tenure.runtime.supervisor import Supervisor, end_leftovers
from tenure.sdk.errors import ServerError

POLL_S = 0.02
CONSOLE_POLL_S = 0.1
START_S = 20.0
"""How long the start waits for a process that is not needed."""
PATIENCE_S = 2.0
"""After so long it is said what the stop waits for."""
DISK_EVERY_S = 1.0
FULL_BYTES = 8 << 20
"""Free space below which the log's server fails to write."""
NEEDED = ("nats", "gateway")
"""Without these there is nothing to talk to: `up` gives up when they do not come up."""
NOT_AWAITED = (FORECAST,)
"""Nothing depends on these: the start does not wait for them."""


def run(machine: Machine, *, tree: BudgetTree | None, tree_name: str) -> int:
    """Run it until a signal; returns the exit status. `tree` (from the file `tree_name`) is applied once it answers."""
    data = machine.data
    leftovers = end_leftovers(data.children())
    if leftovers:
        say(f"ended what a killed tenure up had left behind: {', '.join(leftovers)}")
    _make_token(machine)
    token_file = machine.token_file
    make_key(key_file(data.root))
    endpoint = Endpoint(
        address=machine.listen,
        pid=os.getpid(),
        data=str(data.root),
        cluster=CLUSTER,
        nats=machine.nats_url,
        nats_key_file=str(machine.reader_key_file),
        clickhouse=machine.database_url,
        clickhouse_token_file=None if token_file is None else str(token_file),
        tls_name=certificate_name(machine.identity),
        tls_ca=str(machine.identity.tls_ca or ""),
        started_at_ms=time.time_ns() // 1_000_000,
    )
    data.write_endpoint(endpoint)
    data.write_metrics_targets(list(machine.metrics_targets().values()))
    status = asyncio.run(_Running(machine, endpoint).live(tree=tree, tree_name=tree_name))
    machine.clean_up()
    data.release()
    return status


def say(line: str) -> None:
    """One line for people on stderr; the terminal may be gone, and that stops nothing."""
    with contextlib.suppress(OSError):
        print(f"{time.strftime('%H:%M:%S')} {clean(line)}", file=sys.stderr, flush=True)


class _Running:
    """The life of one `up` in its event loop."""

    def __init__(self, machine: Machine, endpoint: Endpoint) -> None:
        self._machine, self._endpoint = machine, endpoint
        self._supervisor = Supervisor(say=say, record=machine.data.write_children)
        self._specs = list(machine.children())
        self._stop, self._hurry = asyncio.Event(), asyncio.Event()
        self._console = ""

    async def live(self, *, tree: BudgetTree | None, tree_name: str) -> int:
        """From the first process to the last; returns the exit status."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup wants it to outlive its terminal
            loop.add_signal_handler(signal.SIGHUP, self._on_signal)
        began = time.monotonic()
        for spec in self._specs:
            self._supervisor.start(spec)
        failed = await self._wait_until_ready()
        if failed:
            log = self._machine.data.log_file(failed)
            say(f"giving up: {failed} does not come up; its log says why: {log}")
            await self._stop_all(stop_jobs=False)
            return 1
        if not self._stop.is_set():
            await self._announce(tree, tree_name, took_s=time.monotonic() - began)
        beside = [asyncio.create_task(self._watch_disk()), asyncio.create_task(self._tell_of_console())]
        await self._stop.wait()
        for each in beside:
            each.cancel()
        say("stopping")
        await self._stop_all(stop_jobs=True)
        say("stopped")
        return 0

    def _start_console(self) -> None:
        """Start the web console, now that the rest works: nothing waits for it."""
        spec = self._machine.console_child()
        if spec is not None and not self._stop.is_set():
            try:
                self._supervisor.start(spec)
                self._console = spec.name
            except OSError as error:
                say(f"the web console cannot be started: {error}")

    async def _tell_of_console(self) -> None:
        """Say where the web console answers, once it does."""
        if not self._console:
            return
        while not self._supervisor.is_ready(self._console):
            await asyncio.sleep(CONSOLE_POLL_S)
        found = self._machine.data.console()
        if found is not None:
            taken = not found.wanted.endswith((":0", f":{found.port}"))
            instead = f" ({found.wanted} is taken)" if taken else ""
            with contextlib.suppress(OSError):
                print(f"the web console is at {found.url}{instead}", flush=True)

    async def _watch_disk(self) -> None:
        """Say when the disk is full, and start nats again once it is not: it takes no facts until then."""
        root, full = self._machine.data.root, False
        while True:
            await asyncio.sleep(DISK_EVERY_S)
            free = shutil.disk_usage(root).free
            if not full and free < FULL_BYTES:
                full = True
                say(f"the disk of {root} is full ({free >> 20} MB free): nothing is accepted until there is room again")
            elif full and free >= FREE_BYTES_MIN:
                full = False
                say(f"the disk of {root} has room again: starting nats again")
                self._supervisor.restart("nats")

    def _on_signal(self) -> None:
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    async def _wait_until_ready(self) -> str | None:
        """Wait until every process works, or has had its time. The name of a needed one that failed."""
        waiting = [spec.name for spec in self._specs if spec.name not in NOT_AWAITED]
        patient_until = time.monotonic() + START_S
        with _progress() as show:
            while waiting and not self._stop.is_set():
                await asyncio.sleep(POLL_S)
                failing = [name for name in waiting if self._supervisor.is_failing(name)]
                for name in failing:
                    if name in NEEDED:
                        return name
                came_up = [name for name in waiting if self._supervisor.is_ready(name)]
                waiting = [name for name in waiting if name not in failing and name not in came_up]
                show(waiting, came_up)
                if time.monotonic() > patient_until and not any(name in NEEDED for name in waiting):
                    break
        for name in waiting if not self._stop.is_set() else ():
            say(f"{name} does not work yet, the rest goes on without it (log: {self._machine.data.log_file(name)})")
        return None

    async def _announce(self, tree: BudgetTree | None, tree_name: str, *, took_s: float) -> None:
        """Settle the budget tree, then say where the system answers and how it is used."""
        address = self._machine.listen
        example = "PATH"
        try:
            settled = await asyncio.to_thread(settle_tree, self._endpoint, tree=tree, tree_name=tree_name)
            example = settled.leaf or example
            if settled.changed:
                say(settled.changed)
        except (ServerError, Refusal) as error:
            say(f"the budget tree stays as it is: {error}")
        try:
            for line in await asyncio.to_thread(self._settle_policy):
                say(line)
        except (ServerError, Refusal) as error:
            say(f"the policy stays as it is: {error}")
        self._start_console()
        with contextlib.suppress(OSError):
            print(f"tenure is up at {address} after {took_s:.1f} s (data: {self._machine.data.root}; Ctrl-C stops all)")
            print(f"try: tenure submit --budget {example} --gpus 1 --min-runtime 5m -- hostname", flush=True)

    def _settle_policy(self) -> list[str]:
        machine = self._machine
        return list(settle_policy(self._endpoint, machine.knobs, at_start=machine.policy))

    async def _stop_all(self, *, stop_jobs: bool) -> None:
        """Stop the processes in order. The agent leaves its jobs running unless `stop_jobs`."""
        for names in STOP_ORDER:
            number = LEAVE_JOBS if names == ("agent",) and not stop_jobs else signal.SIGTERM
            stopping = asyncio.create_task(self._supervisor.stop(names, hurry=self._hurry, with_signal=number))
            await asyncio.wait({stopping}, timeout=PATIENCE_S)
            if not stopping.done():
                what = "the jobs, which have their grace periods" if names == ("agent",) else ", ".join(names)
                say(f"waiting for {what} (Ctrl-C again: at once)")
            await stopping


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[list[str], list[str]], None]]:
    """Show which processes are awaited and which came up: a moving line on a terminal, else a line for each."""
    if is_terminal(sys.stderr):
        from rich.console import Console

        with Console(stderr=True, highlight=False).status("starting") as status:
            yield lambda waiting, _: status.update(f"starting {', '.join(waiting)}")
    else:

        def show(_: list[str], came_up: list[str]) -> None:
            for name in came_up:
                say(f"{name} works")

        yield show


def _make_token(machine: Machine) -> None:
    """The embedded engine's password, there before anybody asks for it."""
    path = machine.token_file
    if machine.clickhouse_url or path is None or path.exists():
        return
    fresh = path.with_suffix(".new")
    fresh.touch(mode=0o600)
    fresh.write_text(secrets.token_hex(32) + "\n")
    fresh.replace(path)
