"""The head of `tenure why JOB`: the answer in sentences, then what stands before the job as tables with the numbers."""

from typing import TYPE_CHECKING

from tenure.cli import words
from tenure.cli.terminal import Cell, Column, Table, cell, clean, print_table, say

if TYPE_CHECKING:
    from tenure.v1 import jobs_pb2

JOB_COLUMNS = (
    Column(title="RANK", right=True),
    Column(title="JOB", least=12),
    Column(title="USER", drop=3, least=6),
    Column(title="BUDGET", drop=2, least=10),
    Column(title="GPUS", right=True),
    Column(title="WHERE THEY PART", least=18),
    Column(title="ITS OWN SIDE", drop=1, least=18),
    Column(title="BECAUSE", least=12),
)
RUN_COLUMNS = (
    Column(title="RUN", least=12),
    Column(title="USER", drop=3, least=6),
    Column(title="BUDGET", drop=2, least=10),
    Column(title="GPUS", right=True),
    Column(title="PROTECTED UNTIL"),
    Column(title="WHERE THEY PART", least=18),
    Column(title="ITS OWN SIDE", drop=1, least=18),
    Column(title="KEPT", least=12),
)
ROOM_COLUMNS = (
    Column(title="CLUSTER"),
    Column(title="TYPE"),
    Column(title="HOSTS", right=True),
    Column(title="GPUS", right=True),
    Column(title="FREE", right=True),
    Column(title="ON HOSTS", right=True),
    Column(title="LARGEST HOLE", right=True),
    Column(title="REPLICAS FIT", right=True),
    Column(title="IN ESCROW", right=True, drop=1),
    Column(title="RESERVED", right=True, drop=2),
)
PROMISE_COLUMNS = (
    Column(title="JOB", least=12),
    Column(title="USER", drop=2, least=6),
    Column(title="BUDGET", drop=1, least=10),
    Column(title="GPUS", right=True),
    Column(title="HOSTS", right=True),
    Column(title="LATEST START"),
)
HOST_COLUMNS = (
    Column(title="HOST"),
    Column(title="STATE"),
    Column(title="GPUS", right=True),
    Column(title="SINCE"),
    Column(title="COMMENT", least=16),
)
CHANGE_COLUMNS = (
    Column(title="CHANGE", least=20),
    Column(title="IT WOULD START"),
)
STANDING_COLUMNS = (
    Column(title="BUDGET", least=10),
    Column(title="RATIO", right=True),
    Column(title="AHEAD", right=True),
    Column(title="USED", right=True),
    Column(title="ENTITLED", right=True),
)


def show(answer: "jobs_pb2.ExplainJobResponse") -> None:
    """What is known of a job that waits, or of how it ended. Nothing where an older gateway answers."""
    for sentence in answer.answer:
        say(Cell(clean(sentence)))
    if answer.HasField("before"):
        _show_before(answer.before)


def show_forecast(answer: "jobs_pb2.ExplainJobResponse") -> None:
    """When it will start, and what would change that, or why nobody can tell."""
    now = words.now_ms()
    if answer.HasField("forecast"):
        say(Cell("\nFORECAST", "bold"))
        say(Cell(_forecast(answer.forecast, now=now)))
    changes = [_change_row(one, now=now) for one in answer.alternatives]
    _section("WHAT WOULD CHANGE IT", CHANGE_COLUMNS, changes, len(changes))
    if answer.alternatives_trouble:
        say(Cell(f"\nWhat would change it could not be looked at: {clean(answer.alternatives_trouble)}.", "dim"))


def _show_before(before: "jobs_pb2.StandsBefore") -> None:
    now = words.now_ms()
    jobs = [_job_row(one) for one in before.jobs]
    runs = [_run_row(one, now=now) for one in before.runs]
    promises = [_promise_row(one, now=now) for one in before.reservations]
    hosts = [_host_row(one, now=now) for one in before.hosts]
    _section("JOBS BEFORE IT", JOB_COLUMNS, jobs, before.jobs_count)
    _section("RUNS ON HOSTS IT COULD USE", RUN_COLUMNS, runs, before.runs_count)
    _section("PROMISED TO OTHERS", PROMISE_COLUMNS, promises, before.reservations_count)
    _section("ROOM", ROOM_COLUMNS, [_room_row(one) for one in before.room], len(before.room))
    _section("HOSTS THAT TAKE NO RUNS", HOST_COLUMNS, hosts, before.hosts_count)
    _section("ITS BUDGETS", STANDING_COLUMNS, [_standing_row(one) for one in before.standing], len(before.standing))


def _section(title: str, columns: tuple[Column, ...], rows: list[list[Cell]], count: int) -> None:
    """A titled table, with how many there are beyond it; nothing where there is none."""
    if not rows:
        return
    more = f" (the first {len(rows)} of {count})" if count > len(rows) else ""
    say(Cell(f"\n{title}", "bold"), Cell(more, "dim"))
    print_table(Table(columns=columns, rows=rows), empty="")


def _forecast(value: "jobs_pb2.StartForecast", *, now: int) -> str:
    """The simulated start in a sentence; what is later than was looked is left out."""
    half, nine = (words.instant(at, now=now) if at else "" for at in (value.p50_at_ms, value.p90_at_ms))
    if not half:
        return f"Simulated forward, it starts later than was looked in most futures: {clean(value.basis)}."
    by = f", and by {nine} in nine of ten" if nine else ""
    return f"Simulated forward, it has started by {half} in half of the futures{by}: {clean(value.basis)}."


def _change_row(one: "jobs_pb2.Alternative", *, now: int) -> list[Cell]:
    when = {"now": "now", "at": words.instant(one.start_ms, now=now)}.get(one.outcome, "no sooner")
    return [cell(one.change), cell(when, "green" if one.outcome == "now" else "")]


def side(value: "jobs_pb2.BudgetSide") -> str:
    """`chem 0.62, 38.4 h behind`: never a ratio without the hours."""
    if not value.HasField("ratio"):
        return f"{value.budget} without a share"
    return f"{value.budget} {value.ratio:.2f}, {words.ahead(value.ahead_gpu_ms)}"


def _job_row(one: "jobs_pb2.JobBefore") -> list[Cell]:
    same = one.sides.same_budget
    return [
        cell(one.rank or None),
        cell(f"{one.job_id} {one.name}".rstrip()),
        cell(one.user),
        cell(one.budget),
        cell(one.gpus),
        cell("same budget" if same else side(one.sides.other)),
        cell(None if same else side(one.sides.own)),
        cell(one.because.replace("_", " ")),
    ]


def _run_row(one: "jobs_pb2.RunBefore", *, now: int) -> list[Cell]:
    until = words.instant(one.protected_until_ms, now=now) if one.protected_until_ms else None
    same = one.sides.same_budget
    compared = one.HasField("sides")
    kept = words.reason(one.kept) if one.kept else "gives way"
    if one.kept and one.drained_at_ms:
        kept = f"drain: until {words.instant(one.drained_at_ms, now=now)}"
    return [
        cell(f"{one.run_id} {one.name}".rstrip()),
        cell(one.user),
        cell(one.budget),
        cell(one.gpus),
        cell(until),
        cell("same budget" if same else side(one.sides.other) if compared else None),
        cell(side(one.sides.own) if compared and not same else None),
        cell(kept, "" if one.kept else "green"),
    ]


def _promise_row(one: "jobs_pb2.ReservationBefore", *, now: int) -> list[Cell]:
    return [
        cell(f"{one.job_id} {one.name}".rstrip()),
        cell(one.user),
        cell(one.budget),
        cell(one.gpus),
        cell(one.hosts),
        cell(words.instant(one.latest_start_ms, now=now)),
    ]


def _room_row(one: "jobs_pb2.RoomBefore") -> list[Cell]:
    numbers = (one.hosts, one.gpus, one.gpus_free, one.hosts_with_gpus_free, one.largest_hole, one.replicas_fit)
    return [
        cell(one.cluster),
        cell(one.gpu_type),
        *map(cell, numbers),
        cell(one.gpus_in_escrow),
        cell(one.gpus_reserved),
    ]


def _host_row(one: "jobs_pb2.HostBefore", *, now: int) -> list[Cell]:
    return [
        cell(one.host),
        cell(one.state),
        cell(one.gpus),
        cell(words.clock(one.since_ms, now=now)),
        cell(one.comment),
    ]


def _standing_row(one: "jobs_pb2.BudgetSide") -> list[Cell]:
    return [
        cell(one.budget),
        cell(f"{one.ratio:.2f}" if one.HasField("ratio") else None),
        cell(words.ahead(one.ahead_gpu_ms), "green" if one.ahead_gpu_ms < 0 else "yellow"),
        cell(words.hours(one.used_gpu_ms)),
        cell(words.hours(one.entitlement_gpu_ms)),
    ]
