"""Whose trace a fact belongs to, what is linked, and what a process forgets."""

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tenure.domain.ids import BudgetPath, FactId, JobId, Position, RunId, UserName
from tenure.domain.job import JobSpec, Launch
from tenure.events.budgets import JobAdmitted
from tenure.events.placing import RunStarted
from tenure.events.ranking import RankingPublished
from tenure.runtime import tracing
from tenure.runtime.tracing import Trail
from tenure.sdk.trace import trace_metadata

SPEC = JobSpec(
    budget=BudgetPath("b"), user=UserName("ana"), gpus_per_replica=1, launch=Launch(command=("true",)), min_runtime_ms=0
)


class Traced:
    """A trail whose spans end in a list."""

    def __init__(self, role: str) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.trail = Trail(provider.get_tracer("test"), role=role)

    def ended(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())


def header(number: int) -> str:
    return f"00-{number:032x}-{number:016x}-01"


def admitted(job: str) -> JobAdmitted:
    return JobAdmitted(at=1, id=FactId(f"admit-{job}"), job=JobId(job), spec=SPEC, submitted_at=1)


def ranking(*jobs: str) -> RankingPublished:
    order = tuple(JobId(job) for job in jobs)
    return RankingPublished(at=1, id=FactId("ranking"), order=order, standings=(), basis=Position(1))


def started(job: str) -> RunStarted:
    run = RunId(f"{job}.1")
    return RunStarted(
        at=1, id=FactId(f"start-{job}"), run=run, job=JobId(job), protected_until=1, charged=False, hosts={}
    )


def test_a_fact_continues_the_trace_of_its_job() -> None:
    traced = Traced("placer")
    traced.trail.heard(admitted("j1"), header(7))
    fact = started("j1")
    with traced.trail.writing([fact], since_ns=5):
        told = traced.trail.header_of(fact)
    (span,) = traced.ended()
    assert span.name == "placer RunStarted" and span.start_time == 5
    assert span.parent is not None and (span.parent.trace_id, span.parent.span_id) == (7, 7)
    assert span.context is not None and told == f"00-{7:032x}-{span.context.span_id:016x}-01"
    assert traced.trail.header_of(fact) == "", "it is written now"


def test_a_job_that_is_not_traced_has_no_span() -> None:
    traced = Traced("placer")
    with traced.trail.writing([started("j1")], since_ns=5):
        assert traced.trail.header_of(started("j1")) == ""
    assert traced.ended() == []


def test_a_decision_that_was_refused_is_an_error() -> None:
    traced = Traced("placer")
    traced.trail.heard(admitted("j1"), header(7))
    with pytest.raises(OSError), traced.trail.writing([started("j1")], since_ns=5):
        raise OSError
    assert [span.status.is_ok for span in traced.ended()] == [False]


def test_a_ranking_has_a_span_for_each_job_that_it_lists_for_the_first_time() -> None:
    traced = Traced("ranker")
    for number, job in enumerate(("j1", "j2", "j3"), start=1):
        traced.trail.heard(admitted(job), header(number))
    with traced.trail.writing([ranking("j2", "j1")], since_ns=5):
        told = traced.trail.header_of(ranking())
    with traced.trail.writing([ranking("j2", "j1")], since_ns=6):
        assert traced.trail.header_of(ranking()) == ""
    assert [(span.parent.trace_id, span.links[0].context.span_id) for span in traced.ended() if span.parent] == [
        (1, 1),
        (2, 2),
    ]
    assert told.startswith(f"00-{1:032x}-")


def test_a_launch_ends_when_it_is_told_to() -> None:
    traced = Traced("agent")
    traced.trail.heard(admitted("j1"), header(7))
    with traced.trail.launching(JobId("j1"), {"tenure.host": "h0"}) as first_instruction:
        first_instruction(9_000_000_000_000_000_000)
    with traced.trail.launching(JobId("j1"), {}):
        pass  # it was not launched
    with traced.trail.launching(JobId("j2"), {}):
        pass  # not traced
    launched, failed = traced.ended()
    assert launched.end_time == 9_000_000_000_000_000_000 and launched.status.is_ok != failed.status.is_ok
    assert failed.parent is not None and launched.context is not None
    assert failed.parent.span_id == launched.context.span_id


def test_the_oldest_jobs_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "JOBS_MAX", 2)
    traced = Traced("placer")
    for number, job in enumerate(("j1", "j2", "j3"), start=1):
        traced.trail.heard(admitted(job), header(number))
    with traced.trail.writing([started("j1"), started("j3")], since_ns=5):
        pass
    assert [span.parent.trace_id for span in traced.ended() if span.parent] == [3]


def test_a_header_that_is_none_starts_nothing_and_breaks_nothing() -> None:
    traced = Traced("placer")
    traced.trail.heard(admitted("j1"), "00-zz-\x00-01")
    with traced.trail.writing([started("j1")], since_ns=5):
        pass
    assert traced.ended() == []


def test_a_client_sends_the_trace_that_it_is_called_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRACEPARENT", raising=False)
    assert trace_metadata() == ()
    monkeypatch.setenv("TRACEPARENT", "nonsense")
    assert trace_metadata() == ()
    monkeypatch.setenv("TRACEPARENT", header(7))
    assert trace_metadata() == (("traceparent", header(7)),)
    with TracerProvider().get_tracer("test").start_as_current_span("mine") as span:
        assert trace_metadata()[0][1].split("-")[2] == f"{span.get_span_context().span_id:016x}"
