"""One outage as its source tells it, and what else a source says. Instants are seconds on the source's own clock."""

from datetime import UTC, datetime

import msgspec

from simulator.traces.source import Unreadable


class Outage(msgspec.Struct, frozen=True, kw_only=True):
    """`place` failed at `down_s` and was mended at `up_s` (None: the source does not say when)."""

    place: str
    down_s: int
    up_s: int | None
    kind: str
    line: int


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """The outages of a source in its own order, and of every place since when and until when it was watched."""

    outages: list[Outage]
    watched: dict[str, tuple[int, int]]
    """First and last second, by place; places that never failed too, as far as the source knows them."""


def wall_s(text: str, form: str, *, what: str) -> int:
    """Seconds of a wall time without a zone, on a clock that runs evenly. Raises `Unreadable`."""
    try:
        return int(datetime.strptime(text.strip(), form).replace(tzinfo=UTC).timestamp())
    except ValueError:
        raise Unreadable(f"{what} is not a time") from None
