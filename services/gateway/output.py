"""What a replica wrote, from the agent that has it to the client: piece by piece, following while the run goes on."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable

from services.gateway.entries import JobEntry, RunEntry
from services.gateway.progress import Progress
from services.gateway.refusals import Away, NotFound, WrongState
from tenure.domain.ids import HostId
from tenure.domain.nearest import shown
from tenure.domain.refusal import Refusal
from tenure.runtime.log_stream import PIECE_BYTES_MAX, STREAMS, LogPiece, LogRequest, LogsAway, Requester, read_piece
from tenure.v1 import jobs_pb2

POLL_FIRST_S, POLL_LONGEST_S = 0.05, 0.25
"""Pauses between two looks at a stream that has nothing new: it grows while nothing comes."""
AGENT_AWAY_S = 60.0
"""How long a reader that follows waits for an agent that is away: runs outlive a restart of theirs."""
END_WAIT_S = 5.0
"""How long after a run's end the agent is given to say that the stream is complete."""


class Output:
    """Reads output for one gateway. `connect` is called when the first reader comes."""

    def __init__(self, progress: Progress, *, cluster: str, connect: Callable[[], Awaitable[Requester]]) -> None:
        self._progress, self._cluster, self._connect = progress, cluster, connect
        self._connection: Requester | None = None

    async def read(self, entry: JobEntry, request: jobs_pb2.JobLogsRequest) -> AsyncGenerator[LogPiece, None]:
        """The pieces asked for. Raises `Refusal`, `Away` or `LogsAway`."""
        stream = _checked_stream(request)
        run = await self._run(entry, request)
        host = _host_of(run, request.replica)
        offset, tail, pause_s = request.offset, request.tail_bytes, POLL_FIRST_S
        heard_at = time.monotonic()
        while not self._progress.stopping:
            wanted = LogRequest(run=run.run, replica=request.replica, stream=stream, offset=offset, tail_bytes=tail)
            over = run.cause_of_end is not None  # looked at before the reading, so that nothing after it is missed
            try:
                piece = await self._piece(host, wanted)
            except LogsAway:
                if not request.follow or over or time.monotonic() > heard_at + AGENT_AWAY_S:
                    raise
                await asyncio.sleep(POLL_LONGEST_S)
                continue
            offset, tail = piece.next_offset, 0
            if piece.data:
                heard_at, pause_s = time.monotonic(), POLL_FIRST_S
                yield piece
            if piece.eof or (not request.follow and len(piece.data) < PIECE_BYTES_MAX):
                return
            if not piece.data:
                if over and time.monotonic() > heard_at + END_WAIT_S:
                    return
                if not over:
                    heard_at = time.monotonic()
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 1.5, POLL_LONGEST_S)
        raise Away("the gateway is stopping; read on from the last offset in a moment")

    async def _piece(self, host: HostId, wanted: LogRequest) -> LogPiece:
        if self._connection is None:
            self._connection = await self._connect()
        return await read_piece(self._connection, cluster=self._cluster, host=host, request=wanted)

    async def _run(self, entry: JobEntry, request: jobs_pb2.JobLogsRequest) -> RunEntry:
        """The run that is meant; with `follow`, waits for the first one."""
        if not entry.runs and request.follow:
            with self._progress.watching(entry.job) as changed:
                while not entry.runs and not entry.state.final and not self._progress.stopping:
                    changed.clear()
                    await changed.wait()
        if not entry.runs:
            raise WrongState(
                field="job_id", problem=f"{entry.job} has not run: it is {entry.state}", fix="follow it to wait for it"
            )
        if request.run == 0:
            return entry.runs[-1]
        for run in entry.runs:
            if run.number == request.run:
                return run
        raise NotFound(
            field="run",
            problem=f"{entry.job} has no run {request.run}",
            fix=f"use 1 to {entry.runs[-1].number}, or 0 for the latest",
        )


def _checked_stream(request: jobs_pb2.JobLogsRequest) -> str:
    stream = request.stream or STREAMS[0]
    if stream not in STREAMS:
        raise Refusal(field="stream", problem=f"{shown(stream)} is not known", fix="use stdout or stderr")
    for field, value in (("offset", request.offset), ("tail_bytes", request.tail_bytes), ("run", request.run)):
        if value < 0:
            raise Refusal(field=field, problem=f"{value} is negative", fix="use 0 or more")
    return stream


def _host_of(run: RunEntry, replica: int) -> HostId:
    for place in run.placement:
        if place.replica == replica:
            return place.host
    raise Refusal(
        field="replica", problem=f"{run.run} has no replica {replica}", fix=f"use 0 to {len(run.placement) - 1}"
    )
