"""A load of small jobs that goes on whatever dies meanwhile. Each rank of each run leaves a mark that nobody can leave
twice, so that a doubled run is seen by its processes, whatever the log says.
"""

import itertools
import random
import threading
from pathlib import Path
from types import TracebackType

from tenure.sdk.client import Client
from tenure.sdk.errors import ServerError
from tenure.v1.jobs_pb2 import JobSpec

BUDGETS = ("a", "b", "c/x", "c/y")
WORK = (
    'set -C; me="$0/began/$TENURE_RUN_ID.$RANK"; true > "$me" || echo "$me" >> "$0/doubled"; '
    'sleep "$1" && true > "$0/ended/$TENURE_RUN_ID.$RANK"'
)
"""`set -C`: a file is opened with O_EXCL."""
GAP_S = 0.03
DEADLINE_S = 2.0


class Load:
    """Submits one job after another in a thread while it is used as a context.

    A submission that was not acknowledged is sent again under its key until it is.
    """

    def __init__(self, address: str, folder: Path, *, seed: int, gap_s: float = GAP_S) -> None:
        """`folder` gets the marks; `gap_s`: from one acknowledgement to the next submission."""
        self.folder = folder
        for marks in ("began", "ended"):
            (folder / marks).mkdir(parents=True, exist_ok=True)
        self.acknowledged: dict[str, str] = {}
        """Job ids by idempotency key."""
        self.trouble: list[str] = []
        """What was not acknowledged at once, in the server's words."""
        self._address, self._chance, self._gap_s, self._seed = address, random.Random(seed), gap_s, seed
        self._stop, self._grown = threading.Event(), threading.Condition()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    def more(self, count: int, *, timeout_s: float = 60.0) -> None:
        """Wait until so many more jobs are acknowledged."""
        with self._grown:
            wanted = len(self.acknowledged) + count
            grown = self._grown.wait_for(lambda: len(self.acknowledged) >= wanted, timeout=timeout_s)
        assert grown, f"{count} more jobs were not acknowledged in {timeout_s} s: {self.trouble[-3:]}"

    def _run(self) -> None:
        with Client(self._address, deadline_s=DEADLINE_S) as client:
            for number in itertools.count():
                key, spec = f"load-{self._seed}-{number}", self._spec()
                job = None
                while job is None and not self._stop.is_set():
                    job = self._try(client, spec, key)
                if job is not None:
                    with self._grown:
                        self.acknowledged[key] = job
                        self._grown.notify_all()
                if self._stop.wait(self._gap_s):
                    return

    def _try(self, client: Client, spec: JobSpec, key: str) -> str | None:
        try:
            return client.submit(spec, idempotency_key=key)
        except ServerError as error:
            self.trouble.append(str(error))
            return None

    def _spec(self) -> JobSpec:
        """Half of them small and protected; gangs; what gives way at any time; what outlives its protection."""
        kind, chance = self._chance.randrange(10), self._chance.uniform
        if kind < 5:
            return self._job(1, 1, protected_s=1, works_s=chance(0.05, 0.4))
        if kind < 7:
            return self._job(self._chance.randrange(2, 4), 2, protected_s=2, works_s=chance(0.2, 0.6))
        if kind < 9:
            return self._job(1, 2, protected_s=0, works_s=chance(0.2, 1.0), resumable=True)
        return self._job(1, 4, protected_s=1, works_s=chance(1.0, 2.0), resumable=True)

    def _job(self, replicas: int, gpus: int, *, protected_s: int, works_s: float, resumable: bool = False) -> JobSpec:
        command = ["/bin/sh", "-c", WORK, str(self.folder), f"{works_s:.3f}"]
        return JobSpec(
            budget=self._chance.choice(BUDGETS),
            user="load",
            replicas=replicas,
            gpus_per_replica=gpus,
            min_runtime_ms=protected_s * 1000,
            resumable=resumable,
            command=command,
            grace_ms=2_000,
        )

    @property
    def doubled(self) -> list[str]:
        """Ranks of runs that found the mark of another process of the same rank."""
        file = self.folder / "doubled"
        return file.read_text().split() if file.exists() else []

    def marked(self, what: str) -> dict[str, list[int]]:
        """The ranks that have `began`, or have `ended` by themselves, by run."""
        runs: dict[str, list[int]] = {}
        for path in sorted((self.folder / what).iterdir()):
            run, _, rank = path.name.rpartition(".")
            runs.setdefault(run, []).append(int(rank))
        return runs
