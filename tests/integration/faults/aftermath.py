"""What must hold after a fault, of what is left: log, export, books, database, and the marks of processes."""

import subprocess
from collections import Counter
from collections.abc import Sequence

from tenure.domain.host import HostState
from tenure.domain.reasons import EndCause
from tenure.events.budgets import JobRejected, RunCharged
from tenure.events.fact import Fact, Recorded
from tenure.events.hosts import HostStateChanged
from tenure.events.intake import JobSubmitted
from tenure.events.placing import JobFinished, RunAssigned, RunEnded, RunStarted
from tenure.events.reports import Heartbeat, HostRegistered, ReplicasExited
from tests.checks.accounts import Accounts, check_accounts
from tests.checks.export import read_lines
from tests.checks.export_lines import broken_invariants
from tests.checks.invariants import check_log, check_segments
from tests.e2e.roles import Roles
from tests.e2e.system import TENURE
from tests.integration.faults.lab import Lab
from tests.integration.faults.load import Load

LIVE = ("submitted", "queued", "starting", "running", "stopping")
PATIENCE_S = 60.0


def check_aftermath(lab: Lab, *loads: Load, lost_hosts: bool = False) -> list[Recorded]:
    """Wait for the end of all jobs; then assert everything. `lost_hosts`: whether a host may have been lost.

    Returns the log.
    """
    roles = lab.roles
    recorded = settled(lab)
    facts = [entry.fact for entry in recorded]
    check_log(recorded)
    check_segments(facts, complete=True)
    found = check_accounts(facts)
    check_export(roles)
    for load in loads:
        assert not lost(facts, load), f"acknowledged and lost: {lost(facts, load)}"
        assert not doubled(facts, load), f"there twice: {doubled(facts, load)}"
        assert not contracts_broken(facts, load), f"contracts broken: {contracts_broken(facts, load)}"
    assert lost_hosts or not hosts_lost(facts), f"hosts were lost: {hosts_lost(facts)}"
    check_database(roles, recorded, found)
    return recorded


def settled(lab: Lab) -> list[Recorded]:
    """The log when nothing runs or waits, every book is closed, and every host has reported since."""

    def nothing_lives() -> bool | None:
        return True if not lab.client.jobs(states=LIVE, limit=1).jobs else None

    def all_is_told() -> list[Recorded] | None:
        recorded = lab.roles.recorded()
        facts = [entry.fact for entry in recorded]
        closed = {fact.run for fact in facts if isinstance(fact, RunCharged)}
        started = {fact.run for fact in facts if isinstance(fact, RunStarted) and fact.charged}
        last_exit = max((fact.at for fact in facts if isinstance(fact, ReplicasExited)), default=0)
        heard = {on.host for fact in facts if isinstance(fact, Heartbeat) and fact.at > last_exit for on in fact.hosts}
        hosts = {spec.host for fact in facts if isinstance(fact, HostRegistered) for spec in fact.hosts}
        return recorded if started <= closed and hosts <= heard else None

    lab.roles.until(nothing_lives, what="the end of all jobs", timeout_s=PATIENCE_S)
    return lab.roles.until(all_is_told, what="closed books and heartbeats", timeout_s=PATIENCE_S)


def check_export(roles: Roles) -> None:
    """`tenure log export` passes the checker of exports.

    Its lines tell of gangs, not of replicas: what a gang held is checked from the log alone.
    """
    file = roles.folder / "events.jsonl"
    command = [str(TENURE), "log", "export", "--nats", roles.nats.url, "--output", str(file)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    lines = read_lines(file)
    gangs = {line["job"] for line in lines if line["type"] == "job_submitted" and line["replicas"] > 1}
    broken = broken_invariants(lines, late_news=True)
    found = [said for said in broken if "GPU-s" not in said or not any(job in said for job in gangs)]
    assert not found, f"the export: {found[:5]}"


def lost(facts: Sequence[Fact], load: Load) -> list[str]:
    """Acknowledged submissions that the log does not have, or that never came to an end."""
    by_key = _submitted(facts)
    over = {fact.job for fact in facts if isinstance(fact, JobFinished | JobRejected)}
    return [
        f"{job} ({key})" for key, job in load.acknowledged.items() if job not in by_key.get(key, ()) or job not in over
    ]


def doubled(facts: Sequence[Fact], load: Load) -> list[str]:
    """What was there twice: submissions under one key, runs in the log, ranks of runs by the marks of their processes.

    A process that left a mark although its run was never given to its host counts, too.
    """
    submitted = [f"{key}: {jobs}" for key, jobs in _submitted(facts).items() if len(jobs) > 1]
    assigned = Counter(fact.run for fact in facts if isinstance(fact, RunAssigned))
    strange = set(load.marked("began")) - assigned.keys()
    return [*submitted, *(run for run, times in assigned.items() if times > 1), *load.doubled, *sorted(strange)]


def contracts_broken(facts: Sequence[Fact], load: Load) -> list[str]:
    """Runs that were not given what was promised: ended while protected, failed although their work does not fail,
    completed although a rank of theirs did not come to its end by itself. A host that was lost breaks none (P2).
    """
    protected = {fact.run: fact.protected_until for fact in facts if isinstance(fact, RunStarted) and fact.charged}
    placed = {fact.run: fact for fact in facts if isinstance(fact, RunAssigned)}
    jobs, ended = set(load.acknowledged.values()), load.marked("ended")
    found: list[str] = []
    for fact in facts:
        if not isinstance(fact, RunEnded):
            continue
        cause, ranks = fact.cause_of_end, list(range(len(placed[fact.run].placement)))
        early = cause in (EndCause.PREEMPTED, EndCause.DRAINED) and fact.at < protected.get(fact.run, 0)
        hollow = cause is EndCause.COMPLETED and fact.job in jobs and ended.get(fact.run) != ranks
        if early or hollow or cause is EndCause.FAILED:
            found.append(f"{fact.run} {cause} at {fact.at}: {fact.why}")
    return found


def hosts_lost(facts: Sequence[Fact]) -> list[str]:
    """Hosts that were given up."""
    return [fact.host for fact in facts if isinstance(fact, HostStateChanged) and fact.state is HostState.LOST]


def _submitted(facts: Sequence[Fact]) -> dict[str, list[str]]:
    """Jobs by their idempotency key."""
    by_key: dict[str, list[str]] = {}
    for fact in facts:
        if isinstance(fact, JobSubmitted):
            by_key.setdefault(fact.idempotency_key or fact.job, []).append(fact.job)
    return by_key


def check_database(roles: Roles, recorded: Sequence[Recorded], told: Accounts) -> None:
    """ClickHouse has every fact of the log exactly once, and the same occupancy, row by row and by the hour."""
    client = roles.database.client()
    question = "SELECT count(), uniqExact(position), uniqExact(id) FROM events WHERE position <= {head:UInt64}"
    sums = "SELECT kind, charged, sum(gpu_ms) FROM {table:Identifier} GROUP BY kind, charged HAVING sum(gpu_ms) != 0"
    wanted = {
        ("segment", True): told.charged + told.refunded,
        ("segment", False): told.unallocated,
        ("refund", True): -told.refunded,
    }
    wanted = {key: gpu_ms for key, gpu_ms in wanted.items() if gpu_ms}
    head, facts = recorded[-1].position, len(recorded)
    found: dict[str, object] = {}

    def all_there() -> bool | None:
        """A batch comes to `events` before it comes to the tables that are derived from it."""
        found["events"] = tuple(client.query(question, {"head": head}).result_rows[0])
        for table in ("occupancy", "occupancy_hourly"):
            rows = client.query(sums, {"table": table}).result_rows
            found[table] = {(kind, bool(charged)): int(gpu_ms) for kind, charged, gpu_ms in rows}
        return True if found == {"events": (facts,) * 3, "occupancy": wanted, "occupancy_hourly": wanted} else None

    try:
        roles.until(all_there, what="the same in ClickHouse", timeout_s=PATIENCE_S)
    except AssertionError as late:
        raise AssertionError(f"I5: the database has {found}, the log {facts} facts and {wanted}") from late
    finally:
        client.close()
