"""What an edit of the policy becomes: the fact of it, or a refusal. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from services.gateway.order import Order
from services.gateway.refusals import Outdated
from services.gateway.state import State
from tenure.domain.nearest import unknown_key
from tenure.domain.policy import (
    KNOBS,
    MAPPINGS,
    UNIT,
    Policy,
    changes,
    clusters_unknown,
    in_words,
    is_fixed,
    spoken,
    types_unknown,
    value_of,
)
from tenure.domain.refusal import Refusal
from tenure.events.policy import KnobChange, PolicyChanged

BEATS_LEAST = 3
"""A host whose heartbeats fail this often one after the other is silent; fewer may be late."""


def change_policy(
    state: State, wanted: Policy, order: Order, *, at_start: Policy, expected_position: int = 0
) -> PolicyChanged | None:
    """The change from what counts now to `wanted`; None if that is the same.

    Raises `Refusal` for a knob that cannot change while the system runs, `Outdated` if another change came first.
    """
    if expected_position and expected_position != state.policy_position:
        raise Outdated(
            field="expected_position",
            problem=f"the policy has changed since {expected_position}: it is at {state.policy_position}",
            fix="read the policy again and repeat the change",
        )
    before = state.policy or at_start
    for name in stuck(before, wanted):
        problem = f"cannot change from {in_words(name, getattr(before, name))} while the system runs"
        raise Refusal(field=spoken(name), problem=problem, fix=KNOBS[name].fixed)
    return _fact(before, wanted, order) if before != wanted else None


def stuck(before: Policy, wanted: Policy) -> list[str]:
    """The knobs that are wanted otherwise, and cannot change while the system runs."""
    return [name for name in changes(before, wanted) if is_fixed(name)]


def with_stuck(before: Policy, wanted: Policy) -> tuple[Policy, list[str]]:
    """What a whole file wants, less what cannot change while the system runs; and a sentence about each of those.

    One file serves all: what its agents read at their start may stand there, and keeps nobody from the rest.
    """
    names = stuck(before, wanted)
    told = [f"{spoken(name)} stays {in_words(name, getattr(before, name))}: {KNOBS[name].fixed}" for name in names]
    return replace(wanted, **{name: getattr(before, name) for name in names}), told


def strange(state: State, wanted: Policy) -> list[str]:
    """A sentence about each cluster and each type that has values and no hosts: they may be registered later.

    While no host has registered nothing is known of either. And one about patience that one late heartbeat wears out.
    """
    return [*_impatient(wanted), *_without_hosts(state, wanted)]


def _impatient(wanted: Policy) -> Iterator[str]:
    if wanted.suspect_after_ms < BEATS_LEAST * wanted.heartbeat_ms:
        patience, beats = (in_words(name, getattr(wanted, name)) for name in ("suspect_after_ms", "heartbeat_ms"))
        yield f"suspect_after: {patience} is soon: heartbeats come every {beats}; give at least {BEATS_LEAST} of them"
    if wanted.lost_after_ms < wanted.suspect_after_ms:
        lost, suspect = (in_words(name, getattr(wanted, name)) for name in ("lost_after_ms", "suspect_after_ms"))
        yield f"lost_after: {lost} is before suspect_after ({suspect}), and counts as that"


def _without_hosts(state: State, wanted: Policy) -> list[str]:
    kinds = [count.kind for count in state.shape.counts]
    if not kinds:
        return []
    clusters = clusters_unknown(wanted, known={kind.cluster for kind in kinds})
    types = types_unknown(wanted, known={kind.gpu_type for kind in kinds})
    return [str(each) for each in (*clusters, *types)]


def first_policy(policy: Policy, order: Order) -> PolicyChanged:
    """The first fact of a log that has no policy: from then on it says by what is decided."""
    return _fact(Policy(), policy, order)


def known_knobs(values: Mapping[str, str]) -> Mapping[str, str]:
    """The same. Raises `Refusal` for a name that is no knob's, naming the nearest."""
    names = [*(spoken(name) for name in KNOBS), *MAPPINGS]
    for name in values:
        if name not in names or name.endswith(UNIT):
            raise unknown_key(name, known=names, where="policy")
    return values


def _fact(before: Policy, after: Policy, order: Order) -> PolicyChanged:
    different = [
        KnobChange(knob=name, before=value_of(before, name), after=value_of(after, name))
        for name in changes(before, after)
    ]
    return PolicyChanged(
        at=order.now,
        id=order.fact_id,
        cluster=order.cluster,
        policy=after,
        changes=tuple(different),
        by=order.by,
        comment=order.comment,
        origin=order.origin,
    )
