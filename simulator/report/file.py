"""`report.json` on the disk: the same report, the same bytes."""

import os
from pathlib import Path

import msgspec

from simulator.report.fields import Report


def write_report(path: Path, report: Report) -> None:
    """Write it for people and tools alike; a report that is there is replaced when the new one is whole."""
    text = msgspec.json.format(msgspec.json.encode(report), indent=2)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.write_bytes(text + b"\n")
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
