"""docs/api.md: its reference is what the protos say, with every method, and its calls are calls that there are."""

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from google.protobuf import json_format, symbol_database

from services.gateway.identity.methods import METHODS
from tests.architecture.sources import ROOT, say
from tests.checks import api_page
from tests.checks.api_page import MARKER, PAGE, PROTOS, by_hand, comments_of, files, said, text, unit_of

CALL = re.compile(r"grpcurl [^\n]*?(?:-d '([^']*)'[^\n]*?)? \S+:\d+ (?:list )?tenure\.v1\.(\w+)(?:/(\w+))?")
ROW = re.compile(r"^\| `([A-Z_]+)` \|", re.MULTILINE)


def test_the_page_is_made_from_the_protos() -> None:
    assert PAGE.read_text() == text(), "make api writes it"


def test_every_method_is_on_the_page() -> None:
    headings = set(re.findall(r"^### (\w+/\w+)$", PAGE.read_text(), re.MULTILINE))
    assert headings == {name.removeprefix("/tenure.v1.") for name in METHODS if name.startswith("/tenure.v1.")}


def test_every_message_and_field_is_on_the_page() -> None:
    page = PAGE.read_text().partition(MARKER)[2]
    missing = []
    for proto in PROTOS:
        module: Any = import_module(f"tenure.v1.{proto.stem}_pb2")
        for name, message in module.DESCRIPTOR.message_types_by_name.items():
            section = page.partition(f"\n### {name}\n")[2].partition("\n###")[0]
            missing += [f"{name}.{field.name}" for field in message.fields if f"| `{field.name}` |" not in section]
            assert section
    assert not missing, say("not on the page", missing)


def test_what_has_no_comment_is_refused() -> None:
    (file, *_) = files()
    with pytest.raises(ValueError, match="Thing has no comment"):
        said(comments_of(file), 4, 10_000, what="Thing")


def test_milliseconds_of_nobody_knows_what_are_refused() -> None:
    assert (unit_of("at_ms"), unit_of("min_runtime_ms"), unit_of("charged_gpu_ms")) == (
        "epoch milliseconds",
        "milliseconds",
        "GPU-milliseconds",
    )
    with pytest.raises(ValueError, match="an instant or a length"):
        unit_of("odd_ms")


def grpcurl_calls() -> Iterator[tuple[str, str, str]]:
    """JSON, service and method of each command on the page; what is not said is empty."""
    yield from CALL.findall(re.sub(r"\\\n\s*", "", by_hand()))


def test_calls_from_a_shell_are_calls_that_there_are() -> None:
    calls = list(grpcurl_calls())
    assert len(calls) == by_hand().count("    grpcurl ")
    for body, service, method in calls:
        module: Any = import_module(f"tenure.v1.{service.lower()}_pb2")
        described = module.DESCRIPTOR.services_by_name[service]
        if method:
            request = symbol_database.Default().GetSymbol(described.methods_by_name[method].input_type.full_name)()
            json_format.Parse(body or "{}", request)


def test_the_codes_are_those_that_the_gateway_gives() -> None:
    given = set(re.findall(r"grpc\.StatusCode\.([A-Z_]+)\),", (ROOT / "services/gateway/answering.py").read_text()))
    assert given
    assert set(ROW.findall(by_hand())) == given | {"DEADLINE_EXCEEDED"}
    named = set(re.findall(r"\b([A-Z]{5,}_[A-Z_]+|NOT_FOUND|ABORTED|UNAVAILABLE)\b", "".join(api_page.reference())))
    assert named <= given | {"SIGTERM", "SIGKILL"}, named - given
