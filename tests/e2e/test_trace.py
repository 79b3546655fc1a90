"""One trace from a submission to the first instruction, through real roles, a real log and an OTLP endpoint."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.events.placing import RunAssigned
from tenure.v1.budgets_pb2 import Budget
from tenure.v1.jobs_pb2 import JobSpec
from tests.e2e.otlp import Collector, Span, collecting
from tests.e2e.roles import Roles
from tests.e2e.system import FINAL

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
NAMES = {
    "tenure.v1.Jobs/Submit",
    "budget JobAdmitted",
    "ranker RankingPublished",
    "placer RunAssigned",
    "agent launch",
    "agent ReplicasStarted",
    "placer RunStarted",
}
SOON_NS = 2_000_000_000


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address)
        monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        monkeypatch.setenv("TENURE_LOG_FORMAT", "json")
        monkeypatch.setenv("TENURE_LOG_LEVEL", "DEBUG")
        yield collector


@pytest.fixture
def roles(tmp_path: Path, collector: Collector) -> Iterator[Roles]:
    with Roles(tmp_path, knobs=["heartbeat=500ms"]) as roles:
        roles.start_deciders()
        roles.start("agent", "--hosts", "2x4")
        yield roles


def trace_ids(roles: Roles, name: str) -> set[str]:
    """The traces that a role's log lines name. Each of its lines is a JSON object with a time, a level, a message."""
    lines = [json.loads(line) for line in (roles.folder / f"{name}.log").read_text().splitlines()]
    assert all(line["role"] == name and line["time"] and line["level"] and "message" in line for line in lines)
    return {line["trace_id"] for line in lines if "trace_id" in line}


def test_one_trace_from_submit_to_the_first_instruction(
    roles: Roles, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = roles.client()
    client.set_shares([Budget(path="lab", share_percent=100)], user="ana", merge=False)
    monkeypatch.setenv("TRACEPARENT", f"00-{TRACE}-{CALLER}-01")
    shell = "date +%s%N; echo $TRACEPARENT"
    spec = JobSpec(
        budget="lab", gpus_per_replica=1, replicas=1, min_runtime_ms=60_000, command=["/bin/sh", "-c", shell]
    )
    job = client.submit(spec)
    ended = next(found for found in client.watch(job) if found.state in FINAL)
    assert ended.state == "completed"

    def whole() -> list[Span] | None:
        found = collector.of_trace(TRACE)
        return found if {span.name for span in found} >= NAMES else None

    found = roles.until(whole, what="the whole trace")
    spans = {span.name: span for span in found}
    assert set(spans) == NAMES and len(found) == len(NAMES), "each once, and nothing else"
    parents = {name: next((s.name for s in found if s.id == span.parent), span.parent) for name, span in spans.items()}
    assert parents == {
        "tenure.v1.Jobs/Submit": CALLER,
        "budget JobAdmitted": "tenure.v1.Jobs/Submit",
        "ranker RankingPublished": "budget JobAdmitted",
        "placer RunAssigned": "budget JobAdmitted",
        "agent launch": "placer RunAssigned",
        "agent ReplicasStarted": "agent launch",
        "placer RunStarted": "agent ReplicasStarted",
    }
    assert spans["placer RunAssigned"].links == (spans["ranker RankingPublished"].id,)
    assert spans["ranker RankingPublished"].links == (spans["budget JobAdmitted"].id,)
    order = [span for span in found if span.name != "ranker RankingPublished"]
    assert [span.name for span in order] == [name for name in parents if name != "ranker RankingPublished"]
    assert spans["placer RunAssigned"].service == "tenure-placer"
    assert all(span.attributes.get("tenure.job.id", job) == job for span in found)

    first, told = b"".join(client.output(job)).decode().split()
    assert told == f"00-{TRACE}-{spans['agent launch'].id}-01", "the job knows where it belongs"
    assert abs(int(first) - spans["agent launch"].ended) < SOON_NS
    assert TRACE in trace_ids(roles, "gateway") and TRACE in trace_ids(roles, "agent")
    (assigned,) = [each.fact for each in roles.recorded() if isinstance(each.fact, RunAssigned)]
    assert TRACE not in str(assigned), "a trace is no part of a fact"
