"""What can go wrong between a client and the gateway. Kept apart so that it costs nothing to import."""


class ServerError(Exception):
    """A call that failed, said in one line. `code` is the name of the gRPC status, such as `NOT_FOUND`."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


class ServerRefused(ServerError):
    """The gateway does not accept the request; nothing was written. The message names the field and the fix."""


class ServerUnreachable(ServerError):
    """Nobody answers at the address, or not in time. A request may or may not have been carried out."""
