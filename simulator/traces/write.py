"""A row of `trace.csv`, and the file it stands in: columns, order and spelling as design section 6 has them."""

import csv
import io
from collections.abc import Iterable, Iterator

import msgspec

from simulator.workload import COLUMNS

_CHUNK = 1_024


class TraceRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One job of a trace, its fields in the order of the columns. Times are whole seconds from the trace's start."""

    job_id: str
    submit_s: int
    budget: str
    user: str
    replicas: int
    gpus_per_replica: int
    min_runtime_s: int
    runtime_s: int
    resumable: bool
    priority: int
    kind: str

    @property
    def gpus(self) -> int:
        """GPUs of the whole gang."""
        return self.replicas * self.gpus_per_replica

    @property
    def gpu_s(self) -> int:
        """GPU-seconds of its work."""
        return self.gpus * self.runtime_s


assert TraceRow.__struct_fields__ == COLUMNS, "what is written is what is read"


def in_order(rows: Iterable[TraceRow]) -> list[TraceRow]:
    """The rows by submission, then id."""
    return sorted(rows, key=lambda row: (row.submit_s, row.job_id))


def chunks(rows: Iterable[TraceRow]) -> Iterator[bytes]:
    """The bytes of the file, many lines at a time, the columns first."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for count, row in enumerate(rows, start=1):
        *before, resumable, priority, kind = msgspec.structs.astuple(row)
        writer.writerow((*before, "true" if resumable else "false", priority, kind))
        if count % _CHUNK == 0:
            yield text.getvalue().encode()
            text.seek(0)
            text.truncate()
    if text.tell():
        yield text.getvalue().encode()
