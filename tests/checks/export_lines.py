"""I1-I10 as far as `events.jsonl` shows them. Each finding is a line that begins with the invariant it breaks.

I6 cannot be seen in a log. Lines are in order of time; lines of one instant in the order of the log.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Line = Mapping[str, Any]
EARLY = ("preempted", "drained")
CAUSES = ("completed", "failed", "preempted", "drained", "host_lost", "cancelled")
FATAL = "disrupt_host_fatal"
ENOUGH = 200
"""Findings after which nobody reads on."""


class _Seen:
    """What the lines so far say."""

    def __init__(self, *, late_news: bool) -> None:
        self.late_news = late_news
        self.found: list[str] = []
        self.jobs: dict[str, Line] = {}
        self.finished: dict[str, Line] = {}
        self.active: dict[str, str] = {}
        """The run of each job that has one."""
        self.open: dict[str, str] = {}
        """Jobs whose run ended, until they are requeued or finished."""
        self.causes: dict[str, str] = {}
        """How each job's last run ended."""
        self.runs: dict[str, dict[str, Any]] = {}
        """Runs that hold GPUs: what is known of each."""
        self.ended: dict[str, float] = {}
        self.holders: dict[tuple[str, int], str] = {}
        self.sizes: dict[str, int] = {}
        self.offered: dict[str, int] = {}
        self.states: dict[str, str] = {}
        self.windows: dict[str, float] = {}
        self.asked: dict[str, Line] = {}
        self.promised: dict[str, dict[str, list[int]]] = {}
        """By job what its last reservation keeps for it (P8)."""
        self.cancelled: set[str] = set()
        self.gone: dict[str, dict[str, Any]] = {}
        """Where news may be late: what was known of runs that ended, by who may not have heard of it yet."""

    def say(self, finding: str) -> None:
        self.found.append(finding)


def broken_invariants(lines: Sequence[Line], *, late_news: bool = False) -> list[str]:
    """What is broken, in order of the lines.

    `late_news`: an end is told later than it was, as by real agents, so a run may be asked to end that just has ended.
    It must have been right to ask all the same. And a host's state that was decided on while the log was away is
    written when it is back, behind what others decided later: lines are in order of time, so what state a host was in
    when a run was given to it (I7) the log alone can say.
    """
    seen = _Seen(late_news=late_news)
    last = float("-inf")
    for line in lines:
        if line["t"] < last:
            seen.say(f"order: {line['type']} at {line['t']} comes after {last}")
        last = max(last, line["t"])
        look = _LOOK.get(line["type"])
        if look is not None:
            look(seen, line)
        if not late_news:
            seen.gone.clear()
        if len(seen.found) > ENOUGH:
            return seen.found
    for job, run in seen.open.items():
        seen.say(f"I4: {job} disappears after {run}")
    return seen.found


def _host(seen: _Seen, line: Line) -> None:
    seen.sizes[line["host"]] = line["gpus"]


def _capacity(seen: _Seen, line: Line) -> None:
    seen.offered[line["host"]] = line["gpus"]
    seen.sizes[line["host"]] = max(line["gpus"], seen.sizes.get(line["host"], 0))


def _host_state(seen: _Seen, line: Line) -> None:
    seen.states[line["host"]] = line["state"]
    seen.windows[line["host"]] = line.get("window", 0)


def _submitted(seen: _Seen, line: Line) -> None:
    if line["job"] in seen.jobs:
        seen.say(f"I4: {line['job']} is submitted twice")
    seen.jobs[line["job"]] = line


def _cancel(seen: _Seen, line: Line) -> None:
    seen.cancelled.add(line["job"])


def _assigned(seen: _Seen, line: Line) -> None:
    """A run gets its GPUs."""
    job, run = line["job"], line["run"]
    asked = seen.jobs.get(job)
    if asked is None or job in seen.finished or job in seen.active or job in seen.open:
        seen.say(f"I4: {run} begins although {job} is not queued")
    if run in seen.ended:
        seen.say(f"I4: {run} begins again")
    for host, gpus in line["hosts"].items():
        in_time = asked is not None and line["t"] + asked["min_runtime_s"] <= seen.windows.get(host, 0)
        healthy = seen.late_news or seen.states.get(host, "healthy") == "healthy"
        if not seen.offered.get(host) or not (healthy or in_time):
            seen.say(
                f"I7: {run} begins on {host}, which offers {seen.offered.get(host)} and is {seen.states.get(host)}"
            )
        for gpu in gpus:
            holder = seen.holders.get((host, gpu))
            if holder is not None:
                seen.say(f"I1: {host}/{gpu} is held by {holder} and given to {run}")
            if not 0 <= gpu < seen.sizes.get(host, 0):
                seen.say(f"I1: {run} holds {host}/{gpu}, which does not exist")
            seen.holders[host, gpu] = run
    if asked is not None:
        _whole(seen, line, asked)
    seen.active[job] = run
    at_risk = line.get("reason", {}).get("reason") == "start_at_risk"  # the baseline's B4: without protection
    until = line["t"] if at_risk else None
    seen.runs[run] = {"hosts": line["hosts"], "since": line["t"], "started": None, "until": until, "at_risk": at_risk}


def _whole(seen: _Seen, line: Line, asked: Line) -> None:
    size, gpus = asked["gpus_per_replica"], [len(set(held)) for held in line["hosts"].values()]
    if sum(gpus) != size * asked["replicas"] or any(held % size for held in gpus):
        seen.say(f"I2: {line['run']} holds {gpus} for {asked['replicas']} x {size}")


def _started(seen: _Seen, line: Line) -> None:
    run = line["run"]
    if run not in seen.runs:
        _assigned(seen, line)  # a log without assignments
    known = seen.runs[run]
    if known["started"] is not None:
        seen.say(f"I2: {run} starts twice")
    if {host: sorted(gpus) for host, gpus in line["hosts"].items()} != {
        host: sorted(gpus) for host, gpus in known["hosts"].items()
    }:
        seen.say(f"I2: {run} starts on other GPUs than it was given")
    asked = seen.jobs.get(line["job"])
    promised = 0 if asked is None or known["at_risk"] else asked["min_runtime_s"]
    if asked is not None and abs(line["protected_until"] - line["t"] - promised) > 1e-6:
        seen.say(f"I3: {run} is protected until {line['protected_until']}, started at {line['t']}")
    if asked is not None and line["charged"] != (asked["min_runtime_s"] > 0):
        seen.say(f"I5: {run} is charged: {line['charged']}, with {asked['min_runtime_s']} s of protection")
    known.update(started=line["t"], until=line["protected_until"], charged=line["charged"])


def _asked(seen: _Seen, line: Line) -> None:
    """Somebody wants a run to end."""
    run, reason = line["run"], line["reason"]
    seen.asked[run] = line
    known = seen.runs.get(run) or seen.gone.get(run)
    victim, asker = seen.jobs.get(line["job"]), seen.jobs.get(line["by"])
    if known is None or victim is None:
        seen.say(f"I4: {run} is to end and is not there")
        return
    allocated = victim["min_runtime_s"] > 0
    if allocated and reason["reason"] != FATAL and (known["until"] is None or line["t"] < known["until"]):
        seen.say(f"I3: {run} is to end at {line['t']}, protected until {known['until']}")
    if asker is None:
        if line["by"] not in seen.sizes:
            seen.say(f"I10: {run} is to end for {line['by']}, which is neither a job nor a host")
        return
    if not asker["min_runtime_s"] > 0:
        seen.say(f"I8: unallocated {line['by']} displaces {run}")
    elif allocated:
        _right(seen, line, asker, victim, known)


def _reserved(seen: _Seen, line: Line) -> None:
    seen.promised[line["job"]] = line["hosts"]


def _right(seen: _Seen, line: Line, asker: Line, victim: Line, known: Mapping[str, Any]) -> None:
    """I9: by which right an allocated job displaces an allocated run."""
    numbers = line["reason"]["numbers"]
    if line["reason"]["reason"] == "disrupt_at_risk":
        if not known["at_risk"]:
            seen.say(f"I9: {line['by']} displaces {line['run']}, which is not at risk")
    elif line["reason"]["reason"] == "disrupt_promised":
        promised, held = seen.promised.get(line["by"], {}), known["hosts"]
        if not any(set(promised.get(host, ())) & set(gpus) for host, gpus in held.items()):
            seen.say(f"I9: {line['run']} holds nothing that was promised to {line['by']}")
    elif asker["budget"] == victim["budget"]:
        if asker["priority"] <= victim["priority"]:
            seen.say(f"I9: {line['by']} displaces {line['run']} of its own budget without a higher priority")
    elif not {"ratio", "victim_ratio"} <= numbers.keys():
        seen.say(f"I10: {line['by']} displaces {line['run']} of another budget without the ratios of both")
    elif not float(numbers["ratio"]) + float(numbers.get("margin", 0)) < float(numbers["victim_ratio"]):
        seen.say(f"I9: {line['by']} at {numbers['ratio']} displaces {line['run']} at {numbers['victim_ratio']}")


def _ended(seen: _Seen, line: Line) -> None:
    job, run = line["job"], line["run"]
    known = seen.runs.pop(run, None)
    if known is None or seen.active.pop(job, None) != run:
        seen.say(f"I4: {run} ends and is not there")
        return
    if line["type"] == "run_ended" and known["started"] is None:
        seen.say(f"I2: {run} ends and never started")
        return
    for host, gpus in known["hosts"].items():
        for gpu in gpus:
            if seen.holders.get((host, gpu)) == run:
                del seen.holders[host, gpu]
    seen.gone[run] = known
    seen.ended[run], seen.open[job], seen.causes[job] = line["t"], run, line["cause"]
    _why(seen, line, known)
    if line["type"] == "run_ended":
        _books(seen, line, known)


def _why(seen: _Seen, line: Line, known: Mapping[str, Any]) -> None:
    """I10 and I3 of an end."""
    run, cause, reason = line["run"], line["cause"], line["reason"]
    if cause not in CAUSES or not reason.get("rule") or not reason.get("reason") or not reason.get("numbers"):
        seen.say(f"I10: {run} ends as {cause} by {reason}")
    if cause in EARLY:
        asked = seen.asked.get(run)
        if asked is None or asked["by"] != line["by"]:
            seen.say(f"I10: {run} is {cause} by {line['by']}, which did not ask for it")
        if cause == "preempted" and line["by"] not in seen.jobs:
            seen.say(f"I10: {run} is preempted by {line['by']}, which is no job")
        if known.get("charged") and reason.get("reason") != FATAL and line["t"] < known["until"]:
            seen.say(f"I3: {run} is {cause} at {line['t']}, protected until {known['until']}")
    if cause == "host_lost" and line["by"] not in seen.sizes:
        seen.say(f"I10: {run} loses {line['by']}, which is no host")
    if cause == "cancelled" and line["job"] not in seen.cancelled:
        seen.say(f"I10: {run} is cancelled, and nobody asked for it")


def _books(seen: _Seen, line: Line, known: Mapping[str, Any]) -> None:
    """I5 of one run: charged + refunded = what it held; only the loss of a host gives anything back."""
    run, back, cost = line["run"], line["refunded_gpu_s"], line.get("charged_gpu_s")
    held = sum(len(gpus) for gpus in known["hosts"].values()) * (line["t"] - known["started"])
    if not 0 <= back <= held + 1e-6 or (back and line["cause"] != "host_lost"):
        seen.say(f"I5: {run} ended as {line['cause']} and gets {back} of {held} GPU-s back")
    if cost is not None and (not known["charged"] or abs(cost + back - held) > 1e-6):
        seen.say(f"I5: {run} is charged {cost} + {back} back, charged: {known['charged']}, and held {held} GPU-s")


def _requeued(seen: _Seen, line: Line) -> None:
    if seen.open.pop(line["job"], None) != line["run"]:
        seen.say(f"I4: {line['job']} is requeued, and its run did not end")


def _finished(seen: _Seen, line: Line) -> None:
    job, state = line["job"], line["state"]
    if job not in seen.jobs or job in seen.finished:
        seen.say(f"I4: {job} finishes twice, or was never submitted")
    if job in seen.active:
        seen.say(f"I4: {job} finishes while {seen.active[job]} is there")
    cause = seen.causes.get(job) if job in seen.open else None
    wanted = {"completed": ("completed",), "failed": ("failed",), "preempted": EARLY}.get(state)
    if wanted is not None and cause not in wanted:
        seen.say(f"I10: {job} finishes as {state}, and its run ended as {cause}")
    if state == "cancelled" and job not in seen.cancelled:
        seen.say(f"I10: {job} is cancelled, and nobody asked for it")
    seen.open.pop(job, None)
    seen.finished[job] = line


_LOOK: dict[str, Callable[[_Seen, Line], None]] = {
    "host": _host,
    "capacity": _capacity,
    "host_state": _host_state,
    "job_submitted": _submitted,
    "cancel_requested": _cancel,
    "run_assigned": _assigned,
    "run_started": _started,
    "preemption_requested": _asked,
    "reservation_made": _reserved,
    "run_ended": _ended,
    "run_not_started": _ended,
    "job_requeued": _requeued,
    "job_finished": _finished,
}
