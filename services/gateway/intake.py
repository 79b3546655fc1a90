"""How a submission is written: once, whole, and durable before the user hears its id.

A single job is one append. A batch longer than the log's atomic appends is written in parts, its first job alone and
first: that claims the idempotency key. If the log goes away half-way the user gets no ids but an error, and the same
batch sent again with the same key writes exactly what is missing: to the user it is all or nothing.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence

from services.gateway.decider import check_submission
from services.gateway.gateway import Gateway
from services.gateway.identity.asking import require, who
from services.gateway.keys import KeyEntry
from services.gateway.limits import Limits
from services.gateway.policy.resubmission import check_same, submitted_facts
from services.gateway.refusals import Away, Full
from tenure.domain.ids import JobId, Position
from tenure.domain.job import JobSpec
from tenure.domain.names import check_label
from tenure.domain.refusal import Refusal
from tenure.domain.rights import Right
from tenure.events.intake import JobSubmitted
from tenure.log.port import ATOMIC_MAX, Appended

logger = logging.getLogger(__name__)

BATCH_MAX = 10_000
PARTS_AHEAD = 1
_TRIES = 3


class Intake:
    """Writes submissions. One per gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway, self._limits = gateway, Limits(lambda: gateway.policy)

    async def submit(self, specs: Sequence[JobSpec], *, key: str) -> tuple[JobId, ...]:
        """The ids of the jobs, in order. Raises `Refusal`, `Denied` too (and then nothing was written), or `Away`."""
        gateway = self._gateway
        check_label(key, field="idempotency_key")
        state = gateway.state
        for budget in dict.fromkeys(spec.budget for spec in specs):
            require(Right.SUBMIT, tree=state.tree, budget=budget)
        known = state.keys.get(specs[0].user, key) if key else None
        if known is not None:
            return await self._again(known, specs, key=key)
        await self._limits.count(specs[0].user)
        check_submission(state, specs, policy=gateway.policy)
        with self._limits.writing(state, specs[0].user, len(specs), written=lambda: gateway.written):
            return await self._write(specs, key=key)

    async def _write(self, specs: Sequence[JobSpec], *, key: str) -> tuple[JobId, ...]:
        gateway, state = self._gateway, self._gateway.state
        for _ in range(_TRIES):
            now = gateway.now()
            ids = gateway.job_ids.make(now=now, count=len(specs))
            if not key and len(specs) > 1:
                key = f"batch-{ids[0]}"
            facts = submitted_facts(specs, ids, key=key or None, now=now, cluster=gateway.cluster, origin=who().origin)
            claimed = await gateway.append(facts[:1])
            if not claimed.duplicate:
                await self._write_rest(facts[1:], key=key, count=len(facts))
                logger.debug("took %d jobs of %s from %s on", len(ids), specs[0].user, ids[0])
                return ids
            if key:
                return await self._again(await self._winner(specs, claimed.last, key=key), specs, key=key)
            await gateway.folded(claimed.last)
            entry = state.jobs.get(ids[0])
            if entry is not None and entry.submitted_at == now and entry.spec == specs[0]:
                return ids  # our own append, sent twice on its way to the log
        raise Away("no free job id was found; try again in a moment")

    async def _winner(self, specs: Sequence[JobSpec], position: Position, *, key: str) -> KeyEntry:
        """What the key stands for when somebody else claimed it a moment ago."""
        await self._gateway.folded(position)
        known = self._gateway.state.keys.get(specs[0].user, key)
        if known is None:
            raise Away("the same idempotency_key is being used at this moment; try again")
        return known

    async def _again(self, known: KeyEntry, specs: Sequence[JobSpec], *, key: str) -> tuple[JobId, ...]:
        """The ids given before; what is missing of a batch is written. Raises `AlreadyExists` for another body."""
        ids = check_same(known, specs, key=key)
        if known.seen < known.count:
            now, cluster = self._gateway.now(), self._gateway.cluster
            facts = submitted_facts(specs, ids, key=key, now=now, cluster=cluster, origin=who().origin)
            missing = [fact for fact in facts if fact.job not in self._gateway.state.jobs]
            await self._write_rest(missing, key=key, count=len(facts))
        return ids

    async def _write_rest(self, facts: Sequence[JobSubmitted], *, key: str, count: int) -> None:
        """Write these facts of a batch of `count` in atomic appends, the next on its way while one is committed."""
        written = count - len(facts)
        parts = deque(facts[begin : begin + ATOMIC_MAX] for begin in range(0, len(facts), ATOMIC_MAX))
        flying: deque[asyncio.Task[Appended]] = deque()
        try:
            with self._gateway.writing_first():
                while parts or flying:
                    while parts and len(flying) <= PARTS_AHEAD:
                        flying.append(asyncio.create_task(self._gateway.append(parts.popleft())))
                    await flying[0]
                    flying.popleft()
                    written += ATOMIC_MAX
        except Away as trouble:
            raise Away(_cut_short(written, count, key)) from trouble
        except Full as full:
            problem = _cut_short(written, count, key)
            raise Full(field="log", problem=problem, fix="free disk space first") from full
        finally:
            await asyncio.gather(*flying, return_exceptions=True)


def check_batch(specs: Sequence[JobSpec]) -> None:
    """Raise `Refusal` unless these jobs can be submitted as one."""
    if not specs:
        raise Refusal(field="jobs", problem="empty", fix=f"give 1 to {BATCH_MAX} jobs")
    if len(specs) > BATCH_MAX:
        raise Refusal(field="jobs", problem=f"{len(specs)} jobs", fix=f"give at most {BATCH_MAX} at a time")
    for number, spec in enumerate(specs):
        if spec.user != specs[0].user:
            raise Refusal(
                field=f"jobs[{number}].user", problem="differs from jobs[0].user", fix="submit each user's jobs apart"
            )


def _cut_short(written: int, count: int, key: str) -> str:
    return (
        f"only {written} of {count} jobs are known to be written; send the same batch again with "
        f"idempotency_key {key!r} and the rest is written"
    )
