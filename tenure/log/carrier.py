"""What travels beside a fact, in the headers of its message: which trace it belongs to. No part of the fact itself.

So its bytes, its fold and every replay are the same with and without it.
"""

from typing import Protocol

from tenure.events.fact import Fact

HEADER = "traceparent"
"""As W3C Trace Context has it: `00-<trace>-<span>-<flags>`."""


class Carrier(Protocol):
    """Who gives headers to facts that are written, and looks at those of facts that are read."""

    def header_of(self, fact: Fact) -> str:
        """The header of a fact that is about to be written; empty: none."""

    def heard(self, fact: Fact, header: str) -> None:
        """A fact was read that had this header."""
