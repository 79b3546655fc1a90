"""The tables the journal writes: their columns in the order of its rows (`deploy/clickhouse` makes them)."""

from dataclasses import dataclass

Value = str | int | float | bool | None
Row = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table's name and the names and types of its columns."""

    name: str
    columns: tuple[str, ...]
    types: tuple[str, ...]


def _table(name: str, columns: dict[str, str]) -> Table:
    return Table(name, tuple(columns), tuple(columns.values()))


_WORD = "LowCardinality(String)"

EVENTS = _table(
    "events",
    {
        "position": "UInt64",
        "at_ms": "Int64",
        "cluster": _WORD,
        "kind": _WORD,
        "id": "String",
        "job": "String",
        "run": "String",
        "host": "String",
        "budget": _WORD,
        "by": "String",
        "cause": "String",
        "payload": "String",
        "batch": "UInt64",
    },
)
OCCUPANCY = _table(
    "occupancy",
    {
        "kind": _WORD,
        "position": "UInt64",
        "cluster": _WORD,
        "host": _WORD,
        "run": "String",
        "job": "String",
        "budget": _WORD,
        "user": _WORD,
        "charged": "Bool",
        "gpus": "Int64",
        "since_ms": "Int64",
        "until_ms": "Int64",
        "gpu_ms": "Int64",
        "busy_milli": "Nullable(Int64)",
    },
)
CAPACITY = _table(
    "capacity",
    {
        "position": "UInt64",
        "at_ms": "Int64",
        "cluster": _WORD,
        "host": "String",
        "gpus": "Int64",
        "gpu_type": _WORD,
    },
)
DEMAND = _table(
    "demand",
    {
        "position": "UInt64",
        "at_ms": "Int64",
        "job": "String",
        "budget": _WORD,
        "gpus": "Int64",
        "finished": "Bool",
    },
)
SHARES = _table(
    "shares",
    {
        "position": "UInt64",
        "at_ms": "Int64",
        "path": "String",
        "fraction": "Float64",
        "leaf": "Bool",
    },
)
