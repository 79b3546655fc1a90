"""What the forecast knows: what the live ranker and placer know, folded by their own functions, and the book of jobs.

It is a role that decides nothing: the loop of every role reads the log for it.
"""

from collections.abc import Callable

import msgspec

from services.placer import decider as placer
from services.placer.state import State as PlacerState
from services.ranker import decider as ranker
from services.ranker.state import State as RankerState
from simulator.live import book
from simulator.live.book import Book
from tenure.domain.ids import LOG_START, Position
from tenure.domain.policy import Policy
from tenure.domain.units import Millis
from tenure.events.catalogue import Kind
from tenure.events.fact import Recorded
from tenure.runtime.role import Decision, Role

REST_S = 0.5
"""How long facts may gather before they are read: nobody needs a forecast of the last half second."""


class State:
    """One owner, one thread; `evolve` changes it in place."""

    def __init__(self, *, position: Position, ranker: RankerState, placer: PlacerState, book: Book) -> None:
        self.position, self.ranker, self.placer, self.book = position, ranker, placer, book


class Dumped(msgspec.Struct, frozen=True, kw_only=True):
    """A state as bytes, its parts as their roles write them."""

    position: Position
    ranker: bytes
    placer: bytes
    book: Book


class Folding:
    """The folds of the roles under one policy, which counts while the log has none."""

    def __init__(self, policy: Policy) -> None:
        self.ranker, self.placer = ranker.role(policy), placer.role(policy)
        parts: list[tuple[frozenset[Kind], Callable[[State, Recorded], None]]] = [
            (frozenset(self.ranker.reads), lambda state, entry: self.ranker.evolve(state.ranker, entry)),
            (frozenset(self.placer.reads), lambda state, entry: self.placer.evolve(state.placer, entry)),
            (frozenset(book.FOLDS), lambda state, entry: book.evolve(state.book, entry)),
        ]
        reads = dict.fromkeys([*self.ranker.reads, *self.placer.reads, *book.FOLDS])
        self._folds = {kind: [fold for kinds, fold in parts if kind in kinds] for kind in reads}

    @property
    def reads(self) -> tuple[Kind, ...]:
        """The kinds that any of them reads."""
        return tuple(self._folds)

    def initial(self) -> State:
        """Nothing known."""
        return State(position=LOG_START, ranker=self.ranker.initial(), placer=self.placer.initial(), book=Book())

    def evolve(self, state: State, recorded: Recorded) -> None:
        """Fold one fact."""
        for fold in self._folds[type(recorded.fact)]:
            fold(state, recorded)
        state.position = recorded.position

    def dump(self, state: State) -> bytes:
        """The state as bytes: what one owner changes, another may look at."""
        dumped = Dumped(
            position=state.position,
            ranker=self.ranker.dump(state.ranker),
            placer=self.placer.dump(state.placer),
            book=state.book,
        )
        return msgspec.msgpack.encode(dumped)

    def load(self, payload: bytes) -> State:
        """The inverse of `dump`. Raises ValueError on damage."""
        dumped = read(payload)
        return State(
            position=dumped.position,
            ranker=self.ranker.load(dumped.ranker),
            placer=self.placer.load(dumped.placer),
            book=dumped.book,
        )


def read(payload: bytes) -> Dumped:
    """What `Folding.dump` wrote, its parts still as bytes. Raises ValueError on damage."""
    try:
        return msgspec.msgpack.decode(payload, type=Dumped)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not a state of the forecast: {error}") from error


def decide(state: State, now: Millis) -> Decision:  # noqa: ARG001 - as a role is asked
    """Nothing, ever: it only looks."""
    return Decision(assumes=state.position)


def role(policy: Policy) -> Role[State]:
    """The forecast as the loop runs it."""
    folding = Folding(policy)
    return Role(
        name="forecast",
        reads=folding.reads,
        guard=None,
        initial=folding.initial,
        evolve=folding.evolve,
        decide=decide,
        dump=folding.dump,
        load=folding.load,
        rest_s=REST_S,
        condemns=False,
        policy=policy_of,
    )


def policy_of(state: State) -> Policy | None:
    """The log's policy."""
    return state.placer.core.policy
