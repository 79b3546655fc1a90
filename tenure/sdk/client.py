"""The client of the gateway: one channel, a deadline on every call, retries while it is away, errors in one line.

Every submission carries an idempotency key: sending it again after a broken connection never makes a second job.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import grpc
from google.protobuf.message import Message

from tenure.domain.loopback import is_loopback
from tenure.sdk.credentials import Credentials
from tenure.sdk.errors import ServerError, ServerRefused, ServerUnreachable
from tenure.sdk.trace import trace_metadata
from tenure.v1 import jobs_pb2

if TYPE_CHECKING:
    from tenure.v1 import budgets_pb2, hosts_pb2, identity_pb2, policy_pb2
    from tenure.v1.budgets_pb2_grpc import BudgetsStub
    from tenure.v1.hosts_pb2_grpc import HostsStub
    from tenure.v1.identity_pb2_grpc import IdentityStub
    from tenure.v1.jobs_pb2_grpc import JobsStub
    from tenure.v1.policy_pb2_grpc import PolicyStub

A = TypeVar("A", bound=Message)
Q = TypeVar("Q", bound=Message)

DEADLINE_S = 15.0
"""How long a call may take, its retries included."""
RECONNECT_S = 30.0
"""How long a stream that broke off is tried to be taken up again."""
_ANSWER_BYTES_MAX = 512 * 1024 * 1024
_RETRIES = {
    "methodConfig": [
        {
            "name": [{}],
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.1s",
                "maxBackoff": "1s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}
CHANNEL_OPTIONS = (
    ("grpc.service_config", json.dumps(_RETRIES)),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_receive_message_length", _ANSWER_BYTES_MAX),
    ("grpc.max_send_message_length", _ANSWER_BYTES_MAX),
    ("grpc.keepalive_time_ms", 60_000),
)
_REFUSALS = frozenset(
    {
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "PERMISSION_DENIED",
        "UNAUTHENTICATED",
        "RESOURCE_EXHAUSTED",
    }
)


class Client:
    """Talks to the gateway at `address` (`host:port`). One thread at a time; close it, or use it as a context.

    Every method raises `ServerRefused` or `ServerUnreachable` (both `ServerError`), and `Refusal` for credentials that
    cannot be sent.
    """

    def __init__(self, address: str, *, deadline_s: float = DEADLINE_S, credentials: Credentials | None = None) -> None:
        """`credentials`: who calls; None: what the environment says. Raises `Refusal` for what it says wrongly."""
        self.address = address
        self._deadline_s = deadline_s
        self._credentials = credentials or Credentials.from_environment()
        self._channel = _channel(address, self._credentials)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the channel; calls under way end."""
        self._channel.close()

    @cached_property
    def _identity(self) -> "IdentityStub":
        from tenure.v1.identity_pb2_grpc import IdentityStub

        return IdentityStub(self._channel)

    @cached_property
    def _jobs(self) -> "JobsStub":
        from tenure.v1.jobs_pb2_grpc import JobsStub

        return JobsStub(self._channel)

    @cached_property
    def _budgets(self) -> "BudgetsStub":
        from tenure.v1.budgets_pb2_grpc import BudgetsStub

        return BudgetsStub(self._channel)

    @cached_property
    def _hosts(self) -> "HostsStub":
        from tenure.v1.hosts_pb2_grpc import HostsStub

        return HostsStub(self._channel)

    @cached_property
    def _policy(self) -> "PolicyStub":
        from tenure.v1.policy_pb2_grpc import PolicyStub

        return PolicyStub(self._channel)

    def policy(self) -> "policy_pb2.GetPolicyResponse":
        """Every knob, and who changed the policy last."""
        from tenure.v1 import policy_pb2

        return self._call(self._policy.GetPolicy, policy_pb2.GetPolicyRequest())

    def set_policy(
        self, values: Mapping[str, str], *, merge: bool, user: str = "", comment: str = "", expected_position: int = 0
    ) -> "policy_pb2.SetPolicyResponse":
        """Change some knobs (`merge`), or all: those that are not named get their defaults."""
        from tenure.v1 import policy_pb2

        request = policy_pb2.SetPolicyRequest(
            values=values, merge=merge, user=user, comment=comment, expected_position=expected_position
        )
        return self._call(self._policy.SetPolicy, request)

    def policy_history(self) -> "list[policy_pb2.PolicyChange]":
        """The changes of the policy, oldest first."""
        from tenure.v1 import policy_pb2

        return list(self._call(self._policy.PolicyHistory, policy_pb2.PolicyHistoryRequest()).changes)

    def whoami(self) -> "identity_pb2.WhoAmIResponse":
        """Who the gateway takes the caller for, how it knows, and what they may do."""
        from tenure.v1 import identity_pb2

        return self._call(self._identity.WhoAmI, identity_pb2.WhoAmIRequest())

    def submit(self, spec: jobs_pb2.JobSpec, *, idempotency_key: str = "") -> str:
        """Submit a job and return its id; it is durable then."""
        key = idempotency_key or os.urandom(16).hex()
        return self._call(self._jobs.Submit, jobs_pb2.SubmitRequest(job=spec, idempotency_key=key)).job_id

    def submit_batch(self, specs: Iterable[jobs_pb2.JobSpec], *, idempotency_key: str = "") -> list[str]:
        """Submit up to 10,000 jobs, all or none, and return their ids in order."""
        key = idempotency_key or os.urandom(16).hex()
        request = jobs_pb2.SubmitBatchRequest(jobs=specs, idempotency_key=key)
        return list(self._call(self._jobs.SubmitBatch, request).job_ids)

    def job(self, job_id: str, *, forecast: bool = False) -> jobs_pb2.Job:
        """The job as it is now. `forecast`: say when it will start if it is queued; that may take a second."""
        return self._call(self._jobs.Get, jobs_pb2.GetJobRequest(job_id=job_id, forecast=forecast)).job

    def jobs(
        self, *, states: Iterable[str] = (), budget: str = "", user: str = "", limit: int = 0, forecast: bool = False
    ) -> jobs_pb2.ListJobsResponse:
        """Jobs (running, then the queue by rank, then those that are over), how many there are, and the cluster.

        `forecast`: say when queued jobs will start, too; that may take a second.
        """
        request = jobs_pb2.ListJobsRequest(states=states, budget=budget, user=user, limit=limit, forecast=forecast)
        return self._call(self._jobs.List, request)

    def watch(self, job_id: str) -> Iterator[jobs_pb2.Job]:
        """The job now and at each change, until it is over. A broken connection is taken up again."""
        request = jobs_pb2.WatchJobRequest(job_id=job_id)
        for answer in self._stream(lambda: self._jobs.Watch(request, metadata=self._metadata())):
            yield answer.job

    def cancel(self, job_id: str, *, user: str) -> jobs_pb2.Job:
        """Ask for the job to be cancelled. It is over when its processes are gone: see `watch`."""
        return self._call(self._jobs.Cancel, jobs_pb2.CancelJobRequest(job_id=job_id, user=user)).job

    def explain(self, job_id: str, *, forecast: bool = False) -> jobs_pb2.ExplainJobResponse:
        """What stands before the job and its story from the log; with `forecast` what would change its start, too."""
        return self._call(self._jobs.Explain, jobs_pb2.ExplainJobRequest(job_id=job_id, forecast=forecast))

    def output(
        self,
        job_id: str,
        *,
        run: int = 0,
        replica: int = 0,
        stream: str = "stdout",
        follow: bool = False,
        tail_bytes: int = 0,
    ) -> Iterator[bytes]:
        """What a replica wrote, in pieces; `run` 0 is the latest. With `follow`, until the run is over."""
        request = jobs_pb2.JobLogsRequest(
            job_id=job_id, run=run, replica=replica, stream=stream, follow=follow, tail_bytes=tail_bytes
        )
        for piece in self._stream(lambda: self._jobs.Logs(request, metadata=self._metadata())):
            request.offset = piece.offset + len(piece.data)
            request.tail_bytes = 0
            yield piece.data

    def tree(self) -> "budgets_pb2.GetTreeResponse":
        """All budgets with their standing, in order of path, and the position of the tree's last change."""
        from tenure.v1 import budgets_pb2

        return self._call(self._budgets.GetTree, budgets_pb2.GetTreeRequest())

    def set_shares(
        self,
        budgets: "Iterable[budgets_pb2.Budget]",
        *,
        user: str,
        merge: bool,
        remove: Iterable[str] = (),
        comment: str = "",
        expected_position: int = 0,
    ) -> int:
        """Change the tree (`merge`) or replace it; returns the position of the change."""
        from tenure.v1 import budgets_pb2

        request = budgets_pb2.SetSharesRequest(
            budgets=budgets,
            merge=merge,
            remove=remove,
            user=user,
            comment=comment,
            expected_position=expected_position,
        )
        return self._call(self._budgets.SetShares, request).position

    def planned_tree(
        self,
        budgets: "Iterable[budgets_pb2.Budget]",
        *,
        user: str,
        merge: bool,
        remove: Iterable[str] = (),
    ) -> "Sequence[budgets_pb2.Budget]":
        """The tree as `set_shares` would make it, refused as it would be; nothing is written."""
        from tenure.v1 import budgets_pb2

        request = budgets_pb2.SetSharesRequest(budgets=budgets, merge=merge, remove=remove, user=user, dry_run=True)
        return self._call(self._budgets.SetShares, request).budgets

    def budget_history(self, path: str = "") -> "budgets_pb2.BudgetHistoryResponse":
        """Every change of a share, oldest first."""
        from tenure.v1 import budgets_pb2

        return self._call(self._budgets.History, budgets_pb2.BudgetHistoryRequest(path=path))

    def budget_report(
        self, *, since_ms: int = 0, until_ms: int = 0, path: str = "", users: bool = False
    ) -> "budgets_pb2.BudgetReportResponse":
        """Owed and delivered per budget. 0 for `since_ms` and `until_ms`: the lookback window up to now.

        `users`: and who used it.
        """
        from tenure.v1 import budgets_pb2

        request = budgets_pb2.BudgetReportRequest(since_ms=since_ms, until_ms=until_ms, path=path, users=users)
        return self._call(self._budgets.Report, request)

    def hosts(self, *, states: Iterable[str] = ()) -> "hosts_pb2.ListHostsResponse":
        """The hosts (in these states), in order of name."""
        from tenure.v1 import hosts_pb2

        return self._call(self._hosts.List, hosts_pb2.ListHostsRequest(states=states))

    def fragmentation(self) -> "hosts_pb2.FragmentationResponse":
        """How large a gang could be placed in each cluster and GPU type, now and when protections end."""
        from tenure.v1 import hosts_pb2

        return self._call(self._hosts.Fragmentation, hosts_pb2.FragmentationRequest())

    def drain(
        self, host: str, *, user: str, comment: str, fatal: bool = False, deadline_ms: int = 0, accepts: bool = False
    ) -> "hosts_pb2.Host":
        """Take no new runs on the host (P9). `deadline_ms` is an instant, 0 for none; `fatal` ends its runs now.

        `accepts`: until the deadline it takes runs whose contract ends before it.
        """
        from tenure.v1 import hosts_pb2

        request = hosts_pb2.DrainHostRequest(
            host=host, user=user, comment=comment, fatal=fatal, deadline_ms=deadline_ms, accepts=accepts
        )
        return self._call(self._hosts.Drain, request).host

    def resume(self, host: str, *, user: str, comment: str = "") -> "hosts_pb2.Host":
        """Take runs on the host again."""
        from tenure.v1 import hosts_pb2

        return self._call(self._hosts.Resume, hosts_pb2.ResumeHostRequest(host=host, user=user, comment=comment)).host

    def host_report(self, *, since_ms: int = 0, until_ms: int = 0) -> "hosts_pb2.HostReportResponse":
        """Availability, incidents and their causes over a stretch of the past (0 and 0: the last seven days)."""
        from tenure.v1 import hosts_pb2

        return self._call(self._hosts.Report, hosts_pb2.HostReportRequest(since_ms=since_ms, until_ms=until_ms))

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (*self._credentials.metadata(self.address), *trace_metadata())

    def _call(self, method: "grpc.UnaryUnaryMultiCallable[Q, A]", request: Q) -> A:
        """The answer; asked again when the gateway says when, as long as that is before the deadline."""
        give_up_at, metadata = time.monotonic() + self._deadline_s, self._metadata()
        try:
            while True:
                try:
                    return method(request, timeout=max(0.0, give_up_at - time.monotonic()), metadata=metadata)
                except grpc.RpcError as error:
                    wait_s = _retry_after_s(error)
                    if wait_s is None or time.monotonic() + wait_s > give_up_at:
                        raise self._translated(error) from error
                    time.sleep(wait_s)
        except ValueError as error:  # a message that cannot be encoded
            raise ServerRefused(f"the request cannot be sent: {error}", code="INVALID_ARGUMENT") from error

    def _stream(self, open_stream: "Callable[[], grpc.CallIterator[A]]") -> Iterator[A]:
        """The answers of a stream, opened again while the gateway is away for up to `RECONNECT_S`."""
        give_up_at = 0.0
        while True:
            call = open_stream()
            heard = False
            try:
                for answer in call:
                    heard = True
                    yield answer
                return
            except grpc.RpcError as error:
                trouble = self._translated(error)
                give_up_at = time.monotonic() + RECONNECT_S if heard else give_up_at
                if not isinstance(trouble, ServerUnreachable) or time.monotonic() > give_up_at:
                    raise trouble from error
                time.sleep(0.25)
            finally:
                call.cancel()  # type: ignore[no-untyped-call]

    def _translated(self, error: grpc.RpcError) -> ServerError:
        code: str = error.code().name
        details = " ".join((error.details() or "").split())
        if code == "UNAVAILABLE" and _is_answer(error):
            return ServerUnreachable(details, code=code)
        if code == "UNAVAILABLE":
            fix = "start it with `tenure up`, or set TENURE_SERVER to the address of a running one"
            if not self._credentials.tls and not is_loopback(self.address.rpartition(":")[0]):
                fix += "; if it speaks TLS, set TENURE_TLS_CA"
            return ServerUnreachable(f"no answer from {self.address}; {fix}", code=code)
        if code in ("DEADLINE_EXCEEDED", "CANCELLED"):  # the gateway looks at the deadline too, and may be the first
            fix = "see whether it is overloaded with `tenure doctor`"
            return ServerUnreachable(f"{self.address} did not answer within {self._deadline_s:g} s; {fix}", code=code)
        if code in _REFUSALS:
            return ServerRefused(details or code, code=code)
        if code == "UNIMPLEMENTED":
            return ServerError(f"{self.address} does not know this call: is it an older version?", code=code)
        return ServerError(f"{self.address} failed ({code}): {details[:500]}; its log says more", code=code)


def _retry_after_s(error: grpc.RpcError) -> float | None:
    """When the gateway wants to be asked again; None if it did not say."""
    if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
        return None
    said = [str(entry.value) for entry in error.trailing_metadata() or () if entry.key == "retry-after"]
    return float(said[0]) if said and said[0].isdecimal() else None


def _channel(address: str, credentials: Credentials) -> grpc.Channel:
    if not credentials.tls:
        return grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
    options: tuple[tuple[str, str | int], ...] = CHANNEL_OPTIONS
    if credentials.server_name:
        options = (*options, ("grpc.ssl_target_name_override", credentials.server_name))
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(*credentials.pem()), options=options)


def _is_answer(error: grpc.RpcError) -> bool:
    """Whether the gateway itself said it (something behind it is away): its refusals carry details, no others do."""
    return any(entry.key == "grpc-status-details-bin" for entry in error.trailing_metadata() or ())
