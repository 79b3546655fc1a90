"""`python -m tests.unit.events.record VERSION`: keep how this version writes facts, for all later ones to read.

`facts_of_VERSION_full.jsonl` has every kind with every field filled; `log_of_VERSION.jsonl` is a small log, whole.
To be run when a version is released: what was once written is never changed, so a file that exists is left alone.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec import inspect

from tenure.events.catalogue import KINDS
from tenure.log import codec
from tests.scenario.script import script_to_world

FOLDER = Path(__file__).parent
WORLD: dict[str, Any] = {
    "given": {
        "hosts": "2x8",
        "budgets": {"a": {"share": 60}, "b": {"share": 40}},
        "policy": {"heartbeat": "1m", "suspect_after": "3m", "lost_after": "4m"},
    },
    "when": [
        {
            "at": "1m",
            "submit": ["spare"],
            "budget": "b",
            "gpus": 8,
            "replicas": 2,
            "resumable": True,
            "runs_for": "20m",
        },
        {"at": "2m", "submit": ["first"], "budget": "a", "gpus": 8, "min_runtime": "5m", "runs_for": "6m"},
        {
            "at": "3m",
            "submit": ["gang"],
            "budget": "a",
            "gpus": 8,
            "replicas": 2,
            "min_runtime": "2m",
            "runs_for": "3m",
        },
        {"at": "4m", "submit": ["never"], "budget": "nobody", "gpus": 1, "runs_for": "1m"},
        {"at": "5m", "submit": ["regretted"], "budget": "b", "gpus": 8, "min_runtime": "1m", "runs_for": "1m"},
        {"at": "6m", "cancel": "regretted"},
        {"at": "7m", "drain": "h001"},
        {"at": "11m", "resume": "h001"},
    ],
    "until": "14m",
}


def filled(kind: inspect.Type) -> Any:
    """A value of a type with nothing left out, always the same."""
    match kind:
        case inspect.StrType():
            return "word"
        case inspect.BoolType():
            return True
        case inspect.IntType():
            return 7
        case inspect.FloatType():
            return 0.5
        case inspect.EnumType():
            return list(kind.cls)[-1]
        case inspect.VarTupleType():
            return (filled(kind.item_type),)
        case inspect.TupleType():
            return tuple(filled(item) for item in kind.item_types)
        case inspect.ListType():
            return [filled(kind.item_type)]
        case inspect.DictType():
            return {filled(kind.key_type): filled(kind.value_type)}
        case inspect.UnionType():
            return filled(next(item for item in kind.types if not isinstance(item, inspect.NoneType)))
        case inspect.StructType() | inspect.DataclassType():
            return kind.cls(**{field.name: filled(field.type) for field in kind.fields})
    raise AssertionError(f"facts have a new sort of field: {kind}")


def full_facts() -> Iterable[bytes]:
    """Every kind, by name."""
    for name in sorted(KINDS):
        yield codec.encode(filled(inspect.type_info(KINDS[name])))


def small_log() -> Iterable[bytes]:
    """A world in which most kinds happen, in the order of its log."""
    for entry in script_to_world(WORLD).recorded:
        yield codec.encode(entry.fact)


def main(version: str) -> int:
    """Write what is not there."""
    for name, lines in ((f"facts_of_{version}_full", full_facts()), (f"log_of_{version}", small_log())):
        path = FOLDER / f"{name}.jsonl"
        if path.exists():
            print(f"{path.name} is there and stays as it is", file=sys.stderr)
        else:
            path.write_bytes(b"".join(line + b"\n" for line in lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
