"""Every method of every service, found in its description, with requests nobody should send: always a clean status.

A gateway in a thread of its own answers on a port. A method that is added is tried out without anybody doing anything.
"""

import asyncio
import importlib
import logging
import os
import pkgutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tenure.v1
from tenure.events.plausible import impossible
from tenure.log.memory import MemoryLog
from tenure.v1 import budgets_pb2, jobs_pb2
from tests.contract.gateway_rig import LogHistory, Rig, a_cluster, good_job, read_all, running
from tests.contract.hostile_messages import messages, spoiled

EXAMPLES = int(os.environ.get("TENURE_FUZZ_EXAMPLES", "25"))
LISTENED_S = 0.3
"""So long the answers of a stream are listened to; then the call is given up."""
CLEAN = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.UNIMPLEMENTED,
}
STOPPED = {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
"""A stream that we do not wait for to end."""


def methods() -> list[MethodDescriptor]:
    """All methods of tenure.v1, of health checking and of reflection."""
    names = [module.name for module in pkgutil.iter_modules(tenure.v1.__path__) if module.name.endswith("_pb2")]
    files = [importlib.import_module(f"tenure.v1.{name}").DESCRIPTOR for name in names]
    files += [health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR]
    return [
        method
        for file in files
        for _, service in sorted(file.services_by_name.items())
        for _, method in sorted(service.methods_by_name.items())
    ]


METHODS = methods()


@dataclass(kw_only=True)
class Target:
    """The gateway in its thread."""

    rig: Rig
    loop: asyncio.AbstractEventLoop
    channel: grpc.Channel
    job: str
    caught: "Caught"

    def call(self, method: MethodDescriptor, data: bytes, *, listened_s: float = LISTENED_S) -> grpc.StatusCode:
        """The status with which a call with these bytes ends."""
        self.caught.lines.clear()
        path = f"/{method.containing_service.full_name}/{method.name}"
        streams = method.server_streaming
        kind = {(False, False): "unary_unary", (False, True): "unary_stream", (True, True): "stream_stream"}
        ask = getattr(self.channel, kind[method.client_streaming, streams])(path, None, None)
        request = iter([data]) if method.client_streaming else data
        try:
            answer = ask(request, timeout=listened_s if streams else 20.0)
            for _ in answer if streams else ():
                pass
        except grpc.RpcError as error:
            code: grpc.StatusCode = error.code()
            line = error.details() or ""
            assert "Traceback" not in line, line
            assert "Error(" not in line, line
            assert "Exception" not in line, line
            return grpc.StatusCode.OK if streams and code in STOPPED else code
        return grpc.StatusCode.OK

    def check(self, method: MethodDescriptor, data: bytes) -> None:
        code = self.call(method, data)
        assert code in CLEAN, f"{method.full_name} ends with {code} for {data[:300]!r}"
        assert not self.caught.lines, self.caught.lines[-1]


class Caught(logging.Handler):
    """What the gateway said that nobody should have to read."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    loop, ready, over = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    held: list[tuple[Rig, str]] = []

    async def play() -> None:
        async with running(MemoryLog(), history_of=LogHistory) as rig:
            await rig.write(*a_cluster())
            held.append((rig, await rig.submit()))
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(play()))
    caught = Caught()
    logging.getLogger().addHandler(caught)
    thread.start()
    try:
        assert ready.wait(30)
        rig, job = held[0]
        options = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))
        with grpc.insecure_channel(rig.address, options=options) as channel:
            yield Target(rig=rig, loop=loop, channel=channel, job=job, caught=caught)
    finally:
        logging.getLogger().removeHandler(caught)
        loop.call_soon_threadsafe(over.set)
        thread.join(30)


fuzzing = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method.containing_service.name}.{method.name}")
@fuzzing
@given(data=st.data())
def test_messages_with_anything_in_them(target: Target, method: MethodDescriptor, data: st.DataObject) -> None:
    message: Any = data.draw(messages(method.input_type))
    for field in method.input_type.fields:
        if field.name == "job_id" and data.draw(st.booleans()):
            message.job_id = target.job
    target.check(method, message.SerializeToString())


@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method.containing_service.name}.{method.name}")
@fuzzing
@given(data=st.data())
def test_bytes_that_are_no_message(target: Target, method: MethodDescriptor, data: st.DataObject) -> None:
    message = data.draw(messages(method.input_type))
    target.check(method, data.draw(spoiled(message.SerializeToString())))


@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method.containing_service.name}.{method.name}")
def test_a_hundred_megabytes_are_refused_before_they_are_read(target: Target, method: MethodDescriptor) -> None:
    assert target.call(method, bytes(100 << 20), listened_s=20.0) is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_each_method_has_its_message() -> None:
    assert len(METHODS) > 15
    assert all(GetMessageClass(method.input_type)() is not None for method in METHODS)


def test_afterwards_the_gateway_answers_and_its_log_holds_facts_only(target: Target) -> None:
    """Runs last in this file: whatever was let in is plausible, and the gateway works as ever."""
    jobs = target.channel.unary_unary("/tenure.v1.Jobs/Submit", None, None)
    budgets = target.channel.unary_unary("/tenure.v1.Budgets/GetTree", None, None)
    paths = [each.path for each in budgets_pb2.GetTreeResponse.FromString(budgets(b"", timeout=20)).budgets]
    leaf = next(path for path in paths if not any(other.startswith(f"{path}/") for other in paths))
    request = jobs_pb2.SubmitRequest(job=good_job(budget=leaf))
    assert jobs_pb2.SubmitResponse.FromString(jobs(request.SerializeToString(), timeout=20)).job_id
    recorded = asyncio.run_coroutine_threadsafe(read_all(target.rig.log), target.loop).result(20)
    assert [entry.fact for entry in recorded if impossible(entry.fact)] == []
