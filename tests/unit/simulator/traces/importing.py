"""A small file in the manner of a source, imported."""

from pathlib import Path

from simulator.traces.contract import parse_rules
from simulator.traces.convert import Imported, Options, Source, import_trace
from simulator.traces.write import TraceRow


def imported(
    folder: Path,
    source: str,
    text: str | bytes,
    *,
    rules: tuple[str, ...] = (),
    **options: object,
) -> Imported:
    """What an import makes of `text`; `options` are those of `Options`."""
    path = folder / f"{source}.txt"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    chosen = Options(rules=parse_rules(rules), **options)  # type: ignore[arg-type]  # each test gives what it needs
    return import_trace(path, source=Source(source), options=chosen)


def noted(result: Imported) -> dict[tuple[str, str], int]:
    """How many rows were noted, by what became of them and the first words of the reason."""
    return {(str(note.action), note.why): note.count for note in result.notes.listing()}


def count(result: Imported, action: str, part_of_reason: str) -> int:
    """Rows that were noted for the one reason that has these words."""
    found = [number for (what, why), number in noted(result).items() if what == action and part_of_reason in why]
    assert len(found) == 1, f"{action} {part_of_reason!r} in {noted(result)}"
    return found[0]


def by_id(result: Imported) -> dict[str, TraceRow]:
    """The rows by their ids."""
    return {row.job_id: row for row in result.rows}
