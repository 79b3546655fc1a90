"""A small OpenTelemetry collector: takes traces by OTLP over gRPC on the loopback address, and keeps them."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


@dataclass(frozen=True, kw_only=True)
class Span:
    """One span as it was sent. Times in epoch nanoseconds; ids in hex, `parent` empty for none."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    links: tuple[str, ...]
    began: int
    ended: int
    attributes: dict[str, str]


@dataclass
class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """What has come so far."""

    address: str = ""
    spans: list[Span] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def Export(  # noqa: N802 - gRPC names the method
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        """Keep what comes."""
        for of_resource in request.resource_spans:
            resource = {each.key: each.value.string_value for each in of_resource.resource.attributes}
            for of_scope in of_resource.scope_spans:
                with self.lock:
                    self.spans += [
                        Span(
                            service=resource["service.name"],
                            name=span.name,
                            trace=span.trace_id.hex(),
                            id=span.span_id.hex(),
                            parent=span.parent_span_id.hex(),
                            links=tuple(link.span_id.hex() for link in span.links),
                            began=span.start_time_unix_nano,
                            ended=span.end_time_unix_nano,
                            attributes={each.key: each.value.string_value for each in span.attributes},
                        )
                        for span in of_scope.spans
                    ]
        return trace_service_pb2.ExportTraceServiceResponse()

    def of_trace(self, trace: str) -> list[Span]:
        """The spans of one trace so far, by when they began."""
        with self.lock:
            return sorted((span for span in self.spans if span.trace == trace), key=lambda span: span.began)


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector for the length of a block."""
    collector, server = Collector(), grpc.server(ThreadPoolExecutor(max_workers=4))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    collector.address = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait()
