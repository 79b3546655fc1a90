"""How grave a signal of a host is, in the words of P9."""

from enum import StrEnum


class Severity(StrEnum):
    """What a signal asks for at most; what is done about it is the health role's decision.

    A word of a later version reads as `WATCH`: an old reader keeps what it cannot judge in sight, and acts on nothing.
    """

    WATCH = "watch"
    """Worth knowing, no evidence that the host is unfit: applications' own faults, single events, limits that near."""
    DRAIN = "drain"
    """The host needs care that can wait for the ends of contracts."""
    FATAL = "fatal"
    """What runs there is lost already: a GPU is gone."""

    @classmethod
    def _missing_(cls, value: object) -> "Severity":  # noqa: ARG003 (the protocol of enum)
        return cls.WATCH

    @property
    def rank(self) -> int:
        """0 for the mildest."""
        return _ORDER.index(self)


_ORDER = (Severity.WATCH, Severity.DRAIN, Severity.FATAL)
