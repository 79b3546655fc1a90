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


class Unauthenticated(Refusal):
    """Who calls is not known, or what they show for it is not good. Never names what was shown."""


class Denied(Refusal):
    """Who calls has not the right."""


class Full(Refusal):
    """There is no room to write it down."""


class Limited(Full):
    """Too much at once, or too much that waits. The same may be asked again in `retry_after_s` seconds."""

    def __init__(self, *, field: str, problem: str, fix: str, retry_after_s: float) -> None:
        super().__init__(field=field, problem=problem, fix=fix)
        self.retry_after_s = retry_after_s


class Away(Exception):
    """Something that is needed cannot be reached now. Whether a fact was written is unknown: asking again is safe."""
