"""The shape of a role: three pure functions and what they read and guard."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from tenure.domain.ids import Position
from tenure.domain.policy import Policy
from tenure.domain.units import Millis
from tenure.events.catalogue import Kind
from tenure.events.fact import Fact, Lane, Recorded
from tenure.events.leading import LeadTaken


class Positioned(Protocol):
    """A state knows how far it has read."""

    position: Position


S = TypeVar("S", bound=Positioned)


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What a role wants: facts to append, instructions for its own shell, and when to be asked again.

    `assumes` is the position the decision was made at; the loop turns it into the condition of the append. Facts carry
    no id yet: the loop gives them `<role>-<assumes>-<n>`, so that the same decision is never recorded twice.
    `instructions` are carried out after the facts are durable. `wake_at` is an instant (P11); None means "when a fact
    comes".
    """

    assumes: Position
    facts: Sequence[Fact] = ()
    instructions: Sequence[Any] = ()
    wake_at: Millis | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Role(Generic[S]):
    """A role as the loop and the simulator run it.

    `evolve` folds one fact into the state in place and sets `state.position`. `decide` must not change the state's
    meaning (it may keep scratch indexes). `guard` is the lane whose facts the role's appends are conditional on; the
    role must read every kind in it. With a guard a role reads all kinds that it writes, or none of them.
    `lead` is what its leader writes where several processes of it run: a fact of the guarded lane, that the role reads.
    `policy`: the log's policy, by the state; None while it has none and what the role was started with counts.
    `dump` and `load` are exact inverses; `load` raises ValueError on damage. `rest_s`: how long facts may gather before
    it reads them (`Log.follow`); 0 for a role that somebody waits for. `condemns`: what it cannot fold of what people
    and agents say, all are to pass over; False for one whose mistakes must concern nobody else.
    """

    name: str
    reads: tuple[Kind, ...]
    guard: Lane | None
    initial: Callable[[], S]
    evolve: Callable[[S, Recorded], None]
    decide: Callable[[S, Millis], Decision]
    dump: Callable[[S], bytes]
    load: Callable[[bytes], S]
    lead: type[LeadTaken] | None = None
    rest_s: float = 0.0
    condemns: bool = True
    policy: Callable[[S], Policy | None] | None = None
