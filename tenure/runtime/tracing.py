"""Traces across the log: one from a submission to the first instruction of the job.

    Submit (gateway) -> JobAdmitted (budget) -> RunAssigned (placer) -> launch (agent) -> ReplicasStarted -> RunStarted
                                             -> RankingPublished (ranker) <- linked from RunAssigned

Each fact on the way has the context of the span that wrote it in a header of its message (`tenure.log.carrier`), and
whoever acts on it continues from there. A context is kept in memory, apart from every state: a decision cannot depend
on it, and a role that was started anew knows only those of the facts it reads again.

Off unless an OTLP endpoint is configured; then nothing here is called and nothing is imported.
"""

import contextlib
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from tenure.domain.ids import FactId, JobId
from tenure.events.budgets import JobAdmitted, JobRejected
from tenure.events.fact import Fact
from tenure.events.intake import JobSubmitted
from tenure.events.placing import ReservationMade, RunAssigned, RunStarted
from tenure.events.ranking import RankingPublished
from tenure.events.reports import ReplicasStarted
from tenure.log.carrier import HEADER
from tenure.runtime.telemetry import is_told, present_teller, resource_of

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, Tracer

JOBS_MAX = 100_000
"""So many jobs' contexts are remembered; the oldest is forgotten first."""
RANKED_MAX = 100
"""So many jobs that one ranking lists for the first time have a span of their own."""
ON_THE_WAY = (JobSubmitted, JobAdmitted, JobRejected, ReservationMade, RunAssigned, ReplicasStarted, RunStarted)
"""What is traced of a job: the way to its start. Whatever comes later is in the log."""


_CONTEXT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class Trail:
    """The traces of one process."""

    def __init__(self, tracer: "Tracer", *, role: str) -> None:
        self._tracer, self._role = tracer, role
        self._of_job: OrderedDict[JobId, str] = OrderedDict()
        self._unranked: OrderedDict[JobId, str] = OrderedDict()
        self._ranking = ""
        self._written: dict[FactId, str] = {}

    def header_of(self, fact: Fact) -> str:
        """See `Carrier.header_of`: of the span that wrote the fact, else of the call that is being answered."""
        written = self._written.get(fact.id)
        if written is not None or not isinstance(fact, ON_THE_WAY):
            return written or ""
        from opentelemetry.trace import get_current_span

        return header_of(get_current_span())

    def heard(self, fact: Fact, header: str) -> None:
        """See `Carrier.heard`. A header that is none belongs to no trace."""
        if not _CONTEXT.fullmatch(header):
            return
        if isinstance(fact, RankingPublished):
            self._ranking = header
        elif isinstance(fact, ON_THE_WAY):
            _remember(self._of_job, fact.job, header)
            if isinstance(fact, JobAdmitted):
                _remember(self._unranked, fact.job, header)
            else:
                self._unranked.pop(fact.job, None)

    @contextlib.contextmanager
    def writing(self, facts: Sequence[Fact], *, since_ns: int) -> Iterator[None]:
        """The spans of a decision, from `since_ns` (epoch) until its facts are written or refused."""
        spans = [span for fact in facts for span in self._begun(fact, since_ns)]
        failed = True
        try:
            with _present(spans):
                yield
            failed = False
        finally:
            for span in spans:
                if failed:
                    _fail(span)
                span.end()
            self._written.clear()

    @contextlib.contextmanager
    def launching(self, job: JobId, attributes: Mapping[str, str | int]) -> "Iterator[Callable[[int], None]]":
        """The start of a replica. Call what is given with the instant (epoch ns) of its first instruction.

        `TRACEPARENT` of the process is `span_header()` meanwhile.
        """
        header = self._of_job.get(job)
        if header is None:
            yield lambda _: None
            return
        from opentelemetry.trace import use_span

        span = self._tracer.start_span(
            f"{self._role} launch", context_of(header), attributes={"tenure.job.id": job, **attributes}
        )
        ends: list[int] = []
        try:
            with use_span(span):
                yield ends.append
        finally:
            if ends:
                _remember(self._of_job, job, header_of(span) or header)
            else:
                _fail(span)
            span.end(ends[0] if ends else None)

    @contextlib.contextmanager
    def answering(self, method: str, metadata: Iterable[tuple[str, str | bytes]]) -> Iterator[None]:
        """The span of a call (`package.Service/Method`), in the caller's trace if it sent one."""
        from opentelemetry.trace import SpanKind

        sent = next((value for key, value in metadata if key == HEADER and isinstance(value, str)), "")
        service, _, name = method.rpartition("/")
        attributes = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name}
        with self._tracer.start_as_current_span(method, context_of(sent), SpanKind.SERVER, attributes):
            yield

    def _begun(self, fact: Fact, since_ns: int) -> "Iterator[Span]":
        """The spans of one fact, begun; its header is noted."""
        if isinstance(fact, RankingPublished):
            fresh = self._newly_ranked(fact)
            for job in fresh:
                yield self._begin(fact, job, self._unranked.pop(job), since_ns, linked=self._of_job.get(job, ""))
        elif isinstance(fact, ON_THE_WAY) and (header := self._of_job.get(fact.job)):
            linked = self._ranking if isinstance(fact, RunAssigned | ReservationMade) else header
            yield self._begin(fact, fact.job, header, since_ns, linked=linked)

    def _begin(self, fact: Fact, job: JobId, parent: str, since_ns: int, *, linked: str) -> "Span":
        from opentelemetry.trace import SpanKind

        kind = type(fact).__name__
        attributes: dict[str, str] = {
            "tenure.job.id": job,
            "tenure.fact.kind": kind,
            "tenure.fact.id": fact.id,
            "messaging.system": "nats",
            "messaging.operation.type": "process",
        }
        if run := getattr(fact, "run", ""):
            attributes["tenure.run.id"] = run
        span = self._tracer.start_span(
            f"{self._role} {kind}",
            context_of(parent),
            SpanKind.CONSUMER,
            attributes,
            links=_links(linked),
            start_time=since_ns,
        )
        if header := header_of(span):
            self._written.setdefault(fact.id, header)
        return span

    def _newly_ranked(self, fact: RankingPublished) -> list[JobId]:
        if not self._unranked:
            return []
        listed = set(fact.order)
        return [job for job in self._unranked if job in listed][:RANKED_MAX]


@cache
def trail() -> Trail | None:
    """This process's traces; None where nobody is told."""
    if not is_told("TRACES"):
        return None
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    teller = present_teller()
    provider = TracerProvider(resource=resource_of(teller))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Trail(provider.get_tracer("tenure"), role=teller.role)


def writing(facts: Sequence[Fact], *, since_ns: int) -> contextlib.AbstractContextManager[None]:
    """See `Trail.writing`; nothing where nobody is told."""
    told = trail()
    return contextlib.nullcontext() if told is None else told.writing(facts, since_ns=since_ns)


def answering(
    method: str, metadata: Iterable[tuple[str, str | bytes]] | None
) -> contextlib.AbstractContextManager[None]:
    """See `Trail.answering`; nothing where nobody is told."""
    told = trail()
    return contextlib.nullcontext() if told is None else told.answering(method, metadata or ())


def launching(
    job: JobId, attributes: Mapping[str, str | int]
) -> "contextlib.AbstractContextManager[Callable[[int], None]]":
    """See `Trail.launching`; nothing where nobody is told."""
    told = trail()
    return contextlib.nullcontext(lambda _: None) if told is None else told.launching(job, attributes)


def span_header() -> str:
    """The span that is being worked in, as a header; empty where nobody is told or there is none."""
    if trail() is None:
        return ""
    from opentelemetry.trace import get_current_span

    return header_of(get_current_span())


def header_of(span: "Span") -> str:
    """The span's context as a header; empty where it is not recorded."""
    context = span.get_span_context()
    if not (context.is_valid and context.trace_flags.sampled):
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def context_of(header: str) -> "Context":
    """The context that a header names; of none where it is not one."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({HEADER: header}, Context())


def now_ns() -> int:
    """The present instant, as spans have it."""
    return time.time_ns()


def _links(header: str) -> "list[Link]":
    from opentelemetry.trace import Link, get_current_span

    context = get_current_span(context_of(header)).get_span_context() if header else None
    return [Link(context)] if context is not None and context.is_valid else []


def _present(spans: "Sequence[Span]") -> contextlib.AbstractContextManager[object]:
    """Log lines of a decision about one job name its span."""
    if len(spans) != 1:
        return contextlib.nullcontext()
    from opentelemetry.trace import use_span

    return use_span(spans[0])


def _fail(span: "Span") -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_status(Status(StatusCode.ERROR))


def _remember(kept: OrderedDict[JobId, str], job: JobId, header: str) -> None:
    kept[job] = header
    kept.move_to_end(job)
    if len(kept) > JOBS_MAX:
        kept.popitem(last=False)
