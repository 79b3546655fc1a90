"""Facts about what people ask for: written by the gateway, acknowledged to the user only when they are durable.

`origin` is who really asked and from where; None where that was not said.
"""

from typing import ClassVar

import msgspec

from tenure.domain.host import RepairStep
from tenure.domain.ids import HostId, JobId, UserName
from tenure.domain.job import JobSpec
from tenure.domain.units import Millis
from tenure.events.fact import Fact, Lane, Origin


class BatchPart(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The job is number `number` (from 0) of `count` that were submitted as one, the first of which is `first`.

    `body` is a digest of all of them: a batch that was cut short is completed only by the same batch.
    """

    first: JobId
    number: int
    count: int
    body: str


class JobSubmitted(Fact, frozen=True, kw_only=True, tag=True):
    """A job was accepted from a user."""

    lane: ClassVar[Lane] = Lane.INTAKE

    job: JobId
    spec: JobSpec
    idempotency_key: str | None = None
    batch: BatchPart | None = None
    origin: Origin | None = None


class JobCancelRequested(Fact, frozen=True, kw_only=True, tag=True):
    """The owner (or a manager) wants the job gone, whatever it is doing."""

    lane: ClassVar[Lane] = Lane.INTAKE

    job: JobId
    by: UserName
    origin: Origin | None = None


class DrainRequested(Fact, frozen=True, kw_only=True, tag=True):
    """The host is to become empty (P9). `fatal` ends its runs now; `deadline` is when it must be empty.

    `accepts`: a maintenance window. Until the deadline it goes on with contracts that end before it.
    """

    lane: ClassVar[Lane] = Lane.INTAKE

    host: HostId
    by: UserName
    comment: str
    fatal: bool = False
    deadline: Millis | None = None
    accepts: bool = False
    origin: Origin | None = None


class ResumeRequested(Fact, frozen=True, kw_only=True, tag=True):
    """An operator wants the host to take runs again."""

    lane: ClassVar[Lane] = Lane.INTAKE

    host: HostId
    by: UserName
    comment: str = ""
    origin: Origin | None = None


class RepairCompleted(Fact, frozen=True, kw_only=True, tag=True):
    """The host was repaired and may take runs again: a person says so, or the repair plug.

    The plug's answer names the `incident` and `step` of its `RepairRequested`; not `ok`: a person is needed.
    """

    lane: ClassVar[Lane] = Lane.INTAKE

    host: HostId
    by: UserName
    comment: str = ""
    incident: str = ""
    step: RepairStep = RepairStep.REPAIR
    ok: bool = True
    origin: Origin | None = None
