"""The fact of a changed policy: written by the gateway, for an admin or from what it was started with."""

from typing import ClassVar

import msgspec

from tenure.domain.ids import UserName
from tenure.domain.policy import Policy
from tenure.events.fact import Fact, Lane, Origin


class KnobChange(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One knob, by the name of its field in `Policy`: durations are milliseconds."""

    knob: str
    before: int | float
    after: int | float


class PolicyChanged(Fact, frozen=True, kw_only=True, tag=True):
    """The whole policy, by which everybody decides from this position on.

    In the lane of the budget role, which answers submissions: none is admitted under a policy that is not the last one.
    `changes`: what is another value than before; the first fact of a log counts from the defaults. `origin`: who really
    asked.
    """

    lane: ClassVar[Lane] = Lane.BUDGET

    policy: Policy
    changes: tuple[KnobChange, ...] = ()
    by: UserName
    comment: str = ""
    origin: Origin | None = None
