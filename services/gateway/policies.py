"""The gRPC service Policy, and the two ways by which the gateway itself writes one: at its start, and on SIGHUP."""

# ruff: noqa: N802, ARG002 - gRPC names the methods and what they are given

import logging
import os
from collections.abc import Callable

from services.gateway.answering import Context, answering
from services.gateway.gateway import Gateway
from services.gateway.identity.asking import require
from services.gateway.order import Order
from services.gateway.policy.change_policy import change_policy, first_policy, known_knobs, strange, with_stuck
from services.gateway.policy.meanwhile import AT_START
from services.gateway.state import State
from tenure.domain.ids import FactId, Position, UserName
from tenure.domain.policy import (
    KNOBS,
    MAPPINGS,
    Policy,
    change_in_words,
    in_words,
    mapping_in_words,
    range_in_words,
    spoken,
)
from tenure.domain.refusal import Refusal
from tenure.domain.rights import Right
from tenure.events.fact import Origin
from tenure.events.policy import KnobChange, PolicyChanged
from tenure.runtime.options import build_policy
from tenure.runtime.settings.kinds import MAPPING_KINDS
from tenure.v1 import policy_pb2, policy_pb2_grpc

logger = logging.getLogger(__name__)

ITSELF = UserName("gateway")


class Policies(policy_pb2_grpc.PolicyServicer):
    """See `proto/tenure/v1/policy.proto`."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    @answering
    async def GetPolicy(self, request: policy_pb2.GetPolicyRequest, context: Context) -> policy_pb2.GetPolicyResponse:
        """Every knob, in order."""
        state = await self._gateway.read()
        policy, usual = self._gateway.policy, Policy()
        last = state.policy_facts[-1][1] if state.policy_facts else None
        return policy_pb2.GetPolicyResponse(
            knobs=[
                policy_pb2.Knob(
                    name=spoken(name),
                    value=in_words(name, getattr(policy, name)),
                    default=in_words(name, getattr(usual, name)),
                    range=range_in_words(name),
                    what=knob.what,
                    fixed=knob.fixed,
                )
                for name, knob in KNOBS.items()
            ]
            + [
                policy_pb2.Knob(
                    name=name,
                    value=mapping_in_words(name, policy),
                    default=mapping_in_words(name, usual),
                    range=MAPPING_KINDS[name].name.partition(", ")[2],
                    what=what,
                )
                for name, what in MAPPINGS.items()
            ],
            position=state.policy_position,
            at_ms=0 if last is None else last.at,
            by="" if last is None else last.by,
            comment="" if last is None else last.comment,
        )

    @answering
    async def SetPolicy(self, request: policy_pb2.SetPolicyRequest, context: Context) -> policy_pb2.SetPolicyResponse:
        """Change it, conditional on nobody else having changed what the decision was made on."""
        gateway = self._gateway
        order = gateway.order(user=request.user, comment=request.comment)
        require(Right.SET_POLICY, tree=gateway.state.tree)
        if request.expected_position < 0:
            fix = "give the position GetPolicy told, or 0"
            raise Refusal(field="expected_position", problem="negative", fix=fix)
        values = dict(known_knobs(request.values))
        notes: list[str] = []

        def change(state: State) -> PolicyChanged | None:
            if request.merge:
                wanted, notes[:] = build_policy(values, over=gateway.policy), []
            else:
                wanted, notes[:] = with_stuck(gateway.policy, build_policy(values))
            notes.extend(strange(state, wanted))
            return change_policy(
                state, wanted, order, at_start=gateway.at_start, expected_position=request.expected_position
            )

        position, fact = await write_policy(gateway, change)
        if fact is not None:
            logger.info("%s", in_one_line(fact))
        changes = [from_knob_change(each, fact.policy) for each in fact.changes] if fact is not None else []
        return policy_pb2.SetPolicyResponse(position=position, changes=changes, notes=notes)

    @answering
    async def PolicyHistory(
        self, request: policy_pb2.PolicyHistoryRequest, context: Context
    ) -> policy_pb2.PolicyHistoryResponse:
        """The latest changes, oldest first."""
        state = await self._gateway.read()
        return policy_pb2.PolicyHistoryResponse(
            changes=[
                policy_pb2.PolicyChange(
                    position=position,
                    at_ms=fact.at,
                    by=fact.by,
                    comment=fact.comment,
                    asked_by="" if fact.origin is None else fact.origin.user,
                    asked_how="" if fact.origin is None else fact.origin.how,
                    asked_from="" if fact.origin is None else fact.origin.address,
                    changes=[from_knob_change(each, fact.policy) for each in fact.changes],
                )
                for position, fact in state.policy_facts
            ]
        )


async def write_policy(
    gateway: Gateway, change: Callable[[State], PolicyChanged | None]
) -> tuple[Position, PolicyChanged | None]:
    """Write what `change` makes of the state, and its position; nothing for None. Raises what it raises, and `Away`."""
    written = await gateway.agree(change, what="the policy")
    return (gateway.state.policy_position, None) if written is None else written


async def write_first(gateway: Gateway, *, source: str) -> None:
    """Give a log that has no policy the one that this gateway was started with (`source`: what says so)."""

    def change(state: State) -> PolicyChanged | None:
        return (
            None if state.policy is not None else first_policy(gateway.at_start, by_itself(gateway, source, AT_START))
        )

    _, fact = await write_policy(gateway, change)
    for note in strange(gateway.state, gateway.at_start) if fact is not None else ():
        logger.warning("%s", note)


async def reload_policy(gateway: Gateway, wanted: Policy, *, source: str) -> None:
    """Make `wanted` the policy, as the file `source` says after a SIGHUP. Raises `Refusal`, `Away`."""
    order = by_itself(gateway, source, "SIGHUP")
    notes: list[str] = []

    def change(state: State) -> PolicyChanged | None:
        possible, notes[:] = with_stuck(gateway.policy, wanted)
        notes.extend(strange(state, possible))
        return change_policy(state, possible, order, at_start=gateway.at_start)

    _, fact = await write_policy(gateway, change)
    for note in notes:
        logger.warning("%s", note)
    logger.info("%s", f"the policy of {source} is the one in force already" if fact is None else in_one_line(fact))


def by_itself(gateway: Gateway, source: str, how: str) -> Order:
    """The order of a change that nobody called for: `how` it came about."""
    return Order(
        by=ITSELF,
        comment=f"{how}: {source}",
        now=gateway.now(),
        fact_id=FactId(f"gateway-{os.urandom(12).hex()}"),
        cluster=gateway.cluster,
        origin=Origin(user=ITSELF, how=how, address=source),
    )


def from_knob_change(change: KnobChange, policy: Policy) -> policy_pb2.KnobChange:
    """One knob, as people write it; `policy` is the one that came of the change."""
    before, after = change_in_words(policy, change.knob, before=change.before, after=change.after)
    return policy_pb2.KnobChange(
        name=spoken(change.knob),
        before=before,
        after=after,
    )


def in_one_line(fact: PolicyChanged) -> str:
    """The change for a log line."""
    changes = [from_knob_change(each, fact.policy) for each in fact.changes]
    told = [f"{each.name} {each.before} -> {each.after}" for each in changes]
    return f"{fact.by} changed the policy: {', '.join(told)}"
