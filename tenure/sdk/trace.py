"""The trace of the caller, sent with each call: its OpenTelemetry span, else what its variable `TRACEPARENT` says."""

import os
import re
import sys

VARIABLE = "TRACEPARENT"
_CONTEXT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def trace_metadata() -> tuple[tuple[str, str], ...]:
    """What is added to the metadata of a call; nothing where the caller is not traced."""
    header = _of_span() or os.environ.get(VARIABLE, "").strip()
    return (("traceparent", header),) if _CONTEXT.fullmatch(header) else ()


def _of_span() -> str:
    """The present span as W3C Trace Context has it; a program that has no OpenTelemetry has none."""
    if "opentelemetry.trace" not in sys.modules:
        return ""
    from opentelemetry.trace import get_current_span

    context = get_current_span().get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
