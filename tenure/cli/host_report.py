"""`tenure host report`: the numbers of the hosts."""

from typing import TYPE_CHECKING

from tenure.cli import words
from tenure.cli.terminal import Cell, Column, Table, cell, print_table

if TYPE_CHECKING:
    from tenure.v1 import hosts_pb2

CAUSES = (
    Column(title="CAUSE"),
    Column(title="AUTOMATIC", right=True),
    Column(title="HUMAN", right=True),
    Column(title="OPEN", right=True),
    Column(title="REFUNDED GPU-H", right=True, drop=1),
)
OPEN = (
    Column(title="OPEN INCIDENT"),
    Column(title="STATE"),
    Column(title="SINCE", right=True),
    Column(title="CAUSE"),
    Column(title="COMMENT", drop=1, least=10),
)
BY_A_PERSON = (
    Column(title="ENDED BY A PERSON"),
    Column(title="WHO"),
    Column(title="LASTED", right=True),
    Column(title="CAUSE"),
    Column(title="WHY", drop=1, least=10),
)
HOUR_MS = 3_600_000


def show(answer: "hosts_pb2.HostReportResponse") -> None:
    """A few lines, the causes, what is open, and which incidents needed a person: who ended them, and why."""
    availability = answer.availability if answer.HasField("availability") else None
    automatic = answer.automatic_share if answer.HasField("automatic_share") else None
    print(f"{answer.hosts} hosts, {answer.gpus} GPUs: availability {_percent(availability)}")
    out, refunded = _hours(answer.out_gpu_ms), _hours(answer.refunded_gpu_ms)
    print(f"lost to hosts out of service {out} GPU-hours, refunded {refunded}")
    print(f"ended without a person: {_percent(automatic)} of the unplanned incidents")
    for name, spread in (("detect", answer.detect), ("drain", answer.drain), ("repair", answer.repair)):
        print(f"time to {name}: {_spread(spread)}")
    rows = [
        [
            cell(one.reason),
            cell(one.automatic),
            cell(one.human),
            cell(one.still_open),
            cell(_hours(one.refunded_gpu_ms)),
        ]
        for one in answer.causes
    ]
    print_table(Table(columns=CAUSES, rows=rows), empty="No incidents.")
    still = [_open(one, now=answer.until_ms) for one in answer.incidents if one.ending == "open"]
    if still:
        print_table(Table(columns=OPEN, rows=still), empty="")
    by_hand = [_ended(one) for one in answer.incidents if one.ending == "human"]
    if by_hand:
        print_table(Table(columns=BY_A_PERSON, rows=by_hand), empty="")


def _open(one: "hosts_pb2.Incident", *, now: int) -> list[Cell]:
    since = f"{words.age(now - one.began_ms)} ago"
    return [cell(one.incident), cell(one.state), cell(since), cell(one.reason), cell(one.comment)]


def _ended(one: "hosts_pb2.Incident") -> list[Cell]:
    lasted = words.age(one.ended_ms - one.began_ms)
    return [cell(one.incident), cell(one.by), cell(lasted), cell(one.reason), cell(one.comment)]


def _percent(part: float | None) -> str:
    return "unknown (nothing to count)" if part is None else f"{100 * part:.2f} %"


def _hours(gpu_ms: int) -> str:
    return f"{gpu_ms / HOUR_MS:.1f}"


def _spread(spread: "hosts_pb2.Spread") -> str:
    if not spread.count:
        return "none"
    return f"p50 {words.age(spread.p50_ms)}, p90 {words.age(spread.p90_ms)}, longest {words.age(spread.longest_ms)}"
