"""Why a request is not carried out, beyond bad input (`Refusal`): each kind has its gRPC status in `answering`."""

from tenure.domain.refusal import Refusal


class NotFound(Refusal):
    """What the request is about does not exist."""


class AlreadyExists(Refusal):
    """The idempotency key stands for another request."""


class WrongState(Refusal):
    """The thing is in a state in which this cannot be asked for."""


class Outdated(Refusal):
    """The caller decided on something that has changed since."""


class Full(Refusal):
    """There is no room to write it down."""


class Away(Exception):
    """Something that is needed cannot be reached now. Whether a fact was written is unknown: asking again is safe."""
