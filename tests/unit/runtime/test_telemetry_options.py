"""The options of telemetry, and log lines in both formats."""

import argparse
import json
import logging
import os
import sys

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from tenure.domain.refusal import Refusal
from tenure.runtime.log_lines import JsonLines, TextLines
from tenure.runtime.settings.flags import add_flags, flags_given
from tenure.runtime.settings.given import load_settings
from tenure.runtime.telemetry_options import (
    Address,
    LogFormat,
    TelemetryOptions,
    parse_listen,
    telemetry_options,
)

SPAN = NonRecordingSpan(SpanContext(trace_id=0xABC, span_id=0xDEF, is_remote=False, trace_flags=TraceFlags(1)))


def options_of(*words: str) -> TelemetryOptions:
    parser = argparse.ArgumentParser()
    add_flags(parser, "placer")
    flags = flags_given(parser.parse_args(words), "placer")
    return telemetry_options(load_settings(role="placer", environment=os.environ, flags=flags))


def test_everything_is_off_until_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TENURE_METRICS_LISTEN", "TENURE_LOG_FORMAT", "TENURE_LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    assert options_of() == TelemetryOptions(metrics_listen=None, log_format=LogFormat.TEXT, log_level=logging.INFO)


def test_the_environment_and_the_command_line_turn_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_METRICS_LISTEN", "0.0.0.0:9464")
    monkeypatch.setenv("TENURE_LOG_FORMAT", "json")
    monkeypatch.setenv("TENURE_LOG_LEVEL", "debug")
    found = options_of()
    assert found.metrics_listen == Address(host="0.0.0.0", port=9464)
    assert (found.log_format, found.log_level) == (LogFormat.JSON, logging.DEBUG)
    assert options_of("--metrics-listen", "[::1]:0").metrics_listen == Address(host="::1", port=0)
    assert options_of("--metrics-listen", "").metrics_listen is None
    assert parse_listen("[::1]:9464", "x").shown == "[::1]:9464"


@pytest.mark.parametrize("written", ["9464", ":9464", "h:", "h:x", "h:70000", "h:-1", "h:1x"])
def test_what_is_no_address_is_refused(written: str) -> None:
    with pytest.raises(Refusal, match="metrics-listen"):
        options_of("--metrics-listen", written)


@pytest.mark.parametrize(("name", "value"), [("TENURE_LOG_FORMAT", "xml"), ("TENURE_LOG_LEVEL", "loud")])
def test_an_unknown_word_names_the_variable(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(Refusal, match=name):
        options_of()


def record(message: str, *, broken: bool = False) -> logging.LogRecord:
    error = None
    if broken:
        try:
            raise ValueError("a reason")
        except ValueError:
            error = sys.exc_info()
    return logging.LogRecord("tenure.log", logging.WARNING, "", 1, message, ("that",), error)


def test_a_json_line_is_one_object() -> None:
    lines = JsonLines("placer").format(record("lost %s\nand more", broken=True))
    assert "\n" not in lines
    line = json.loads(lines)
    assert (line["level"], line["role"], line["message"]) == ("WARNING", "placer", "lost that\nand more")
    assert line["time"].endswith("Z") and "trace_id" not in line
    assert line["exception"].endswith("ValueError: a reason")


def test_a_line_of_what_is_traced_names_the_span() -> None:
    with trace.use_span(SPAN):
        line = json.loads(JsonLines("placer").format(record("%s")))
        text = TextLines("placer").format(record("%s", broken=True))
    assert (line["trace_id"], line["span_id"]) == (f"{0xABC:032x}", f"{0xDEF:016x}")
    assert text.splitlines()[0].endswith(f"placer WARNING that trace_id={0xABC:032x} span_id={0xDEF:016x}")
