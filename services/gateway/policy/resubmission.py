"""The same request sent again: an idempotency key stands for what was first submitted under it, for good.

The first fact under a key has an id made from the key, so that the log itself drops a second one, whoever sends it.
The same batch sent again writes what is missing of it.
"""

import hashlib
from collections.abc import Sequence

import msgspec

from services.gateway.keys import KeyEntry
from services.gateway.refusals import AlreadyExists
from tenure.domain.ids import FactId, JobId, UserName
from tenure.domain.job import JobSpec
from tenure.domain.job_id import ids_from
from tenure.domain.units import Millis
from tenure.events.fact import Origin
from tenure.events.intake import BatchPart, JobSubmitted

_encoder = msgspec.json.Encoder(order="deterministic")


def body_of(specs: Sequence[JobSpec]) -> str:
    """A digest of all that is asked for; equal requests have equal digests."""
    return hashlib.blake2b(_encoder.encode(specs), digest_size=16).hexdigest()


def check_same(entry: KeyEntry, specs: Sequence[JobSpec], *, key: str) -> tuple[JobId, ...]:
    """The ids that were given under the key. Raises `AlreadyExists` if it stands for another body."""
    if entry.body != body_of(specs):
        raise AlreadyExists(
            field="idempotency_key",
            problem=f"{key[:64]!r} was used for another submission (job {entry.first})",
            fix="use a new key for a new submission, or send the same body again",
        )
    return (entry.first,) if entry.count == 1 else ids_from(entry.first, count=entry.count)


def submitted_facts(
    specs: Sequence[JobSpec],
    ids: Sequence[JobId],
    *,
    key: str | None,
    now: Millis,
    cluster: str,
    origin: Origin | None = None,
) -> list[JobSubmitted]:
    """The facts of one submission: the first claims the key."""
    if len(specs) == 1:
        fact_id = claim(specs[0].user, key) if key is not None else FactId(f"submit-{ids[0]}")
        return [
            JobSubmitted(
                at=now, id=fact_id, cluster=cluster, job=ids[0], spec=specs[0], idempotency_key=key, origin=origin
            )
        ]
    assert key is not None, "a batch has a key, so that it can be completed"
    first, count, body, prefix = ids[0], len(specs), body_of(specs), claim(specs[0].user, key)
    return [
        JobSubmitted(
            at=now,
            id=FactId(f"{prefix}-{number}" if number else prefix),
            cluster=cluster,
            job=job,
            spec=spec,
            idempotency_key=key,
            batch=BatchPart(first=first, number=number, count=count, body=body),
            origin=origin,
        )
        for number, (job, spec) in enumerate(zip(ids, specs, strict=True))
    ]


def claim(user: UserName, key: str) -> FactId:
    """The id of the first fact under a key of a user."""
    digest = hashlib.blake2b(f"{user}\0{key}".encode(), digest_size=16).hexdigest()
    return FactId(f"submit-{digest}")
