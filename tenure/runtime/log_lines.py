"""A process's log lines, on stderr: text for people, or one JSON object a line for machines.

    {"time":"2026-03-01T12:00:00.123Z","level":"INFO","role":"placer","logger":"...","message":"ready"}

Where a line is about something that is traced, it has `trace_id` and `span_id`, in both formats.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

from tenure.runtime.telemetry_options import LogFormat, TelemetryOptions

TRACING = "opentelemetry.trace"


def set_up_logging(role: str, options: TelemetryOptions) -> None:
    """Send this process's log lines to stderr, with the role's name."""
    formatter: logging.Formatter = JsonLines(role) if options.log_format is LogFormat.JSON else TextLines(role)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=options.log_level, handlers=[handler])


class TextLines(logging.Formatter):
    """`2026-03-01 12:00:00,123 placer INFO ready`."""

    def __init__(self, role: str) -> None:
        super().__init__(f"%(asctime)s {role} %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - its library's name
        """See `logging.Formatter.formatMessage`: the line before what broke."""
        line = super().formatMessage(record)
        return "".join([line, *(f" {name}={value}" for name, value in present_trace().items())])


class JsonLines(logging.Formatter):
    """One JSON object a line; what broke is in `exception`, on the same line."""

    def __init__(self, role: str) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "role": self._role,
            "logger": record.name,
            "message": record.getMessage(),
            **present_trace(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def present_trace() -> dict[str, str]:
    """The ids of the span that is being worked on, if this process traces and there is one."""
    if TRACING not in sys.modules:
        return {}
    from opentelemetry.trace import format_span_id, format_trace_id, get_current_span

    context = get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": format_trace_id(context.trace_id), "span_id": format_span_id(context.span_id)}
