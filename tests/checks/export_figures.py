"""The figures of `report.json`, from the lines of `events.jsonl` the plain way: span by span, hour by hour."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Line = Mapping[str, Any]
Figures = dict[str, Any]
HOUR, DAY = 3_600_000, 86_400_000
Span = tuple[int, int]
"""[since, until) in milliseconds."""


@dataclass(kw_only=True)
class Run:
    """A run that started; `until` is the end of the window while it goes on."""

    job: Line
    hosts: Mapping[str, Sequence[int]]
    since: int
    until: int
    charged: bool
    resumes: bool
    ended: bool = False
    cause: str = ""
    refunded: int = 0
    checkpoint: int | None = None

    @property
    def gpus(self) -> int:
        return sum(len(gpus) for gpus in self.hosts.values())


def ms(seconds: float) -> int:
    return round(seconds * 1000)


def overlap(one: Span, other: Span) -> int:
    return max(0, min(one[1], other[1]) - max(one[0], other[0]))


def figures(
    lines: Sequence[Line], *, start_s: float, end_s: float, kinds: Mapping[str, str] | None, restart_overhead_s: float
) -> Figures:
    """What the report should say of [start, end)."""
    window = (ms(start_s), ms(end_s))
    jobs = {line["job"]: line for line in lines if line["type"] == "job_submitted"}
    runs = _runs(lines, jobs, end=window[1])
    parts = _parts(lines, runs, window)
    spent = _spent(runs, window, overhead=ms(restart_overhead_s))
    held = parts["held"]
    owed = Owed(lines, jobs, runs, window)
    stops = spent["preempted_lost"] + spent["host_lost"] + spent["restarts"]
    hours = {
        name: parts[name] / HOUR for name in ("capacity", "charged", "refunded", "unallocated", "idle", "unavailable")
    }
    return {
        "simulated_days": window[1] / DAY,
        "jobs": sum(window[0] <= ms(job["t"]) < window[1] for job in jobs.values()),
        "runs": sum(window[0] <= run.since < window[1] for run in runs.values()),
        "occupancy": held / (held + parts["idle"]) if held + parts["idle"] else 1.0,
        "availability": parts["offered"] / parts["capacity"] if parts["capacity"] else 1.0,
        "unallocated_fraction": parts["unallocated"] / held if held else 0.0,
        "goodput": 1 - stops / held if held else 1.0,
        "delivered": owed.delivered(),
        "rolling_7d": owed.rolling(),
        "waits": _waits(lines, jobs, runs, window, kinds=kinds),
        "preemptions": spent["preemptions"] | {"lost_gpu_hours": spent["preempted_lost"] / HOUR},
        "host_losses": {
            "runs": spent["hosts_lost"],
            "lost_gpu_hours": spent["host_lost"] / HOUR,
            "refunded_gpu_hours": parts["refunded"] / HOUR,
        },
        "restart_gpu_hours": spent["restarts"] / HOUR,
        "gpu_hours": hours,
    }


def _runs(lines: Iterable[Line], jobs: Mapping[str, Line], *, end: int) -> dict[str, Run]:
    runs: dict[str, Run] = {}
    ran: set[str] = set()
    for line in lines:
        if line["type"] == "run_started" and line["job"] in jobs:
            job = jobs[line["job"]]
            resumes = job["resumable"] and line["job"] in ran
            ran.add(line["job"])
            since = ms(line["t"])
            runs[line["run"]] = Run(
                job=job, hosts=line["hosts"], since=since, until=end, charged=line["charged"], resumes=resumes
            )
        elif line["type"] == "run_ended" and line["run"] in runs:
            run = runs[line["run"]]
            run.until, run.ended, run.cause = ms(line["t"]), True, line["cause"]
            run.refunded = ms(line["refunded_gpu_s"])
            run.checkpoint = ms(line["checkpoint"]) if "checkpoint" in line else None
    return runs


def _refund(run: Run) -> Span:
    """What was refunded is the last that the run held."""
    return run.until - run.refunded // run.gpus, run.until


def _parts(lines: Iterable[Line], runs: Mapping[str, Run], window: Span) -> dict[str, int]:
    """I5: where the time of every GPU went."""
    parts: dict[str, int] = defaultdict(int)
    steps: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    there: dict[str, tuple[int, int]] = {}
    offered: dict[str, int] = defaultdict(int)
    for line in lines:
        if line["type"] == "capacity":
            host, at = line["host"], ms(line["t"])
            steps[host].append((at, line["gpus"] - offered[host], 0))
            offered[host] = line["gpus"]
            there.setdefault(host, (at, line["gpus"]))
        elif line["type"] == "host":
            there.setdefault(line["host"], (ms(line["t"]), line["gpus"]))
    for run in runs.values():
        span = (run.since, run.until)
        held = run.gpus * overlap(span, window)
        back = run.gpus * overlap(_refund(run), window)
        parts["held"] += held
        parts["refunded"] += back
        parts["charged" if run.charged else "unallocated"] += held - back
        for host, gpus in run.hosts.items():
            steps[host] += [(run.since, 0, len(gpus)), (run.until, 0, -len(gpus))]
    for host, (since, size) in there.items():
        parts["capacity"] += size * overlap((since, window[1]), window)
        offer = hold = 0
        last = window[0]
        for at, more, taken in [*sorted(steps[host]), (window[1], 0, 0)]:
            length = overlap((last, at), window)
            parts["offered"] += offer * length
            parts["idle"] += max(0, offer - hold) * length
            parts["unavailable"] += (size - max(offer, hold)) * length if at > since else 0
            offer, hold, last = offer + more, hold + taken, max(last, at)
    return parts


def _spent(runs: Mapping[str, Run], window: Span, *, overhead: int) -> dict[str, Any]:
    """What stopping cost: work that was not saved, and starting again."""
    lost = {"preempted": 0, "drained": 0, "host_lost": 0}
    count = {"unallocated": 0, "allocated": 0, "drain": 0, "host_lost": 0}
    restarts = 0
    for run in runs.values():
        begins = min(run.until, run.since + overhead) if run.resumes else run.since
        restarts += run.gpus * overlap((run.since, begins), window)
        if not run.ended or not window[0] < run.until < window[1] or run.cause not in lost:
            continue
        saved = begins
        if run.job["resumable"] and run.checkpoint is not None:
            saved = max(begins, run.checkpoint)
        lost[run.cause] += run.gpus * overlap((saved, run.until), window)
        by = {"drained": "drain", "host_lost": "host_lost"}.get(
            run.cause, "allocated" if run.charged else "unallocated"
        )
        count[by] += 1
    hosts_lost = count.pop("host_lost")
    return {
        "restarts": restarts,
        "preempted_lost": lost["preempted"] + lost["drained"],
        "host_lost": lost["host_lost"],
        "hosts_lost": hosts_lost,
        "preemptions": {"total": sum(count.values()), **count},
    }


class Owed:
    """Owed and delivered of every leaf, in pieces: hours, cut where a window or a tree begins or ends."""

    def __init__(self, lines: Iterable[Line], jobs: Mapping[str, Line], runs: Mapping[str, Run], window: Span) -> None:
        self.window = window
        ends = range(window[0] + 7 * DAY, window[1] + 1, DAY)
        self.windows = [(end - 7 * DAY, end) for end in ends] or [window]
        told = list(lines)
        trees = [(ms(line["t"]), line["shares"]) for line in told if line["type"] == "budget_tree"]
        edges = {edge for span in [window, *self.windows] for edge in span} | {at for at, _ in trees if at < window[1]}
        self.cuts = sorted({*range(0, window[1], HOUR), *edges, window[1]})
        self.demand: dict[str, list[int]] = defaultdict(lambda: [0] * len(self.cuts))
        self.got: dict[str, list[int]] = defaultdict(lambda: [0] * len(self.cuts))
        over = {line["job"]: ms(line["t"]) for line in told if line["type"] == "job_finished"}
        for name, job in jobs.items():
            if job["min_runtime_s"] > 0:
                gpus = job["replicas"] * job["gpus_per_replica"]
                self._spread(self.demand[job["budget"]], (ms(job["t"]), over.get(name, window[1])), gpus)
        for run in runs.values():
            if run.charged:
                self._spread(self.got[run.job["budget"]], (run.since, _refund(run)[0]), run.gpus)
        self.share = self._shares(trees, self._offered(told))

    def _spread(self, pieces: list[int], span: Span, rate: int) -> None:
        """Add a span to the pieces it touches."""
        first = max(0, bisect_right(self.cuts, span[0]) - 1)
        for index in range(first, bisect_left(self.cuts, span[1])):
            if index + 1 < len(self.cuts):
                pieces[index] += rate * overlap(span, (self.cuts[index], self.cuts[index + 1]))

    def _offered(self, lines: Iterable[Line]) -> list[int]:
        pieces = [0] * len(self.cuts)
        since: dict[str, tuple[int, int]] = {}
        for line in lines:
            if line["type"] == "capacity":
                at, gpus = since.get(line["host"], (0, 0))
                self._spread(pieces, (at, ms(line["t"])), gpus)
                since[line["host"]] = (ms(line["t"]), line["gpus"])
        for at, gpus in since.values():
            self._spread(pieces, (at, self.window[1]), gpus)
        return pieces

    def _shares(
        self, trees: Sequence[tuple[int, Mapping[str, float]]], offered: Sequence[int]
    ) -> dict[str, list[float]]:
        share: dict[str, list[float]] = {}
        for number, (at, tree) in enumerate(trees):
            until = trees[number + 1][0] if number + 1 < len(trees) else self.window[1]
            for path in tree:
                if any(other.startswith(path + "/") for other in tree):
                    continue
                fraction, above = 1.0, path
                while above:
                    fraction *= tree[above]
                    above = above.rpartition("/")[0]
                pieces = share.setdefault(path, [0.0] * len(self.cuts))
                for index, cut in enumerate(self.cuts):
                    if at <= cut < until:
                        pieces[index] += fraction * offered[index]
        return share

    def of(self, leaf: str, window: Span) -> tuple[float, int]:
        """Owed and delivered of a leaf in a window."""
        shares: dict[int, float] = defaultdict(float)
        wants: dict[int, int] = defaultdict(int)
        got = 0
        for index in range(bisect_left(self.cuts, window[0]), bisect_left(self.cuts, window[1])):
            hour = self.cuts[index] // HOUR
            shares[hour] += self.share[leaf][index]
            wants[hour] += self.demand[leaf][index]
            got += self.got[leaf][index]
        return sum(min(shares[hour], wants[hour]) for hour in shares), got

    def delivered(self) -> Figures:
        budgets: list[Figures] = []
        met, owed = 0.0, 0.0
        for leaf in sorted(self.share):
            due, got = self.of(leaf, self.window)
            met, owed = met + min(due, got), owed + due
            ratio = got / due if due else 1.0
            budgets.append(
                {"path": leaf, "owed_gpu_hours": due / HOUR, "delivered_gpu_hours": got / HOUR, "ratio": ratio}
            )
        ratios = [budget["ratio"] for budget in budgets]
        return {
            "ratio": met / owed if owed else 1.0,
            "worst": min([1.0, *ratios]),
            "at_least_95": sum(ratio >= 0.95 for ratio in ratios),
            "budgets": budgets,
        }

    def rolling(self) -> Figures:
        met, owed, worst = 0.0, 0.0, 1.0
        for window in self.windows:
            for leaf in sorted(self.share):
                due, got = self.of(leaf, window)
                met, owed = met + min(due, got), owed + due
                worst = min(worst, got / due) if due else worst
        return {"ratio": met / owed if owed else 1.0, "worst": worst}


def _waits(
    lines: Iterable[Line],
    jobs: Mapping[str, Line],
    runs: Mapping[str, Run],
    window: Span,
    *,
    kinds: Mapping[str, str] | None,
) -> Figures:
    """From submission to the first start."""
    sizes: dict[str, int] = {}
    for line in lines:
        if line["type"] in ("host", "capacity"):
            sizes[line["host"]] = max(line["gpus"], sizes.get(line["host"], 0))
    first: dict[str, int] = {}
    for run in runs.values():
        first.setdefault(run.job["job"], run.since)
    waits: dict[str, list[int]] = {"all": [], "debug": [], "largest": []}
    labels = {kind for kind in (kinds or {}).values() if kind} - set(waits)
    waits |= {kind: [] for kind in sorted(labels)}
    for name, job in jobs.items():
        at, gpus = ms(job["t"]), job["replicas"] * job["gpus_per_replica"]
        if not (window[0] <= at < window[1] and at <= window[1] - 2 * DAY):
            continue
        classes = ["all"]
        classes += ["debug"] * (gpus <= 8 and 0 < job["min_runtime_s"] <= 900)
        classes += ["largest"] * (gpus * 4 >= sum(sizes.values()))
        classes += [kind for kind in labels if (kinds or {}).get(name) == kind]
        for each in classes:
            waits[each].append(min(first.get(name, window[1]), window[1]) - at)
    return {name: _summary(sorted(found)) for name, found in waits.items()}


def _summary(waits: Sequence[int]) -> Figures:
    if not waits:
        return {"n": 0, "p50_s": None, "p90_s": None, "p99_s": None, "max_s": None}
    ranks = {f"p{percent}_s": waits[max(0, -(-percent * len(waits) // 100) - 1)] / 1000 for percent in (50, 90, 99)}
    return {"n": len(waits), **ranks, "max_s": waits[-1] / 1000}
