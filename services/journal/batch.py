"""Facts to rows, and facts to batches. Pure: the same facts always give the same rows.

What a batch writes besides `events` follows from its facts alone, so that it can be written again after a crash.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from services.journal.tables import CAPACITY, DEMAND, EVENTS, OCCUPANCY, SHARES, Row, Table
from tenure.domain.ids import Position
from tenure.domain.units import HOUR, GpuMillis, Millis
from tenure.events.budgets import BudgetTreeChanged, JobAdmitted, RunCharged
from tenure.events.catalogue import Kind
from tenure.events.fact import Recorded
from tenure.events.hosts import CapacityChanged
from tenure.events.placing import JobFinished
from tenure.events.reports import Heartbeat
from tenure.log.codec import encode, kind_name

FACTS_MAX = 5_000
BYTES_MAX = 16 << 20
DERIVED_MAX = 100_000
"""A batch is closed at so many facts, bytes of payload, or rows of other tables (the last fact may go beyond)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert:
    """Rows of one table that are written as one block. `token` is the same whenever the same batch is written."""

    table: Table
    token: str
    rows: Sequence[Row]


@dataclass(slots=True, kw_only=True)
class Batch:
    """Consecutive facts of one month. Identified by its first position."""

    first: Position
    last: Position
    month: str
    events: list[Row] = field(default_factory=list)
    derived: dict[tuple[Table, str], list[Row]] = field(default_factory=dict)
    """Rows of the other tables, by table and by the month of their partition."""
    payload_bytes: int = 0
    derived_rows: int = 0

    @property
    def is_full(self) -> bool:
        """Whether no further fact should join it."""
        return len(self.events) >= FACTS_MAX or self.payload_bytes >= BYTES_MAX or self.derived_rows >= DERIVED_MAX

    def takes(self, recorded: Recorded) -> bool:
        """Whether the fact can join: a batch is one block, and a block is whole inside one month only."""
        return not self.is_full and month_of(recorded.fact.at) == self.month

    def add(self, recorded: Recorded) -> None:
        """Add the next fact."""
        payload = encode(recorded.fact)
        self.events.append(event_row(recorded, payload=payload.decode(), batch=self.first))
        self.last = recorded.position
        self.payload_bytes += len(payload)
        self.derive(recorded)

    def derive(self, recorded: Recorded) -> None:
        """Add what the fact means to the other tables."""
        for table, month, row in derived_rows(recorded):
            self.derived.setdefault((table, month), []).append(row)
            self.derived_rows += 1

    def event_insert(self) -> Insert:
        """What is written first: it settles the batch's boundaries."""
        return Insert(table=EVENTS, token=f"events-{self.first}", rows=self.events)

    def derived_inserts(self) -> Iterator[Insert]:
        """What is written after it, and again after a crash."""
        for (table, month), rows in self.derived.items():
            yield Insert(table=table, token=f"{table.name}-{self.first}-{month}", rows=rows)


def begin(recorded: Recorded) -> Batch:
    """A batch of one fact."""
    batch = Batch(first=recorded.position, last=recorded.position, month=month_of(recorded.fact.at))
    batch.add(recorded)
    return batch


def rebuilt(facts: Iterable[Recorded], *, first: Position) -> Batch:
    """What a batch that is in `events` already means to the other tables; its own rows are left out."""
    batch = Batch(first=first, last=first, month="")
    for recorded in facts:
        batch.derive(recorded)
        batch.last = recorded.position
    return batch


def month_of(at: Millis) -> str:
    """The month of an instant (UTC), as partitions are cut: `202607`."""
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y%m")


def event_row(recorded: Recorded, *, payload: str, batch: Position) -> Row:
    """The row of one fact, with the names of what it speaks of."""
    fact = recorded.fact
    spec = getattr(fact, "spec", None)
    budget = getattr(fact, "budget", None) or (spec.budget if spec is not None else "")
    return (
        recorded.position,
        fact.at,
        fact.cluster,
        kind_name(fact),
        fact.id,
        getattr(fact, "job", ""),
        getattr(fact, "run", ""),
        getattr(fact, "host", ""),
        budget,
        getattr(fact, "by", None) or "",
        fact.cause or "",
        payload,
        batch,
    )


def derived_rows(recorded: Recorded) -> Iterator[tuple[Table, str, Row]]:
    """The rows of the other tables that follow from a fact, each with the month of its partition."""
    derive = _DERIVE.get(type(recorded.fact))
    if derive is not None:
        yield from derive(recorded.position, recorded.fact)


def _heartbeat(position: Position, fact: Heartbeat) -> Iterator[tuple[Table, str, Row]]:
    for beat in fact.hosts:
        for held in beat.segments:
            for since, until in _hours(held.since, held.until):  # an agent cuts them; a skewed one may not
                row = (
                    "segment",
                    position,
                    fact.cluster,
                    beat.host,
                    held.run,
                    held.job,
                    held.budget,
                    held.user,
                    held.charged,
                    held.gpus,
                    since,
                    until,
                    held.gpus * (until - since),
                    held.busy_milli,
                )
                yield OCCUPANCY, month_of(since), row


def _run_charged(position: Position, fact: RunCharged) -> Iterator[tuple[Table, str, Row]]:
    for since, until, gpu_ms in refund_pieces(fact):
        row = (
            "refund",
            position,
            fact.cluster,
            "",
            fact.run,
            fact.job,
            fact.budget,
            fact.user,
            True,
            0,
            since,
            until,
            -gpu_ms,
            None,
        )
        yield OCCUPANCY, month_of(since), row


def refund_pieces(fact: RunCharged) -> Iterator[tuple[Millis, Millis, GpuMillis]]:
    """A refund spread evenly over the time it was held in, cut at full hours. Exact in sum.

    One without a stretch of time is put into the millisecond before the books were closed.
    """
    if fact.refunded_gpu_ms == 0:
        return
    until = fact.refund_until if fact.refund_until is not None else fact.at
    since = fact.refund_since if fact.refund_since is not None and fact.refund_since < until else until - 1
    length = until - since
    for begin_at, end_at in _hours(since, until):
        before = fact.refunded_gpu_ms * (begin_at - since) // length
        yield begin_at, end_at, fact.refunded_gpu_ms * (end_at - since) // length - before


def _hours(since: Millis, until: Millis) -> Iterator[tuple[Millis, Millis]]:
    while since < until:
        end = min(until, (since // HOUR + 1) * HOUR)
        yield since, end
        since = end


def _capacity(position: Position, fact: CapacityChanged) -> Iterator[tuple[Table, str, Row]]:
    yield CAPACITY, "", (position, fact.at, fact.cluster, fact.host, fact.gpus, fact.gpu_type)


def _admitted(position: Position, fact: JobAdmitted) -> Iterator[tuple[Table, str, Row]]:
    if fact.spec.allocated:
        yield DEMAND, "", (position, fact.at, fact.job, fact.spec.budget, fact.spec.gpus, False)


def _finished(position: Position, fact: JobFinished) -> Iterator[tuple[Table, str, Row]]:
    yield DEMAND, "", (position, fact.at, fact.job, "", 0, True)


def _tree(position: Position, fact: BudgetTreeChanged) -> Iterator[tuple[Table, str, Row]]:
    for node in fact.tree.nodes:
        row = (position, fact.at, node.path, fact.tree.fractions[node.path], fact.tree.is_leaf(node.path))
        yield SHARES, "", row


_DERIVE: dict[Kind, Callable[[Position, Any], Iterator[tuple[Table, str, Row]]]] = {
    Heartbeat: _heartbeat,
    RunCharged: _run_charged,
    CapacityChanged: _capacity,
    JobAdmitted: _admitted,
    JobFinished: _finished,
    BudgetTreeChanged: _tree,
}
DERIVES: tuple[Kind, ...] = tuple(_DERIVE)
"""The kinds that mean something to other tables than `events`."""
