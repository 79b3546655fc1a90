"""`tenure queue --fragmentation`: how large a gang could be placed, now and when protections end."""

from typing import TYPE_CHECKING

from tenure.cli import words
from tenure.cli.terminal import Cell, Column, Table, cell, clean, print_table, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.v1 import hosts_pb2

EXPIRIES_SHOWN = 8
"""So many ends of protections are shown of each pool; all with --json."""
LEGEND = (
    "A gang needs whole replicas: HOSTS are whole ones, x4 replicas of four GPUs. P5: with what is past its protection "
    "already,\nwhich gives way to some budgets only (P5). What is unallocated gives way at once and counts from now on."
)


def show(answer: "hosts_pb2.FragmentationResponse") -> None:
    """A paragraph and a table for each pool."""
    for pool in answer.pools:
        say(Cell(f"{clean(pool.cluster)} {clean(pool.gpu_type)}", "bold"), f": {summary(pool)}")
        print_table(table(pool.prospects[: EXPIRIES_SHOWN + 1], now=answer.now_ms), empty="")
        left = len(pool.prospects) - EXPIRIES_SHOWN - 1
        if left > 0:
            until = words.instant(pool.prospects[-1].at_ms, now=answer.now_ms)
            print(f"and {left} more until {until}; all of them with --json")
        print()
    print(LEGEND if answer.pools else "No host takes runs now.")


def summary(pool: "hosts_pb2.PoolFragmentation") -> str:
    """The free GPUs and where they are, then what the others do."""
    free = f"{pool.gpus_free} of {pool.gpus} GPUs free on {pool.hosts_with_gpus_free} of {pool.hosts} hosts"
    others = [
        (pool.gpus_giving_way, "that give way at once"),
        (pool.gpus_in_escrow, "in escrow"),
        (pool.gpus_past_protection, "past their protection"),
        (pool.gpus_reserved, "reserved for gangs until their latest start"),
    ]
    told = "".join(f", {gpus} {what}" for gpus, what in others if gpus)
    return f"{free}, largest hole {pool.largest_hole}, {pool.hosts_wholly_free} hosts wholly free{told}"


def table(prospects: "Sequence[hosts_pb2.Prospect]", *, now: int) -> Table:
    """A row for each instant. Replicas of one GPU are as many as there are GPUs."""
    sizes = [gang.gpus_per_replica for gang in prospects[0].placeable.largest if gang.gpus_per_replica > 1]
    titles = ["GPUS", "HOSTS", *(f"x{size}" for size in sizes)]
    columns = [
        Column(title="FROM"),
        *(Column(title=title, right=True) for title in titles),
        *(Column(title=f"P5 {title}", right=True, drop=1) for title in titles),
    ]
    return Table(columns=columns, rows=[_row(prospect, now=now) for prospect in prospects])


def _row(prospect: "hosts_pb2.Prospect", *, now: int) -> list[Cell]:
    when = "now" if prospect.at_ms <= now else words.instant(prospect.at_ms, now=now)
    return [cell(when), *_figures(prospect.placeable), *_figures(prospect.if_p5_gives)]


def _figures(placeable: "hosts_pb2.Placeable") -> list[Cell]:
    replicas = [gang.replicas for gang in placeable.largest if gang.gpus_per_replica > 1]
    return [cell(number) for number in (placeable.gpus, placeable.whole_hosts, *replicas)]
